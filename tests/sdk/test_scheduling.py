"""The parser, the memory guard and the scheduler under the names that scripts use."""

import asyncio
import math
import time
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import ApiClient, Configuration, CoreV1Api

from dovetail.sdk import Client, errors
from dovetail.sdk.scheduling import reservations as reservations_module
from dovetail.sdk.scheduling.memory_guard import GPUMemoryGuard
from dovetail.sdk.scheduling.parser import GPUResourceParser
from dovetail.sdk.scheduling.reservations import Outcome
from dovetail.sdk.scheduling.scheduler import GPUScheduler, SchedulingPolicy, SchedulingRequest
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face
from tests.sdk.conftest import reservations, until

TEXTS = {
    "8G,0.5": (1, 0.5, 8.0, None, None),
    "2(V100)": (2, 1.0, None, None, "V100"),
    "2x8G,0.5(nvidia,T4)": (2, 0.5, 8.0, "nvidia", "T4"),
    "4(A100|H100)": (4, 1.0, None, None, "A100|H100"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_read_as_numbers(text: str) -> None:
    found = GPUResourceParser().parse_gpu_resource(text)
    assert (found.count, found.compute_ratio, found.memory_gb, found.vendor, found.model) == TEXTS[text]


def test_a_text_that_cannot_be_read_names_the_place() -> None:
    with pytest.raises(errors.InvalidError, match=r'gpu "2\(V100": a bracket is not closed'):
        GPUResourceParser().parse_gpu_resource("2(V100")


CHECKS: dict[str, tuple[GPUMemoryGuard, str, float | None, bool, float | None]] = {
    "a whole V100 has all of its 32 GB": (GPUMemoryGuard(), "1(V100)", 32.0, True, 32.0),
    "and no more": (GPUMemoryGuard(), "1(V100)", 32.1, False, 32.0),
    "aggressive lets 0.95 of a share count": (GPUMemoryGuard("aggressive"), "0.5(V100)", 15.0, True, 15.2),
    "a fraction of one's own": (GPUMemoryGuard(0.5), "0.5(V100)", 8.1, False, 8.0),
    "a Kubernetes client and a parser are no strategy": (
        GPUMemoryGuard(CoreV1Api(ApiClient()), GPUResourceParser()),
        "0.5(V100)",
        13.0,
        False,
        12.8,
    ),
    "half a GPU has half the memory": (GPUMemoryGuard(), "0.5(V100)", 13.0, False, 12.8),
    "memory in the text is what there is": (GPUMemoryGuard(), "8G,0.5", 8.0, True, 8.0),
    "the smallest of several models decides": (GPUMemoryGuard(), "1(A100|T4)", 16.1, False, 16.0),
    "a size in the text counts": (GPUMemoryGuard(), "1(>=80G)", 60.0, True, 80.0),
    "a model that only the configuration knows": (GPUMemoryGuard(specs={"X1": 100}), "1(X1)", 70.0, True, 100.0),
    "no model leaves it open": (GPUMemoryGuard(), "1", 1000.0, True, None),
    "a percentage of the memory is taken whatever the strategy": (
        GPUMemoryGuard("aggressive"),
        "50%,0.2(V100)",
        16.1,
        False,
        16.0,
    ),
    "a size in the text counts where it is above the model's": (GPUMemoryGuard(), "1(V100,>=60G)", 61.0, False, 60.0),
    "one unknown model of several leaves it open": (GPUMemoryGuard(), "1(V100|X1)", 1000.0, True, None),
    "no GB are always enough": (GPUMemoryGuard(), "1(V100)", 0.0, True, 32.0),
    "what dynamic knows counts a tenth more": (GPUMemoryGuard("dynamic", used_gb=15), "1(T4)", None, False, 16.0),
    "dynamic that knows is as generous as aggressive": (
        GPUMemoryGuard("dynamic", used_gb=10),
        "0.5(V100)",
        None,
        True,
        15.2,
    ),
    "what is passed comes before what dynamic knows": (GPUMemoryGuard("dynamic", used_gb=99), "1(T4)", 1.0, True, 16.0),
    "dynamic knows a model's need": (GPUMemoryGuard("dynamic", parameters=10**9), "1(T4)", None, False, 16.0),
    "dynamic knows what a job used": (GPUMemoryGuard("dynamic", used_gb=10), "1(T4)", None, True, 16.0),
    "dynamic without either is conservative": (GPUMemoryGuard("dynamic"), "0.5(T4)", 6.5, False, 6.4),
}


@pytest.mark.parametrize("case", CHECKS)
def test_memory_is_compared_with_what_the_gpus_may_use(case: str) -> None:
    guard, text, memory_gb, fits, available = CHECKS[case]
    found = guard.validate_memory_requirement(text, memory_gb)
    assert (bool(found), found.available_gb) == (fits, available)
    assert text in found.message


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: GPUMemoryGuard("bold"), "allowed are Conservative, Aggressive, Dynamic or a fraction"),
        (lambda: GPUMemoryGuard().validate_memory_requirement("1(V100)", -1), "memory_gb -1: a number of GB"),
        (lambda: GPUMemoryGuard().validate_memory_requirement("1(V100)"), "memory_gb None: a number of GB"),
        (lambda: GPUMemoryGuard().validate_memory_requirement("1", math.inf), "memory_gb inf: a number of GB"),
        (lambda: GPUMemoryGuard().validate_memory_requirement("V100", 1), "expected a number"),
    ],
)
def test_what_cannot_be_compared_is_refused(ask: Any, message: str) -> None:
    with pytest.raises(errors.InvalidError) as caught:
        ask()
    assert message in str(caught.value)
    assert caught.value.status == 422


