"""One look at a node, as it is reported: which devices are in it, and what of them stands from before."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment, Device, Fault, GPUNode, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import ObjectMeta
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail_agent.devices.model import Inventory, InventoryUnreadable, Provider, Sample
from dovetail_agent.devices.multi_vendor import ManyProvider
from dovetail_agent.devices.simulated.provider import SimulatedProvider, device_uuid
from dovetail_agent.feature.protocol import Feature, Seen
from dovetail_agent.feature.runner import FeatureRunner
from dovetail_agent.report.collect import Collector, Look
from tests.agent.builders import NOON, V100S, make_node, make_tenant
from tests.agent.devices.test_assignments import asking
from tests.agent.devices.test_multi_vendor import Part


def look(node: Node, *, provider: Provider, gpunode: GPUNode | None = None) -> Look:
    eyes = Collector(provider, vendors=DEFAULT_VENDORS, beside=FeatureRunner())
    return eyes.collect(node, gpunode=gpunode, tenants=[], now=NOON)[1]


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


class Failing(Part):
    """A provider whose sample, but not its inventory, cannot be read."""

    def sample(self, inventory: Inventory, *, node: Any, **_: Any) -> Sample:
        raise InventoryUnreadable("mixed", problem="the driver hangs", reason="DriverHangs")


def eyes(provider: Any, *features: Feature) -> Collector:
    return Collector(provider, vendors=DEFAULT_VENDORS, beside=FeatureRunner(features))


@pytest.mark.parametrize("provider", [Part("nvidia", cards=1, problem="no driver"), Failing("nvidia", cards=1)])
def test_a_node_that_cannot_be_read_has_the_problem_and_neither_inventory_nor_sample(provider: Part) -> None:
    seen, found = eyes(provider).collect(NODE, gpunode=None, tenants=[make_tenant()], now=NOON)
    assert (seen.inventory, seen.sample, found.inventory, found.sample) == (None, None, None, None)
    assert seen.problem == found.status.conditions[0].message
    assert seen.problem in {"node mixed: no driver", "node mixed: the driver hangs"}
    assert found.tenants == (make_tenant(),)


def test_the_reason_of_the_problem_is_the_reason_of_the_condition() -> None:
    (ready,) = look(NODE, provider=Failing("nvidia", cards=1)).status.conditions  # type: ignore[arg-type]  # as much as is read
    assert (ready.status, ready.reason) == ("False", "DriverHangs")


def test_a_look_carries_the_answered_question_and_the_previous_report() -> None:
    gpunode = GPUNode(metadata=ObjectMeta(name="v100-0"), status=GPUNodeStatus(tenants_asked=4))
    seen, _ = eyes(SimulatedProvider()).collect(make_node(), gpunode=gpunode, tenants=[], now=NOON, answers=3)
    assert (seen.answers, seen.previous, seen.problem) == (3, gpunode.status, "")


def test_devices_that_are_left_out_are_in_the_log_once_for_each_node() -> None:
    both = eyes(ManyProvider([Anywhere("nvidia", cards=2), Anywhere("amd", cards=1)]))
    with capture_logs() as logs:
        for name in ("one", "two", "one"):
            both.collect(make_node(name, devices=None), gpunode=None, tenants=[], now=NOON)
    assert [(each["node"], each["devices"]) for each in logs] == [("one", 1), ("two", 1)]


class Anywhere(Part):
    """A provider of every node."""

    def serves(self, node: Any) -> bool:
        return True


def test_a_node_with_nvidia_s_devices_alone_leaves_nothing_out() -> None:
    with capture_logs() as logs:
        found = look(NODE, provider=Part("nvidia", cards=2))  # type: ignore[arg-type]  # as much as is read
    assert ([device.uuid for device in found.status.devices], logs) == (["nvidia-0", "nvidia-1"], [])


class Kubelet(Feature):
    """A feature with kubelet's answer."""

    def __init__(self, *answer: Assignment) -> None:
        self.answer = answer

    def assignments(self, seen: Seen) -> list[Assignment]:
        return list(self.answer)


PLUGIN = unmanaged(make_node(capacity={"nvidia.com/gpu": "2"}))


def test_what_kubelet_assigned_is_reported_and_is_what_its_pod_holds() -> None:
    uuid = device_uuid("v100-0", index=1)
    told = Assignment(uid="asked", namespace="ml", name="pod-asked", devices=[uuid])
    _, found = eyes(SimulatedProvider(), Kubelet(told)).collect(
        PLUGIN, gpunode=None, tenants=[asking(1, uid="asked")], now=NOON
    )
    assert found.status.assignments == [told]
    assert [[device.uuid for device in tenant.devices] for tenant in found.tenants] == [[uuid]]


def test_the_memory_of_a_pod_with_devices_of_kubelet_s_counts_as_its_own() -> None:
    uuid = device_uuid("v100-0", index=1)
    told = Assignment(uid="asked", namespace="ml", name="pod-asked", devices=[uuid])
    _, found = eyes(SimulatedProvider(), Kubelet(told)).collect(
        PLUGIN, gpunode=None, tenants=[asking(1, uid="asked")], now=NOON
    )
    used = {device.uuid: [tenant.uid for tenant in device.tenants] for device in found.status.devices if device.tenants}
    assert used == {uuid: ["asked"]}
    assert [device.foreign_mib for device in found.status.devices] == [0, 0]


def test_an_answer_without_assignments_is_an_answer() -> None:
    _, found = eyes(SimulatedProvider(), Kubelet()).collect(
        PLUGIN, gpunode=None, tenants=[asking(1, uid="x")], now=NOON
    )
    assert found.status.assignments == []


def test_assignments_that_were_reported_stay_from_look_to_look() -> None:
    first = look_at(PLUGIN, asking(1, uid="b"))
    assert [each.uid for each in first.assignments] == ["b"]
    gpunode = GPUNode(metadata=ObjectMeta(name="v100-0"), status=first)
    second = look_at(PLUGIN, asking(1, uid="a"), asking(1, uid="b"), gpunode=gpunode)
    assert {each.uid: each.devices for each in second.assignments}["b"] == first.assignments[0].devices


def test_a_managed_node_has_no_assignments_of_a_plugin() -> None:
    assert look_at(make_node(), asking(1, uid="b")).assignments == []


def look_at(node: Node, *tenants: NodeTenant, gpunode: GPUNode | None = None) -> GPUNodeStatus:
    return eyes(SimulatedProvider()).collect(node, gpunode=gpunode, tenants=tenants, now=NOON)[1].status
