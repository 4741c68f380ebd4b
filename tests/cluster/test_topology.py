"""Gangs by levels of the network, on nodes with labels."""

from collections.abc import AsyncIterator

import pytest

from dovetail.api.resources import NODES
from dovetail.kube.client import Client
from tests.cluster.jobs import Jobs

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


async def test_a_level_that_is_not_configured_is_refused_with_those_that_are(jobs: Jobs) -> None:
    await jobs.submit("typo", gpu="1(V100)", workers=2, topology={"required": "rak"})
    told = await jobs.until("typo", lambda status: status.reason == "Invalid")
    assert told.message == (
        'topology.required "rak": no such level is configured (topology_levels): the levels are zone, block, rack, '
        'nvlink, host; did you mean "rack"?; write for example required: zone'
    )
