"""A node whose simulated work holds memory and computes nothing, as notebooks that were left open do."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from dovetail import names
from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUNODES, NODES
from dovetail.kube.client import Client
from dovetail_sandbox.nodes import kwok
from dovetail_sandbox.nodes.node_sets import SimulatedNode
from tests.cluster.test_agent import until

MODEL: Final = "H100"
DEVICES: Final = 2


@asynccontextmanager
async def node_of_notebooks(client: Client) -> AsyncIterator[str]:
    """A node whose jobs leave their devices idle; the model that asks for it."""
    node = kwok.manifest(
        SimulatedNode(
            name="notebooks",
            cpu_milli=64_000,
            memory_mib=262_144,
            model=MODEL,
            devices=DEVICES,
            device_memory_mib=81_559,
        )
    )
    annotations = node["metadata"]["annotations"]
    devices = json.loads(annotations[names.SIMULATED_DEVICES]) | {"load": "HoldsAndIdles"}
    annotations[names.SIMULATED_DEVICES] = json.dumps(devices)
    await client.create(NODES, body=node, as_type=dict[str, Any])
    try:
        yield MODEL
    finally:
        # Also after a failure: other tests of the sandbox follow.
        await client.delete(NODES, name="notebooks")
        await until(lambda: client.get(GPUNODES, name="notebooks", as_type=GPUNode), lambda gpunode: gpunode is None)
