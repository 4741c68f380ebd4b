"""The agent as a process on a node with NVIDIA's cards, which are our C library's, seen through the API server."""

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUNODES
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.agent.nvml_stub import Scenario, built, card_uuid
from tests.cluster.test_agent import PATIENCE_SECONDS, Scene, advertising, reported

pytestmark = pytest.mark.cluster

CARDS = Scenario(
    model="Tesla V100-SXM2-32GB",
    figures={0: {"total": 32768, "used": 5000, "util": 50}, 1: {"total": 32768, "rows": 1, "row_failure": 1}},
    peers={0: [1], 1: [0]},
)


@pytest.fixture
async def scene(sandbox: Cluster, client: Client) -> AsyncIterator[Scene]:
    """A node without declared devices, and nobody who serves it."""
    scene = Scene(client, name=f"nvml-{uuid.uuid4().hex[:8]}")
    await asyncio.to_thread(sandbox.stop, "agent")
    await scene.create()
    await scene.annotate(simulated_devices=None)
    yield scene
    await scene.remove()
    await asyncio.to_thread(sandbox.start, "agent")
    await scene.gone()


@asynccontextmanager
async def an_agent(sandbox: Cluster, scene: Scene, *, folder: Path, cards: Scenario) -> AsyncIterator[None]:
    """The agent with its default provider; it ends well when it is told to."""
    played = folder / "scenario"
    played.write_text(cards.text(), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dovetail_agent.main", "--metrics-port=0", f"--node={scene.name}",
        env=os.environ
        | {
            "KUBECONFIG": str(sandbox.kubeconfig),
            "LD_LIBRARY_PATH": str(built()),
            "NVML_STUB_SCENARIO": str(played),
        },
    )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        code = await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)
    assert code == 0


@pytest.fixture
async def agent(sandbox: Cluster, scene: Scene, tmp_path: Path) -> AsyncIterator[None]:
    async with an_agent(sandbox, scene, folder=tmp_path, cards=CARDS):
        yield


async def test_what_nvml_says_of_the_cards_is_published_and_the_healthy_one_is_advertised(
    agent: None, scene: Scene
) -> None:
    gpunode = await scene.gpunode(reported)
    assert gpunode is not None
    first, second = gpunode.status.devices
    assert (gpunode.status.provider, first.uuid, first.model) == ("nvml", card_uuid(0), "Tesla V100-SXM2-32GB")
    assert (first.used_mib, first.foreign_mib, first.utilization) == (5000, 5000, 0.5)
    assert (first.links.nvlink, first.compute_capability, first.pci_bus_id) == ([1], "9.0", "0000:10:00.0")
    assert (second.health, second.health_reason) == ("Unhealthy", "RowRemapFailed")
    await scene.node(advertising(1000))


async def test_a_card_that_fell_off_its_bus_stays_bad_over_a_restart_until_a_person_says_that_it_is_mended(
    sandbox: Cluster, scene: Scene, client: Client, tmp_path: Path
) -> None:
    async with an_agent(sandbox, scene, folder=tmp_path, cards=Scenario(xids=[(1, 79)])):
        before = await scene.gpunode(lambda node: healths(node) == ["", "Xid79FellOffTheBus"])
    assert before is not None
    async with an_agent(sandbox, scene, folder=tmp_path, cards=Scenario(figures={0: {"used": 40_000}})):
        after = await scene.gpunode(lambda node: node is not None and node.status.devices[0].used_mib == 40_000)
        assert after is not None
        assert healths(after) == ["", "Xid79FellOffTheBus"]
        assert after.status.devices[1].faults == before.status.devices[1].faults
        mended = {"spec": {"mended": {card_uuid(1): "2999-01-01T00:00:00Z"}}}
        await client.patch(GPUNODES, name=scene.name, patch=mended, as_type=GPUNode)
        await scene.gpunode(lambda node: healths(node) == ["", ""])


def healths(gpunode: GPUNode | None) -> list[str]:
    return [device.health_reason for device in gpunode.status.devices] if gpunode else []
