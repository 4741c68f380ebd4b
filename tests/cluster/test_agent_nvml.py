"""The agent as a process on a node with NVIDIA's cards, which are our C library's, seen through the API server."""

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.agent.nvml_stub import Scenario, built, card_uuid
from tests.cluster.test_agent import Scene, advertising, reported

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


@pytest.fixture
async def agent(sandbox: Cluster, scene: Scene, tmp_path: Path) -> AsyncIterator[None]:
    """The agent with its default provider; it ends well when it is told to."""
    played = tmp_path / "scenario"
    played.write_text(CARDS.text(), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dovetail_agent.main", "--metrics-port=0", f"--node={scene.name}",
        env=os.environ
        | {
            "KUBECONFIG": str(sandbox.kubeconfig),
            "LD_LIBRARY_PATH": str(built()),
            "NVML_STUB_SCENARIO": str(played),
        },
    )  # fmt: skip
    yield
    process.terminate()
    assert await process.wait() == 0


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
