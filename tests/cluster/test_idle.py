"""The idle policy on a node whose simulated work holds memory and computes nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import names
from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUNODES, NODES
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.nodes import kwok
from dovetail_sandbox.nodes.node_sets import SimulatedNode
from tests.cluster.gate import Operator
from tests.cluster.jobs import FOR_EVER, Jobs, condition
from tests.cluster.test_agent import until

pytestmark = pytest.mark.cluster

POLICY = {"DOVETAIL_IDLE__AFTER": "3", "DOVETAIL_IDLE__GRACE": "3", "DOVETAIL_IDLE__ACTION": "Suspend"}


@pytest.fixture
async def notebooks(client: Client) -> AsyncIterator[str]:
    """A node whose jobs leave their device idle; the model that asks for it."""
    node = kwok.manifest(
        SimulatedNode(
            name="notebooks", cpu_milli=64_000, memory_mib=262_144, model="H100", devices=1, device_memory_mib=81_559
        )
    )
    annotations = node["metadata"]["annotations"]
    devices = json.loads(annotations[names.SIMULATED_DEVICES]) | {"load": "HoldsAndIdles"}
    annotations[names.SIMULATED_DEVICES] = json.dumps(devices)
    await client.create(NODES, body=node, as_type=dict[str, Any])
    yield "H100"
    await client.delete(NODES, name="notebooks")
    await until(lambda: client.get(GPUNODES, name="notebooks", as_type=GPUNode), lambda gpunode: gpunode is None)


@pytest.fixture
async def watchful(sandbox: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """An operator with an idle policy in the place of the sandbox's own."""
    for name, value in POLICY.items():
        monkeypatch.setenv(name, value)
    await asyncio.to_thread(sandbox.stop, "operator")
    operator = Operator(sandbox, identity="watchful", folder=tmp_path)
    await operator.start()
    yield
    await operator.close()
    await asyncio.to_thread(sandbox.start, "operator")


async def test_a_job_that_leaves_its_gpu_idle_is_warned_and_then_held(
    jobs: Jobs, notebooks: str, watchful: None
) -> None:
    await jobs.submit("left-open", gpu=f"1({notebooks})", run=FOR_EVER)
    await jobs.until("left-open", lambda status: condition(status, "Idle") == ("True", "NoGPUWork"))
    await jobs.phase("Suspended", "left-open")
    events = [event.message for event in await jobs.announced("Idle", "left-open")]
    assert any("the job is held if that goes on for 3 s" in message for message in events)
    await jobs.without_pods("left-open")
