from collections.abc import Mapping
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.builtin import ConfigMap
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import ObjectMeta
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, Conflict, NotFound, ServerFault, Status
from dovetail_operator.writes.job_numbers import Numbers, allot, highest_shown, read_counters
from tests.core.kube.api import Answer, Api, make_object, refusal
from tests.operator_.builders import at, make_job

PATH = "/api/v1/namespaces/home/configmaps"
ONE = f"{PATH}/dovetail-job-numbers"


def submitted(name: str, *, seconds: float = 0, namespace: str = "team") -> GPUJob:
    return make_job(name, meta={"creationTimestamp": at(seconds), "namespace": namespace})


def configmap(version: int, **data: str) -> Answer:
    return Answer(body=make_object("dovetail-job-numbers", version=version, namespace="home", data=data))


def test_numbers_follow_age_and_count_in_each_namespace() -> None:
    jobs = [submitted("young", seconds=2), submitted("old", seconds=1), submitted("other", namespace="lab")]
    numbers, last = allot(jobs, last={"team": 41})
    assert numbers == {"uid-old": 42, "uid-young": 43, "uid-other": 1}
    assert last == {"team": 43, "lab": 1}


def test_numbers_of_one_second_follow_the_order_of_submission() -> None:
    jobs = [make_job(name, meta={"resourceVersion": version}) for name, version in (("b-10", "99"), ("b-2", "100"))]
    jobs.append(make_job("a", meta={"resourceVersion": "101"}))
    assert allot(reversed(jobs), last={})[0] == {"uid-b-10": 1, "uid-b-2": 2, "uid-a": 3}


async def test_a_lost_counter_goes_on_above_what_jobs_show(api: Api, client: Client) -> None:
    shown = [make_job("a", status={"number": 17}), make_job("b"), make_job("c", status={"number": 3})]
    assert highest_shown(shown) == {"team": 17}
    api.answer(f"GET {ONE}", configmap(5, lab="3"))
    api.answer(f"PATCH {ONE}", configmap(6, lab="3", team="18"))
    assert await Numbers(client, namespace="home").give([submitted("d")], shown=shown) == {"uid-d": 18}
    (seen,) = api.of(f"PATCH {ONE}")
    assert seen.body["data"] == {"lab": "3", "team": "18"}


@pytest.mark.parametrize("text", ["many", "", "-1", "9" * 5000, "4" * 12, "²"])
def test_a_counter_that_is_no_number_is_passed_over(text: str) -> None:
    assert read_counters({"team": text}) == {}


async def test_what_was_given_is_not_given_again_where_somebody_deletes_or_lowers_the_counter(
    api: Api, client: Client
) -> None:
    api.answer(f"GET {ONE}", configmap(5, team="41"), refusal(404), configmap(2, team="1"))
    api.answer(f"PATCH {ONE}", configmap(6, team="42"), refusal(404), refusal(409), configmap(3, team="44"))
    api.answer(f"POST {PATH}", configmap(1, team="43"))
    numbers = Numbers(client, namespace="home")
    for name, number in (("a", 42), ("b", 43), ("c", 44)):
        assert await numbers.give([submitted(name)], shown=[]) == {f"uid-{name}": number}


