import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.kube.client import Client
from dovetail.kube.errors import ServerFault
from dovetail_operator.writes.job_numbers import Numbers, allot, read_counters
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


def test_a_lost_counter_goes_on_above_what_jobs_show() -> None:
    shown = [make_job("a", status={"number": 17}), make_job("b")]
    assert read_counters({"lab": "3"}, shown=shown) == {"team": 17, "lab": 3}


@pytest.mark.parametrize("text", ["many", "", "-1", "9" * 5000, "4" * 12, "²"])
def test_a_counter_that_is_no_number_is_passed_over(text: str) -> None:
    assert read_counters({"team": text}, shown=[]) == {}


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