def test_only_a_dynamic_guard_estimates_what_a_model_needs() -> None:
    estimates = [GPUMemoryGuard(strategy, parameters=7e9).estimate_gb for strategy in ("Dynamic", "Conservative", 0.5)]
    assert [each is not None for each in estimates] == [True, False, False]


def official(api: GatewayApiServer, *, token: str = "red-token") -> CoreV1Api:
    """The official client, as a script has it."""
    configuration = Configuration(host=api.connection.server)
    configuration.api_key["authorization"] = f"Bearer {token}"
    return CoreV1Api(ApiClient(configuration))


@pytest.fixture(params=["gateway", "api server"])
def client(request: pytest.FixtureRequest, api: GatewayApiServer, gateway: Face) -> Any:
    """What a scheduler may get: a client of the gateway, or the official one."""
    if request.param == "api server":
        yield official(api)
        return
    with Client(gateway.url, token="red-token") as made:
        yield made


def wanted(pod: str, **fields: Any) -> SchedulingRequest:
    return SchedulingRequest(**{"pod_name": pod, "namespace": "red", "gpu_requirement": "2(V100)", **fields})


@pytest.mark.usefixtures("scheduling")
async def test_a_pods_gpus_are_a_reservation_of_its_name(api: GatewayApiServer, client: Client) -> None:
    scheduler = GPUScheduler(client)
    scheduler.scheduling_policy = SchedulingPolicy.PACK
    assert await asyncio.to_thread(scheduler.schedule_pod, wanted("p", memory_requirement=16.0, priority=20)) == "b"
    spec = api.objects["gpujobs"]["red/p"]["spec"]
    assert (spec["gpu"], spec["policy"], spec["priority"]) == ("2(V100,>=16G)", "Pack", 30)
    assert await asyncio.to_thread(scheduler.schedule_pod, wanted("p", memory_requirement=16.0, priority=20)) == "b"
    assert reservations(api) == ["red/p"]
    assert await asyncio.to_thread(scheduler.release, "p", namespace="red") is True
    assert await asyncio.to_thread(scheduler.release, "p", namespace="red") is False


@pytest.mark.usefixtures("scheduling")
async def test_a_share_gets_the_memory_that_the_pod_needs(api: GatewayApiServer, client: Client) -> None:
    asked = wanted("p", gpu_requirement="0.5(V100)", memory_requirement=8)
    await asyncio.to_thread(GPUScheduler(client).schedule_pod, asked)
    assert api.objects["gpujobs"]["red/p"]["spec"]["gpu"] == "8G,0.5(V100)"


async def test_memory_that_cannot_fit_asks_nothing_of_the_cluster(api: GatewayApiServer, client: Client) -> None:
    asked = wanted("p", memory_requirement=64)
    assert await asyncio.to_thread(GPUScheduler(client).schedule_pod, asked) is None
    assert not [each for each in api.requests if each[1] == "create"]


async def test_without_room_there_is_no_node_and_nothing_stays(api: GatewayApiServer, client: Client) -> None:
    scheduler = GPUScheduler(client, wait_seconds=0)
    assert await asyncio.to_thread(scheduler.schedule_pod, wanted("p")) is None
    assert reservations(api) == []


async def test_pending_requests_get_nodes_by_priority_and_the_others_stay(
    api: GatewayApiServer, client: Client, scheduling: None
) -> None:
    scheduler = GPUScheduler(client, wait_seconds=20)
    for name, fields in (("low", {}), ("huge", {"memory_requirement": 64}), ("high", {"priority": 200})):
        scheduler.add_scheduling_request(wanted(name, **fields))
    assert [request.pod_name for request in scheduler.pending] == ["high", "low", "huge"]
    placed = await asyncio.to_thread(scheduler.process_pending_requests)
    assert [(request.pod_name, node) for request, node in placed] == [("high", "b"), ("low", "b")]
    assert [request.pod_name for request in scheduler.pending] == ["huge"]


