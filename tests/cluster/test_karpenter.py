"""A pool that grows and shrinks with the real Karpenter; a sandbox of its own, built from its Go module."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dovetail.api.builtin import Node, Pod
from dovetail.api.resources import NODES, PODS
from dovetail.kube.client import Client
from dovetail.names import LABEL_PLACEHOLDER
from dovetail_sandbox import bringup, cluster, progress
from dovetail_sandbox.cluster import Cluster
from tests.cluster import karpenter
from tests.cluster.conftest import NODES as NODES_FILE
from tests.cluster.conftest import OVERRIDES
from tests.cluster.jobs import Jobs

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

POOL: Final = "h100"
GPUS: Final = 8
MODEL: Final = "H100-SXM5-80GB"
MEMORY_MIB: Final = 81920
# Karpenter needs some seconds for a batch, a claim and its node; a busy machine needs more.
PATIENCE_SECONDS: Final = 180
GROWING: Final = [
    f"config.growing.pools.{POOL}.{key}={value}"
    for key, value in {
        "gpus": GPUS,
        "model": MODEL,
        "cpu": "90",
        "memory": "900Gi",
        "max_nodes": 2,
        r"labels.karpenter\.sh/nodepool": POOL,
    }.items()
]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Cluster]:
    """A sandbox whose pool of H100 grows."""
    if name := os.environ.get("DOVETAIL_TEST_SANDBOX"):
        yield cluster.get(name)
        return
    own = cluster.get(f"test-{os.getpid()}-{uuid.uuid4().hex[:4]}")
    try:
        overrides = [*OVERRIDES, *GROWING]
        yield bringup.up(own.name, report=progress.reporter(), nodes_file=NODES_FILE, overrides=overrides)
    finally:
        own.down()


@pytest.fixture
async def pool(client: Client, sandbox: Cluster, tmp_path: Path) -> AsyncIterator[Path]:
    """Karpenter runs, with a NodePool of at most two nodes."""
    await karpenter.install(client)
    instance = karpenter.instance_type("h100-8", cpu="96", memory="1000Gi", gpus=GPUS, gpu_memory_mib=MEMORY_MIB)
    body = karpenter.node_pool(POOL, instance="h100-8", model=MODEL, gpus=GPUS, gpu_memory_mib=MEMORY_MIB, limit=2)
    await client.create(karpenter.NODEPOOLS, body=body, as_type=dict[str, Any])
    async with karpenter.running(sandbox, folder=tmp_path, instance_types=[instance]) as log:
        yield log
        await client.delete(karpenter.NODEPOOLS, name=POOL)


async def nodes_of_pool(client: Client) -> list[Node]:
    nodes, _ = await client.list(NODES, as_type=Node, label_selector=f"{karpenter.POOL_LABEL}={POOL}")
    return nodes


async def placeholders(jobs: Jobs) -> list[Pod]:
    found, _ = await jobs.client.list(PODS, as_type=Pod, namespace=jobs.namespace, label_selector=LABEL_PLACEHOLDER)
    return found


async def until(holds: Callable[[], Awaitable[bool]], *, log: Path) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await holds():  # noqa: ASYNC110 - other programs change it
                await asyncio.sleep(0.2)
    except TimeoutError:
        said = await asyncio.to_thread(log.read_text)
        raise AssertionError(f"Karpenter said: {said[-8000:]}") from None


async def test_a_pool_grows_for_a_gang_and_shrinks_after_it(client: Client, jobs: Jobs, pool: Path) -> None:
    await jobs.submit(gpu=f"{GPUS}({MODEL})", workers=2)
    status = await jobs.phase("Queued", reason="Provisioning")
    assert status.message.startswith(f"2 nodes of pool {POOL} requested at ")

    async def runs() -> bool:
        return (await jobs.until("x", lambda _: True)).workers_ready == 2

    await until(runs, log=pool)
    status = await jobs.until("x", lambda _: True)
    assert len({device.node for device in status.devices}) == 2
    assert len(await nodes_of_pool(client)) == 2

    async def no_placeholders() -> bool:
        return not await placeholders(jobs)

    await until(no_placeholders, log=pool)
    await jobs.delete()

    async def shrunk() -> bool:
        return not await nodes_of_pool(client)

    await until(shrunk, log=pool)
