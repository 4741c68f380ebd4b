import pytest
from msgspec.structs import replace as with_fields

from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.cluster.node_tenants import tenant_of_pod
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail_agent.devices.assignments import HeldDevice, Holder, given, matched
from dovetail_agent.devices.model import DeviceInfo, Inventory
from dovetail_agent.devices.simulated.provider import SimulatedProvider, device_uuid
from tests.agent.builders import NOON, allocated, make_node, make_pod, make_tenant

FOUR = {"model": "V100", "count": 4, "memoryMiB": 32768, "reservedMiB": 768}


def asking(count: int, *, uid: str) -> NodeTenant:
    return with_fields(make_tenant(uid=uid), vendor_devices=count, namespace="ml", name=f"pod-{uid}")


def dealt(*tenants: NodeTenant, previous: list[Assignment] | None = None, node: Node | None = None) -> list[Assignment]:
    node = node or make_node(devices=FOUR)
    provider = SimulatedProvider()
    return provider.assignments(provider.inventory(node), node=node, tenants=tenants, previous=previous or [])


def indexes(assignments: list[Assignment]) -> dict[str, set[int]]:
    known = {device_uuid("v100-0", index=index): index for index in range(4)}
    return {each.uid: {known[uuid] for uuid in each.devices} for each in assignments}


def test_every_tenant_that_asked_gets_devices_that_no_other_has() -> None:
    found = dealt(asking(1, uid="a"), asking(2, uid="b"), make_tenant(uid="c"))
    assert indexes(found) == {"a": {3}, "b": {1, 2}}
    assert [(each.namespace, each.name) for each in found] == [("ml", "pod-a"), ("ml", "pod-b")]


def test_who_has_devices_keeps_them_and_a_new_tenant_gets_what_is_left() -> None:
    before = dealt(asking(1, uid="b"))
    assert indexes(dealt(asking(1, uid="a"), asking(1, uid="b"), previous=before)) == {"a": {2}, "b": {3}}


def test_the_devices_of_a_tenant_that_has_gone_are_free() -> None:
    before = dealt(asking(4, uid="a"))
    assert indexes(dealt(asking(4, uid="b"), previous=before)) == {"b": {0, 1, 2, 3}}


def test_a_tenant_for_whom_there_are_too_few_gets_none() -> None:
    assert indexes(dealt(asking(3, uid="a"), asking(2, uid="b"))) == {"a": {1, 2, 3}}


def test_a_sick_device_is_given_to_nobody() -> None:
    node = make_node(devices=FOUR, faults={"3": "XID79FellOffTheBus"})
    assert indexes(dealt(asking(1, uid="a"), node=node)) == {"a": {2}}


def test_devices_that_a_node_came_back_without_are_given_anew() -> None:
    gone = Assignment(uid="a", namespace="ml", name="pod-a", devices=["GPU-of-before"])
    assert indexes(dealt(asking(1, uid="a"), previous=[gone])) == {"a": {3}}


def test_a_tenant_s_load_is_on_the_devices_that_it_was_given_and_not_foreign() -> None:
    node, provider = make_node(devices=FOUR), SimulatedProvider()
    inventory = provider.inventory(node)
    tenants = given([asking(1, uid="a")], assignments=dealt(asking(1, uid="a")), inventory=inventory)
    sample = provider.sample(inventory, node=node, tenants=tenants, now=NOON)
    assert [bool(device.used_mib) for device in sample.devices] == [False, False, False, True]
    assert tenants[0].devices[0].memory_mib == 32000


def test_devices_that_an_allocation_names_are_left_as_they_are() -> None:
    tenant = make_tenant(allocated(0))
    assert given([tenant], assignments=[], inventory=Inventory(devices=())) == (tenant,)


@pytest.mark.parametrize(("resource", "count"), [("nvidia.com/gpu", 2), ("amd.com/gpu", 2), ("example.com/gpu", 0)])
def test_a_tenant_counts_what_it_asked_of_a_vendor_s_plugin(resource: str, count: int) -> None:
    tenant = tenant_of_pod(make_pod(resources={resource: "2"}))
    assert tenant is not None
    assert tenant.vendor_devices == count