async def test_an_error_keeps_the_requests(client: Client) -> None:
    scheduler = GPUScheduler(client)
    scheduler.add_scheduling_request(wanted("p", namespace="canaryns"))
    with pytest.raises(errors.ForbiddenError):
        await asyncio.to_thread(scheduler.process_pending_requests)
    assert [request.pod_name for request in scheduler.pending] == ["p"]


async def test_a_request_that_cannot_be_read_is_refused_when_it_is_added(client: Client) -> None:
    scheduler = GPUScheduler(client)
    with pytest.raises(errors.InvalidError, match="expected a number"):
        scheduler.add_scheduling_request(wanted("p", gpu_requirement="V100"))
    with pytest.raises(errors.InvalidError, match='name "P": at most 63'):
        scheduler.add_scheduling_request(wanted("P"))
    with pytest.raises(errors.InvalidError, match="priority 246: -10 to 245 are allowed"):
        scheduler.add_scheduling_request(wanted("p", priority=246))


async def test_a_job_is_not_released_as_a_pods_reservation(client: Client) -> None:
    with pytest.raises(errors.InvalidError, match="red/train is a job and no reservation of a pod"):
        await asyncio.to_thread(GPUScheduler(client).release, "train", namespace="red")


@pytest.mark.usefixtures("scheduling")
async def test_a_priority_counts_from_that_of_other_jobs(api: GatewayApiServer, client: Any) -> None:
    for name, priority in (("usual", 0), ("high", 2)):
        await asyncio.to_thread(GPUScheduler(client).schedule_pod, wanted(name, priority=priority))
    found = [api.objects["gpujobs"][f"red/{name}"]["spec"]["priority"] for name in ("usual", "high")]
    assert found == [10, 12]


@pytest.mark.usefixtures("scheduling")
async def test_all_of_a_whole_gpus_memory_is_granted(api: GatewayApiServer, client: Any) -> None:
    asked = wanted("p", gpu_requirement="1(V100)", memory_requirement=32.0)
    assert await asyncio.to_thread(GPUScheduler(client).schedule_pod, asked) == "b"
    assert api.objects["gpujobs"]["red/p"]["spec"]["gpu"] == "1(V100,>=32G)"


@pytest.mark.usefixtures("scheduling")
async def test_another_request_does_not_get_a_reservation_of_its_name(client: Any) -> None:
    scheduler = GPUScheduler(client)
    await asyncio.to_thread(scheduler.schedule_pod, wanted("p"))
    with pytest.raises(errors.ConflictError):
        await asyncio.to_thread(scheduler.schedule_pod, wanted("p", gpu_requirement="1"))


async def test_what_the_api_server_says_to_the_official_client_is_an_error_of_ours(api: GatewayApiServer) -> None:
    with pytest.raises(errors.UnauthorizedError):
        await asyncio.to_thread(GPUScheduler(official(api, token="wrong")).schedule_pod, wanted("p"))
    gone = CoreV1Api(ApiClient(Configuration(host="http://127.0.0.1:9")))
    gone.api_client.configuration.retries = False
    with pytest.raises(errors.UnreachableError, match=r"127\.0\.0\.1:9 does not answer"):
        await asyncio.to_thread(GPUScheduler(gone).schedule_pod, wanted("p"))


class Room:
    """Reservations in memory: for each pod, what its next tries come to: a node, no room, or an error."""

    def __init__(self, tries: dict[str, list[str | type[BaseException] | None]]) -> None:
        self.tries = {name: list(its) for name, its in tries.items()}
        self.held: dict[str, str] = {}
        self.asked: list[str] = []

    def reserve(self, _spec: Any, *, name: str, **_: Any) -> Outcome:
        self.asked.append(name)
        if name in self.held:
            return Outcome(node=self.held[name])
        next_one = self.tries[name].pop(0) if self.tries[name] else None
        if isinstance(next_one, type):
            raise next_one
        if next_one is not None:
            self.held[name] = next_one
        return Outcome(node=next_one)


@cache
def _no_client() -> Client:
    """A client that is made once, and asks nothing."""
    return Client("http://127.0.0.1:1")