async def test_the_counter_is_raised_with_one_write_before_numbers_are_given(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", configmap(5, team="41"))
    api.answer(f"PATCH {ONE}", configmap(6, team="43"), configmap(7, team="44"))
    numbers = Numbers(client, namespace="home")
    assert await numbers.give([submitted("a"), submitted("b", seconds=1)], shown=[]) == {"uid-a": 42, "uid-b": 43}
    assert await numbers.give([submitted("c")], shown=[]) == {"uid-c": 44}
    first, second = (seen.body for seen in api.of(f"PATCH {ONE}"))
    assert first == {"metadata": {"resourceVersion": "5"}, "data": {"team": "43"}}
    assert second == {"metadata": {"resourceVersion": "6"}, "data": {"team": "44"}}


async def test_the_first_number_makes_the_configmap(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", refusal(404))
    api.answer(f"POST {PATH}", configmap(1, team="1"))
    assert await Numbers(client, namespace="home").give([submitted("a")], shown=[]) == {"uid-a": 1}


async def test_a_counter_that_somebody_else_raised_is_read_again(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", configmap(5, team="41"), configmap(6, team="50"))
    api.answer(f"PATCH {ONE}", refusal(409), configmap(7, team="51"))
    assert await Numbers(client, namespace="home").give([submitted("a")], shown=[]) == {"uid-a": 51}


async def test_without_a_durable_counter_there_is_no_number(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", configmap(5, team="41"))
    api.answer(f"PATCH {ONE}", refusal(500))
    with pytest.raises(ServerFault):
        await Numbers(client, namespace="home").give([submitted("a")], shown=[])


async def test_it_does_not_fight_for_ever(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", *[configmap(5)] * 5)
    api.answer(f"PATCH {ONE}", *[refusal(409)] * 5)
    with pytest.raises(RuntimeError, match="home/dovetail-job-numbers"):
        await Numbers(client, namespace="home").give([submitted("a")], shown=[])


class Shared:
    """The one ConfigMap of an API server, for several operators and a person who edits it."""

    def __init__(self) -> None:
        self.configmap: ConfigMap | None = None
        self.versions = count(1)
        self.writes = 0
        self.now = 0.0

    async def get(self, *_: Any, **__: Any) -> ConfigMap:
        if self.configmap is None:
            raise NotFound(Status(code=404))
        return self.configmap

    async def create(self, *_: Any, body: ConfigMap, **__: Any) -> ConfigMap:
        if self.configmap is not None:
            raise AlreadyExists(Status(code=409))
        return self.store(body.data)

    async def patch(self, *_: Any, patch: dict[str, Any], **__: Any) -> ConfigMap:
        if self.configmap is None:
            raise NotFound(Status(code=404))
        if patch["metadata"]["resourceVersion"] != self.configmap.metadata.resource_version:
            raise Conflict(Status(code=409))
        data = self.configmap.data | patch["data"]
        return self.store({name: last for name, last in data.items() if last is not None})

    def store(self, data: Mapping[str, str]) -> ConfigMap:
        self.writes += 1
        # Each key is a managed field too.
        assert sum(2 * len(name) + len(last) + 20 for name, last in data.items()) < 2**20, "Request entity too large"
        metadata = ObjectMeta(name="dovetail-job-numbers", namespace="home", resource_version=str(next(self.versions)))
        self.configmap = ConfigMap(metadata=metadata, data=dict(data))
        return self.configmap

    def operator(self) -> Numbers:
        return Numbers(cast("Client", self), namespace="home", clock=lambda: self.now)


@pytest.mark.parametrize("together", [1, 5, 40])
async def test_while_many_jobs_come_their_numbers_cost_few_writes_and_have_no_gaps(together: int) -> None:
    shared = Shared()
    numbers, given = shared.operator(), list[int]()
    for cycle in range(320 // together):
        shared.now = cycle * together / 16
        jobs = [submitted(f"j{cycle}-{each}", seconds=each) for each in range(together)]
        given += sorted((await numbers.give(jobs, shown=[])).values())
    assert given == list(range(1, 321))
    # One for each cycle of the first second, and one for 33 numbers after that.
    assert shared.writes <= 8 + 320 / 33


async def test_jobs_that_come_one_by_one_leave_no_gap_when_the_operator_ends() -> None:
    shared, given = Shared(), []
    for operator in range(3):
        numbers = shared.operator()
        for at_once in range(20):
            shared.now += 0.15
            given += (await numbers.give([submitted(f"j{operator}-{at_once}")], shown=[])).values()
    assert given == list(range(1, 61))


async def test_the_next_operator_goes_on_after_what_was_reserved() -> None:
    shared = Shared()
    numbers = shared.operator()
    await numbers.give([submitted("first")], shown=[])
    jobs = [submitted(f"j{each}", seconds=each) for each in range(10)]
    assert set((await numbers.give(jobs, shown=[])).values()) == set(range(2, 12))
    assert await shared.operator().give([submitted("next")], shown=[]) == {"uid-next": 44}


async def test_30000_namespaces_get_numbers_and_none_twice_and_one_of_many_jobs_has_no_gap() -> None:
    shared, given = Shared(), dict[str, int]()
    first, second = shared.operator(), shared.operator()
    for each in range(100):
        assert await first.give([submitted(f"j{each}")], shown=[]) == {f"uid-j{each}": each + 1}
        shared.now += 1
    names = [f"{each:063}" for each in range(30_000)]
    for operator, some in ((first, names), (second, names[::10]), (first, names[:3000])):
        for at_first in range(0, len(some), 1000):
            jobs = {f"uid-j{name}": name for name in some[at_first : at_first + 1000]}
            numbers = await operator.give([submitted(f"j{name}", namespace=name) for name in jobs.values()], shown=[])
            for uid, name in jobs.items():
                assert numbers[uid] > given.get(name, 0)
                given[name] = numbers[uid]
    assert shared.configmap is not None
    assert len(shared.configmap.data) <= 4097
    # At most one more for each 2,048 namespaces that leave the ConfigMap.
    assert max(given.values()) < 3 + 36_000 / 2048
    assert await shared.operator().give([submitted("next")], shown=[]) == {"uid-next": 101}


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("give"), st.integers(0, 2), st.lists(st.sampled_from(["team", "lab"]), min_size=1, max_size=12)
        ),
        st.tuples(st.just("restart"), st.integers(0, 2)),
        st.tuples(st.just("pause"), st.floats(0, 2)),
        st.tuples(st.just("edit"), st.sampled_from(["team", "lab"]), st.integers(0, 90)),
    ),
    max_size=40,
)


@given(STEPS)
async def test_no_number_is_given_twice_by_whichever_operators_and_each_is_stored_before(steps: list[Any]) -> None:
    shared = Shared()
    operators = [shared.operator() for _ in range(3)]
    known: dict[str, set[int]] = {"team": set(), "lab": set()}
    for at_step, step in enumerate(steps):
        match step:
            case "give", who, namespaces:
                jobs = [
                    submitted(f"j{at_step}-{each}", namespace=name, seconds=each)
                    for each, name in enumerate(namespaces)
                ]
                numbers = await operators[who].give(jobs, shown=[])
                assert shared.configmap is not None
                for job in jobs:
                    number, name = numbers[job.metadata.uid], job.metadata.namespace
                    assert number not in known[name]
                    assert number <= int(shared.configmap.data[name])
                    known[name].add(number)
            case "restart", who:
                operators[who] = shared.operator()
            case "pause", seconds:
                shared.now += seconds
            case "edit", name, more:
                # A person raises a number.
                data = {} if shared.configmap is None else shared.configmap.data
                shared.store({**data, name: str(int(data.get(name, "0")) + more)})
