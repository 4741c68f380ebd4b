"""The agent as a process: killed, away for a while, or serving one node alone."""

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dovetail import names
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.cluster.killing import kill
from tests.cluster.test_agent import PATIENCE_SECONDS, Scene, advertising, ready, reported

pytestmark = pytest.mark.cluster


@pytest.fixture
async def scenes(client: Client) -> AsyncIterator[tuple[Scene, Scene]]:
    """Two nodes that are not created yet."""
    pair = tuple(Scene(client, name=f"agent-{uuid.uuid4().hex[:8]}") for _ in range(2))
    yield pair[0], pair[1]
    for scene in pair:
        await scene.gone()


@pytest.fixture
async def without_agent(sandbox: Cluster) -> AsyncIterator[None]:
    """The sandbox without its agent."""
    await asyncio.to_thread(sandbox.stop, "agent")
    yield
    await asyncio.to_thread(sandbox.start, "agent")


@asynccontextmanager
async def agent(sandbox: Cluster, *, node: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dovetail_agent.main", "--provider=simulated", "--metrics-port=0", f"--node={node}",
        env=os.environ | {"KUBECONFIG": str(sandbox.kubeconfig)},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        code = await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)
    assert code == 0


async def test_a_killed_agent_catches_up_with_what_happened(sandbox: Cluster, scenes: tuple[Scene, Scene]) -> None:
    known, new = scenes
    await known.create()
    await known.node(advertising(2000))
    await kill(sandbox, "agent")
    await new.create()
    await known.annotate(simulated_devices="{")
    await new.node(advertising(2000))
    await known.gpunode(ready("False"))
    await known.node(advertising(0))


async def test_a_restart_alone_writes_nothing(sandbox: Cluster, scenes: tuple[Scene, Scene]) -> None:
    marker, scene = scenes
    await scene.create()
    await scene.node(advertising(2000))
    before = await scene.gpunode(reported)
    await asyncio.to_thread(sandbox.restart, "agent")
    # Whatever the agent had to write at its start was written before it came to a node that is made now.
    await marker.create()
    await marker.node(advertising(2000))
    after = await scene.gpunode(reported)
    assert before is not None
    assert after is not None
    assert after.metadata.resource_version == before.metadata.resource_version


async def test_an_agent_for_one_node_serves_that_node_alone(
    sandbox: Cluster, scenes: tuple[Scene, Scene], without_agent: None
) -> None:
    own, other = scenes
    await other.create()
    await own.create()
    async with agent(sandbox, node=own.name):
        await own.gpunode(reported)
        await own.node(advertising(2000))
    await other.gpunode(lambda gpunode: gpunode is None)
    await other.node(lambda node: node is not None and names.GPU_MILLI not in node.status.capacity)
