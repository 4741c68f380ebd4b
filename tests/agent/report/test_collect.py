"""One look at a node, as it is reported: which devices are in it, and what of them stands from before."""

from datetime import timedelta

import msgspec

from dovetail.api.builtin import Node
from dovetail.api.gpunode import Device, Fault, GPUNode, GPUNodeStatus
from dovetail.api.meta import ObjectMeta
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail_agent.devices.model import Provider
from dovetail_agent.devices.multi_vendor import ManyProvider
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.feature.runner import Beside
from dovetail_agent.report.collect import Eyes, Look
from tests.agent.builders import NOON, V100S, make_node
from tests.agent.devices.test_multi_vendor import Part


def look(node: Node, *, provider: Provider, gpunode: GPUNode | None = None) -> Look:
    eyes = Eyes(provider, vendors=DEFAULT_VENDORS, beside=Beside())
    return eyes.look(node, gpunode=gpunode, tenants=[], now=NOON)[1]


def unmanaged(node: Node) -> Node:
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels={}))


MIXED = ManyProvider([Part("nvidia", cards=2), Part("amd", cards=1)])
NODE = make_node("mixed", devices=None)


def test_a_managed_node_reports_nvidia_s_devices_alone() -> None:
    seen = look(NODE, provider=MIXED)
    assert [device.uuid for device in seen.status.devices] == ["nvidia-0", "nvidia-1"]
    assert [device.used_mib for device in seen.status.devices] == [10, 10]


def test_another_node_reports_all_of_them() -> None:
    seen = look(unmanaged(NODE), provider=MIXED)
    assert [device.vendor for device in seen.status.devices] == ["nvidia", "nvidia", "amd"]


def test_the_boot_of_the_node_is_told() -> None:
    assert look(make_node(boot="boot-7"), provider=SimulatedProvider()).status.boot_id == "boot-7"


def test_a_fault_of_before_is_told_again_with_its_time() -> None:
    node = make_node(boot="boot-1", devices=V100S)
    first = look(node, provider=SimulatedProvider()).status
    fault = Fault(reason="Xid79FellOffTheBus", at=f"{NOON - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}")
    broken: list[Device] = [first.devices[0], msgspec.structs.replace(first.devices[1], faults=[fault])]
    status: GPUNodeStatus = msgspec.structs.replace(first, devices=broken)
    again = look(node, provider=SimulatedProvider(), gpunode=GPUNode(metadata=ObjectMeta(name="v100-0"), status=status))
    assert [device.health_reason for device in again.status.devices] == ["", "Xid79FellOffTheBus"]
    assert again.status.devices[1].faults == [fault]