@given(
    tries=st.dictionaries(
        st.sampled_from("abcde"),
        st.lists(st.sampled_from([None, "a", "b", KeyboardInterrupt, OSError]), max_size=3),
    ),
    priorities=st.lists(st.integers(-1, 1), min_size=5, max_size=5),
    added_later=st.sampled_from(["", "z"]),
)
def test_whatever_happens_in_a_round_each_request_is_placed_once_or_pending(
    tries: dict[str, Any], priorities: list[int], added_later: str
) -> None:
    scheduler, room = GPUScheduler(_no_client()), Room({**tries, "z": ["a"]})
    scheduler._reservations = room  # type: ignore[assignment]
    by_name = dict(zip("abcde", priorities, strict=True)) | {"z": 1}
    added = list(tries)
    for name in added:
        scheduler.add_scheduling_request(wanted(name, priority=by_name[name]))
    placed = list[tuple[str, str]]()
    for at in range(18):
        waiting = [request.pod_name for request in scheduler.pending]
        assert waiting == sorted(waiting, key=lambda name: (-by_name[name], added.index(name)))
        assert sorted([*waiting, *(name for name, _ in placed)]) == sorted(added), "none is lost and none is twice"
        room.asked.clear()
        try:
            placed += [(request.pod_name, node) for request, node in scheduler.process_pending_requests()]
        except (KeyboardInterrupt, OSError):
            assert room.asked == waiting[: len(room.asked)]
        else:
            assert room.asked == waiting
        if at == 1 and added_later:
            added.append(added_later)
            scheduler.add_scheduling_request(wanted(added_later, priority=1))
    assert dict(placed) == room.held, "what is held is known to the caller, with its node"


@pytest.mark.parametrize("phase", ["Failed", "Cancelled", "TimedOut"])
async def test_a_reservation_that_ends_elsewhere_is_no_place_and_does_not_stay(
    api: GatewayApiServer, client: Any, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses_after = list[None]()

    def pause(_seconds: float) -> None:
        if ending.done():
            pauses_after.append(None)
        assert len(pauses_after) < 3, "it goes on waiting for what has ended"
        time.sleep(0.01)

    monkeypatch.setattr(reservations_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))

    async def end() -> None:
        await until(lambda: reservations(api))
        job = api.objects["gpujobs"][reservations(api)[0]]
        job["status"] = {"phase": phase, "message": "gcancel by rita"}
        api.put("gpujobs", job)

    ending = asyncio.create_task(end())
    found = await asyncio.to_thread(
        GPUScheduler(client, wait_seconds=20)._reservations.reserve,
        {"gpu": "1", "reservation": {"durationSeconds": 600}}, name="p", namespace="red", key="k", wait_seconds=20,
    )  # fmt: skip
    await ending
    assert found == Outcome(node=None, why="gcancel by rita")
    assert reservations(api) == []


async def test_an_interruption_while_a_place_is_waited_for_leaves_no_reservation(
    api: GatewayApiServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dovetail.sdk.blocking.runtime.sleep", interrupted)
    monkeypatch.setattr(reservations_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupted))

    def schedule() -> None:
        with pytest.raises(KeyboardInterrupt):
            GPUScheduler(client, wait_seconds=20).schedule_pod(wanted("p"))

    await asyncio.to_thread(schedule)
    assert len([each for each in api.requests if each[1] == "create"]) == 1
    assert reservations(api) == []


@pytest.mark.parametrize("priority", [-11, 246, -10, 245])
def test_a_priority_stays_within_that_of_jobs(priority: int) -> None:
    scheduler = GPUScheduler(_no_client())
    if -10 <= priority <= 245:
        scheduler.add_scheduling_request(wanted("p", priority=priority))
        assert [each.priority for each in scheduler.pending] == [priority]
    else:
        with pytest.raises(errors.InvalidError, match=f"priority {priority}: -10 to 245"):
            scheduler.add_scheduling_request(wanted("p", priority=priority))


@pytest.mark.parametrize(
    ("text", "memory_gb", "asked"),
    [
        ("1(V100)", 16.2, "1(V100,>=17G)"),
        ("1(A100,>=40G)", 16, "1(A100,>=40G)"),
        ("0.5(V100)", 1.5, "1536M,0.5(V100)"),
        ("8G,0.5(V100)", 4, "8G,0.5(V100)"),
    ],
)
def test_the_memory_of_a_pod_is_that_of_its_request_or_what_it_says(text: str, memory_gb: float, asked: str) -> None:
    specs = list[Any]()

    def reserve(spec: Any, **_: Any) -> Outcome:
        specs.append(spec)
        return Outcome(node="b")

    scheduler = GPUScheduler(_no_client())
    scheduler._reservations = SimpleNamespace(reserve=reserve)  # type: ignore[assignment]
    assert scheduler.schedule_pod(wanted("p", gpu_requirement=text, memory_requirement=memory_gb)) == "b"
    (spec,) = specs
    assert (spec["gpu"], spec["reservation"]) == (asked, {"durationSeconds": 86400})
