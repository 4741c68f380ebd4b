"""A pool that grows and shrinks with the real Karpenter, and drains; a sandbox of its own.

Karpenter is built from its Go module, which takes some minutes once, so that this belongs to `make e2e`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dovetail.api.builtin import Node, Pod
from dovetail.api.resources import NODES, PODS
from dovetail.kube.client import Client
from dovetail.names import LABEL_PLACEHOLDER
from dovetail_sandbox.cluster import Cluster
from tests.cluster import karpenter
from tests.cluster.configuration import config_of, set_config
from tests.cluster.conftest import NODES as NODES_FILE
from tests.cluster.conftest import OVERRIDES
from tests.cluster.jobs import Jobs
from tests.cluster.sandboxes import sandbox_with

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
    overrides = [*OVERRIDES, *GROWING, "config.drain.action=Restart", "config.drain.grace=2"]
    with sandbox_with(nodes_file=NODES_FILE, overrides=overrides) as found:
        yield found


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


async def test_a_node_that_never_comes_is_given_up_and_its_placeholders_go(client: Client, jobs: Jobs) -> None:
    """No autoscaler runs here."""
    settings = yaml.safe_load(await config_of(client))
    settings["growing"] |= {"give_up": 10}
    await set_config(client, yaml.safe_dump(settings))
    await jobs.submit(gpu=f"{GPUS}({MODEL})")
    status = await jobs.until("x", lambda status: status.provisioning is not None)
    assert status.reason == "Provisioning"
    status = await jobs.until("x", lambda s: s.provisioning is not None and s.provisioning.retry_time is not None)
    assert (status.phase, status.reason) == ("Queued", "Provisioning")
    assert "did not serve it within 10s; requests again at" in status.message
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await placeholders(jobs):  # noqa: ASYNC110 - the operator deletes them
            await asyncio.sleep(0.2)


async def test_a_gang_on_a_drained_node_restarts_elsewhere_with_notice_and_without_a_lost_worker(
    client: Client, jobs: Jobs
) -> None:
    await jobs.submit(gpu="2(V100)", workers=2)
    status = await jobs.until("x", lambda status: status.workers_ready == 2)
    (node,) = status.nodes
    await cordon(client, node, unschedulable=True)
    try:
        noticed = await jobs.until("x", lambda s: s.preemption is not None and s.preemption.by == "Drain")
        assert noticed.preemption is not None
        assert noticed.preemption.message == f"Restarts on other nodes, because {node} is to be emptied"
        moved = await jobs.until("x", lambda s: s.workers_ready == 2 and s.nodes not in ([], [node]))
        assert (moved.phase, moved.retries) == ("Running", 0)
        assert moved.preemption is not None
        assert moved.preemption.count == 1
    finally:
        await cordon(client, node, unschedulable=False)


async def test_a_gang_without_room_elsewhere_stays_on_a_cordoned_node(client: Client, jobs: Jobs) -> None:
    await jobs.submit(gpu="4(V100)", workers=2)
    status = await jobs.until("x", lambda status: status.workers_ready == 2)
    await cordon(client, status.nodes[0], unschedulable=True)
    try:
        # A job that starts proves that a cycle has looked at the cordoned node.
        await jobs.submit("later", gpu="1(T4)")
        await jobs.phase("Running", "later")
        kept = await jobs.until("x", lambda _: True)
        assert (kept.phase, kept.workers_ready) == ("Running", 2)
        assert kept.preemption is None
    finally:
        await cordon(client, status.nodes[0], unschedulable=False)


async def cordon(client: Client, node: str, *, unschedulable: bool) -> None:
    await client.patch(NODES, name=node, patch={"spec": {"unschedulable": unschedulable}}, as_type=Node)
