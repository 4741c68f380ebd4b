"""Gangs by levels of the network, on nodes with labels."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from dovetail.api.resources import NODES
from dovetail.jobs.batch_job import worker_of
from dovetail.kube.client import Client
from tests.cluster.jobs import Jobs
from tests.cluster.test_lifecycle import EVICTED

pytestmark = pytest.mark.cluster

RACK = "dovetail.dev/rack"
RACKS = {"v100-0": "r0", "v100-1": "r1"}


@pytest.fixture
async def racks(client: Client) -> AsyncIterator[None]:
    """Each node with V100s is a rack."""
    for node, rack in RACKS.items():
        await _label(client, node, value=rack)
    yield
    for node in RACKS:
        await _label(client, node, value=None)


async def _label(client: Client, node: str, *, value: str | None) -> None:
    await client.patch(NODES, name=node, patch={"metadata": {"labels": {RACK: value}}}, as_type=dict)


@pytest.mark.usefixtures("racks")
async def test_a_gang_waits_for_one_rack_and_starts_there(jobs: Jobs) -> None:
    for name in ("first", "second"):
        await jobs.submit(name, gpu="2(V100)", policy="Spread")
        await jobs.phase("Running", name)
    held = {name: (await jobs.phase("Running", name)).nodes for name in ("first", "second")}
    assert sorted(held.values()) == [["v100-0"], ["v100-1"]]
    await jobs.submit("gang", gpu="1(V100)", workers=4, topology={"required": "rack"})
    told = await jobs.until("gang", lambda status: status.reason == "Fragmentation")
    assert told.message.startswith("Need 4 GPUs in one rack, r")
    assert told.message.endswith(" has 2: 4 GPUs are free, but not in one rack")
    await jobs.delete("second")
    status = await jobs.until("gang", lambda status: status.workers_ready == 4)
    assert status.nodes == held["second"]


@pytest.mark.usefixtures("racks")
async def test_a_gang_larger_than_a_rack_is_told_so_and_a_preferred_rack_is_no_condition(jobs: Jobs) -> None:
    await jobs.submit("never", gpu="1(V100)", workers=5, topology={"required": "rack"})
    told = await jobs.until("never", lambda status: status.reason == "ExceedsCapacity")
    assert told.message == "Need 5 GPUs in one rack, at most 4 could ever run in r0"
    await jobs.submit("wish", gpu="1(V100)", workers=5, topology={"preferred": "rack"})
    status = await jobs.until("wish", lambda status: status.workers_ready == 5)
    assert sorted(status.nodes) == ["v100-0", "v100-1"]


async def test_a_worker_whose_node_fails_is_replaced_in_its_rack_while_the_others_go_on(
    client: Client, jobs: Jobs
) -> None:
    racks = {"v100-0": "r0", "v100-1": "r0", "t4-0": "r0", "t4-1": "r1", "a100-0": "r1"}
    for node, rack in racks.items():
        await _label(client, node, value=rack)
    await jobs.submit("gang", gpu=2, workers=3, topology={"required": "rack"}, restart="Worker")
    await jobs.until("gang", lambda status: status.workers_ready == 3)
    pods = {worker_of(pod): pod for pod in await jobs.pods("gang")}
    on = Counter(pod.spec.node_name for pod in pods.values())
    lost = next(worker for worker, pod in pods.items() if on[pod.spec.node_name] == 1)
    node = pods[lost].spec.node_name
    await client.patch(NODES, name=node, patch={"spec": {"unschedulable": True}}, as_type=dict)
    try:
        await jobs.end_pod(pods[lost], exit_code=143, conditions=[EVICTED])
        told = await jobs.until("gang", lambda s: s.placement is not None and s.placement.replaced == 1)
        assert told.phase == "Running"
        status = await jobs.until("gang", lambda status: status.workers_ready == 3)
        assert (status.attempt, status.retries) == (1, 0)
        again = {worker_of(pod): pod for pod in await jobs.pods("gang") if pod.status.phase == "Running"}
        assert {w: pod.metadata.uid for w, pod in again.items() if w != lost} == {
            w: pod.metadata.uid for w, pod in pods.items() if w != lost
        }, "the other workers go on"
        assert again[lost].spec.node_name != node
        assert racks[again[lost].spec.node_name] == racks[node]
        moved = f"worker {lost} from {node} to {again[lost].spec.node_name}"
        events = await jobs.announced("WorkerReplaced", "gang")
        assert moved in next(event.message for event in events if event.reason == "WorkerReplaced")
    finally:
        await client.patch(NODES, name=node, patch={"spec": {"unschedulable": False}}, as_type=dict)
        for each in racks:
            await _label(client, each, value=None)


async def test_a_level_that_is_not_configured_is_refused_with_those_that_are(jobs: Jobs) -> None:
    await jobs.submit("typo", gpu="1(V100)", workers=2, topology={"required": "rak"})
    told = await jobs.until("typo", lambda status: status.reason == "Invalid")
    assert told.message == (
        'topology.required "rak": no such level is configured (topology_levels): the levels are zone, block, rack, '
        'nvlink, host; did you mean "rack"?; write for example required: zone'
    )
