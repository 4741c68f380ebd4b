"""Devices that fall ill, as people are told of them."""

import msgspec
from msgspec.structs import replace as with_fields

from dovetail.api.gpunode import Device, GPUNode, GPUNodeStatus
from dovetail.api.meta import ObjectMeta
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.guards.bad_devices import BadDevicesFeature
from tests.agent.builders import NOON, make_node
from tests.agent.guards.test_strangers import CARD, OTHER, OWNER
from tests.agent.recorded import Recorded


def status(reason: str = "") -> GPUNodeStatus:
    device = Device(index=0, uuid=CARD.uuid, vendor="nvidia", model="V100", memory_mib=32768)
    if reason:
        device = msgspec.structs.replace(device, health="Unhealthy", health_reason=reason)
    return GPUNodeStatus(devices=[device])


async def told(now: GPUNodeStatus, *, before: GPUNodeStatus | None) -> Recorded:
    recorded = Recorded()
    gpunode = None if before is None else GPUNode(metadata=ObjectMeta(name="v100-0"), status=before)
    seen = Seen(node=make_node(), now=NOON, gpunode=gpunode, tenants=(OWNER, OTHER))
    await BadDevicesFeature(recorded).act(seen, status=now)
    return recorded


async def test_a_card_that_falls_ill_is_told_of_the_node_and_of_the_pods_that_have_it() -> None:
    recorded = await told(status("GpuIsLost"), before=status())
    sentence = f"GPU 0 ({CARD.uuid}) of v100-0 is unhealthy: GpuIsLost; it takes no new work"
    assert recorded.about("Node") == [("v100-0", "BadGPU")]
    assert recorded.about("Pod") == [("train", "BadGPU")]
    assert recorded.events[0].message == sentence


async def test_a_card_that_is_ill_at_the_first_look_is_told() -> None:
    assert (await told(status("GpuIsLost"), before=None)).about("Node")


async def test_another_reason_is_told() -> None:
    assert (await told(status("GpuIsLost"), before=status("RowRemapFailed"))).about("Node")


async def test_what_was_reported_is_not_told_again_nor_is_a_healthy_card() -> None:
    for now in (status("GpuIsLost"), status()):
        assert (await told(now, before=status("GpuIsLost"))).events == []


async def test_a_pod_with_healthy_devices_too_hears_of_the_bad_one() -> None:
    both = with_fields(OWNER, devices=[*OWNER.devices, *OTHER.devices])
    recorded = Recorded()
    seen = Seen(node=make_node(), now=NOON, gpunode=None, tenants=(both, OTHER))
    await BadDevicesFeature(recorded).act(seen, status=status("GpuIsLost"))
    assert recorded.about("Pod") == [("train", "BadGPU")]