def holding(*ids: str, name: str = "pod-a", asked_by: str = "nvidia.com/gpu") -> Holder:
    devices = tuple(HeldDevice(asked_by=asked_by, id=each) for each in ids)
    return Holder(namespace="ml", name=name, devices=devices)


def told(*named: Holder, tenants: tuple[NodeTenant, ...] = (asking(1, uid="a"),)) -> dict[str, list[str]]:
    found = matched(named, tenants=tenants, inventory=INVENTORY, vendors=DEFAULT_VENDORS)
    return {each.uid: each.devices for each in found}


INVENTORY = Inventory(
    devices=(
        DeviceInfo(index=0, uuid="GPU-a", vendor="nvidia", model="T4", memory_mib=16384, pci_bus_id="0000:3b:00.0"),
        DeviceInfo(index=1, uuid="amd-b", vendor="amd", model="MI300X", memory_mib=16384, pci_bus_id="0000:5e:00.0"),
        DeviceInfo(index=2, uuid="MIG-c", vendor="nvidia", model="A100", memory_mib=16384, mig_profile="1g.10gb"),
    )
)


@pytest.mark.parametrize(
    ("asked_by", "told_id", "uuid"),
    [
        pytest.param("nvidia.com/gpu", "GPU-a", "GPU-a", id="a UUID is itself"),
        pytest.param("nvidia.com/gpu", "GPU-a::3", "GPU-a::3", id="a replica keeps its number"),
        pytest.param("nvidia.com/mig-1g.10gb", "MIG-c", "MIG-c", id="a MIG device"),
        pytest.param("nvidia.com/gpu", "GPU-new", "GPU-new", id="a card that the agent does not know is told"),
        pytest.param("nvidia.com/gpu", "0", "GPU-a", id="a plugin that counts"),
        pytest.param("nvidia.com/gpu", "0::1", "GPU-a::1", id="a replica by index"),
        pytest.param("amd.com/gpu", "0000:5E:00.0", "amd-b", id="AMD's plugin says the PCI address"),
        pytest.param("huawei.com/npu", "Ascend910-1", "amd-b", id="Ascend's plugin says model and index"),
        pytest.param("gpu.nvidia.com", "gpu-0", "GPU-a", id="a resource claim"),
    ],
)
def test_an_id_of_kubelets_means_a_device(asked_by: str, told_id: str, uuid: str) -> None:
    assert told(holding(told_id, asked_by=asked_by)) == {"a": [uuid]}


@pytest.mark.parametrize(
    ("asked_by", "told_id"),
    [
        pytest.param("rdma/hca", "0", id="another vendor's device is none of ours"),
        pytest.param("gpu.intel.com/i915", "card0-1", id="an id that tells neither UUID nor index"),
        pytest.param("nvidia.com/gpu", "7", id="an index beyond the last"),
    ],
)
def test_what_means_no_device_is_left_out(asked_by: str, told_id: str) -> None:
    assert told(holding(told_id, asked_by=asked_by)) == {}


def test_two_pods_of_one_name_are_not_told_apart_and_so_not_told() -> None:
    assert told(holding("GPU-a"), holding("MIG-c")) == {}


def test_a_pod_that_was_promised_devices_of_a_managed_node_is_not_told_again() -> None:
    tenant = with_fields(make_tenant(allocated(0), uid="a"), namespace="ml", name="pod-a")
    assert told(holding("GPU-a"), tenants=(tenant,)) == {}


def test_a_tenant_holds_the_card_of_its_replicas_once() -> None:
    one = Assignment(uid="a", namespace="ml", name="pod-a", devices=["GPU-a::0", "GPU-a::1"])
    (tenant,) = given((asking(2, uid="a"),), assignments=[one], inventory=INVENTORY)
    assert [device.uuid for device in tenant.devices] == ["GPU-a"]
