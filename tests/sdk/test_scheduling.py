"""The parser, the memory guard and the scheduler under the names that scripts use."""

import asyncio
from typing import Any

import pytest

from dovetail.sdk import Client, errors
from dovetail.sdk.scheduling.memory_guard import GPUMemoryGuard
from dovetail.sdk.scheduling.parser import GPUResourceParser
from dovetail.sdk.scheduling.scheduler import GPUScheduler, SchedulingPolicy, SchedulingRequest
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face
from tests.sdk.conftest import reservations

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
    "a V100 has 32 GB, of which 0.8 count": (GPUMemoryGuard(), "1(V100)", 16.0, True, 25.6),
    "more than 0.8 of them does not fit": (GPUMemoryGuard(), "1(V100)", 26.0, False, 25.6),
    "aggressive lets 0.95 count": (GPUMemoryGuard("aggressive"), "1(V100)", 30.0, True, 30.4),
    "a fraction of one's own": (GPUMemoryGuard(0.5), "1(V100)", 16.1, False, 16.0),
    "half a GPU has half the memory": (GPUMemoryGuard(), "0.5(V100)", 13.0, False, 12.8),
    "memory in the text is what there is": (GPUMemoryGuard(), "8G,0.5", 8.0, True, 8.0),
    "the smallest of several models decides": (GPUMemoryGuard(), "1(A100|T4)", 16.0, False, 12.8),
    "a size in the text counts": (GPUMemoryGuard(), "1(>=80G)", 60.0, True, 64.0),
    "a model that only the configuration knows": (GPUMemoryGuard(specs={"X1": 100}), "1(X1)", 70.0, True, 80.0),
    "no model leaves it open": (GPUMemoryGuard(), "1", 1000.0, True, None),
    "dynamic knows a model's need": (GPUMemoryGuard("dynamic", parameters=10**9), "1(T4)", None, False, 15.2),
    "dynamic knows what a job used": (GPUMemoryGuard("dynamic", used_gb=10), "1(T4)", None, True, 15.2),
    "dynamic without either is conservative": (GPUMemoryGuard("dynamic"), "1(T4)", 13.0, False, 12.8),
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
        (lambda: GPUMemoryGuard().validate_memory_requirement("V100", 1), "expected a number"),
    ],
)
def test_what_cannot_be_compared_is_refused(ask: Any, message: str) -> None:
    with pytest.raises(errors.InvalidError) as caught:
        ask()
    assert message in str(caught.value)


@pytest.fixture
def client(gateway: Face) -> Any:
    with Client(gateway.url, token="red-token") as made:
        yield made


def wanted(pod: str, **fields: Any) -> SchedulingRequest:
    return SchedulingRequest(**{"pod_name": pod, "namespace": "red", "gpu_requirement": "2(V100)", **fields})


@pytest.mark.usefixtures("scheduling")
async def test_a_pods_gpus_are_a_reservation_of_its_name(api: GatewayApiServer, client: Client) -> None:
    scheduler = GPUScheduler(client)
    scheduler.scheduling_policy = SchedulingPolicy.PACK
    assert await asyncio.to_thread(scheduler.schedule_pod, wanted("p", memory_requirement=16.0, priority=30)) == "b"
    spec = api.objects["gpujobs"]["red/p"]["spec"]
    assert (spec["gpu"], spec["policy"], spec["priority"]) == ("2(V100,>=20G)", "Pack", 30)
    assert await asyncio.to_thread(scheduler.schedule_pod, wanted("p", memory_requirement=16.0, priority=30)) == "b"
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


async def test_a_job_is_not_released_as_a_pods_reservation(client: Client) -> None:
    with pytest.raises(errors.InvalidError, match="red/train is a job and no reservation of a pod"):
        await asyncio.to_thread(GPUScheduler(client).release, "train", namespace="red")
