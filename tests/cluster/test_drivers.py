"""A managed node that a DRA driver serves too: it takes no new work, and what runs there stays."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import pytest

from dovetail.api.builtin import ResourceSlice
from dovetail.api.resources import RESOURCESLICES
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail_cli.cluster import audit
from dovetail_cli.doctor import diagnosis
from dovetail_sandbox.cluster import Cluster
from tests.cluster.conftest import DRIVER_ABSENCE_SECONDS
from tests.cluster.jobs import Jobs

pytestmark = pytest.mark.cluster

# The one node with A100s, so a job that asks for one has no other place.
NODE: Final = "a100-0"
SENTENCE: Final = "both Dovetail and the DRA driver gpu.nvidia.com hand out the node's GPUs"


class Slices:
    """ResourceSlices as drivers publish them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.made: list[str] = []

    async def publish(self, driver: str) -> str:
        name = f"{NODE}-{driver}-{uuid.uuid4().hex[:5]}"
        spec = {
            "driver": driver,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}],
        }
        self.made.append(name)
        body = {"metadata": {"name": name}, "spec": spec}
        await self.client.create(RESOURCESLICES[0], body=body, as_type=ResourceSlice, strict=True)
        return name

    async def remove(self, name: str) -> None:
        await self.client.delete(RESOURCESLICES[0], name=name)
        self.made.remove(name)


@pytest.fixture
async def slices(client: Client) -> AsyncIterator[Slices]:
    slices = Slices(client)
    yield slices
    for name in slices.made:
        with suppress(NotFound):
            await client.delete(RESOURCESLICES[0], name=name)
    # Other tests have the node as it was.
    await asyncio.sleep(DRIVER_ABSENCE_SECONDS if slices.made else 0)


def told(sandbox: Cluster) -> tuple[list[str], list[str]]:
    """What audit and doctor say of the node."""
    kubeconfig = str(sandbox.kubeconfig)
    audited = [each.kind for each in audit.prove(kubeconfig=kubeconfig, context=None).items]
    found = diagnosis.cluster(node=NODE, kubeconfig=kubeconfig, context=None)
    return audited, [each.message for each in found.items if each.check == "node" and each.level == "error"]


async def test_a_node_that_a_dra_driver_serves_too_takes_no_new_work_until_the_driver_has_left(
    jobs: Jobs, slices: Slices, sandbox: Cluster
) -> None:
    await jobs.submit("before", gpu="1(A100)")
    before = await jobs.phase("Running", "before")
    await slices.publish("compute-domain.nvidia.com")
    served = await slices.publish("gpu.nvidia.com")
    await jobs.submit("after", gpu="1(A100)")
    waiting = await jobs.until("after", lambda status: SENTENCE in status.message)
    assert waiting.phase == "Queued"
    audited, diagnosed = await asyncio.to_thread(told, sandbox)
    assert audited == ["BothKinds"]
    assert any(SENTENCE in message for message in diagnosed)
    await slices.remove(served)
    gone = time.monotonic()
    after = await jobs.phase("Running", "after")
    assert time.monotonic() - gone > DRIVER_ABSENCE_SECONDS - 1.0
    assert after.nodes == before.nodes == [NODE]
    assert (await jobs.phase("Running", "before")).devices == before.devices
