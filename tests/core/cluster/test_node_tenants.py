"""What the programs of a node know of the pods there."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.cluster.node_tenants import tenant_of_pod
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from tests.core.builders import make_pod

SHARE = Allocation(
    node="a",
    mode="TimeShared",
    containers=[
        ContainerAllocation(index=0, devices=[AllocatedDevice(uuid="a-1", index=1, share_milli=500, memory_mib=1024)])
    ],
    guard_fraction=0.95,
    workload="Training",
    movable=True,
    priority=20,
    reservation=True,
    job="train",
)


def bound(allocation: Allocation | None = None, *, phase: str = "Running", **changes: Any) -> Pod:
    annotations = {} if allocation is None else annotations_of(allocation)
    return make_pod(
        {names.GPU_TURN: "1", "cpu": "2", "memory": "3Gi"}, annotations=annotations, node="a", phase=phase, **changes
    )


def tenant(pod: Pod) -> NodeTenant:
    found = tenant_of_pod(pod)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("node", "phase", "listed"),
    [("a", "Running", True), ("a", "Pending", True), ("", "Pending", False), ("a", "Succeeded", False),
     ("a", "Failed", False)],
)  # fmt: skip
def test_a_pod_is_a_tenant_while_it_is_bound_and_has_not_ended(node: str, phase: str, listed: bool) -> None:
    assert (tenant_of_pod(make_pod(node=node, phase=phase)) is not None) == listed


def test_a_tenant_has_what_its_pod_was_bound_with() -> None:
    pod = bound(SHARE)
    found = tenant(pod)
    assert (found.uid, found.namespace, found.name) == (pod.metadata.uid, pod.metadata.namespace, pod.metadata.name)
    assert found.devices == [AllocatedDevice(uuid="a-1", index=1, share_milli=500, memory_mib=1024)]
    assert (found.mode, found.guard_fraction, found.workload, found.movable) == ("TimeShared", 0.95, "Training", True)
    assert (found.priority, found.reservation) == (20, True)
    assert (found.cpu_milli, found.memory_mib, found.vendor_devices) == (2000, 3072, 0)
    assert (found.running, found.leaving) == (True, False)


def test_each_device_has_its_container_and_one_that_the_pod_does_not_have_is_unnamed() -> None:
    pod = bound(SHARE)
    containers = [
        msgspec.structs.replace(part, index=index, devices=part.devices * 2)
        for part in SHARE.containers
        for index in (0, 7)
    ]
    of_two = bound(msgspec.structs.replace(SHARE, containers=containers))
    name = pod.spec.containers[0].name
    assert name
    assert tenant(pod).device_containers == [name]
    assert tenant(of_two).device_containers == [name, name, "", ""]


def test_a_tenant_without_an_allocation_holds_no_device_of_ours() -> None:
    found = tenant(make_pod({"nvidia.com/gpu": "2"}, node="a", phase="Pending"))
    assert (found.mode, found.devices, found.guard_fraction) == ("Exclusive", [], 1.0)
    assert (found.workload, found.movable, found.vendor_devices, found.running) == (None, False, 2, False)


@pytest.mark.parametrize("movable", [True, False])
def test_an_allocation_without_a_guard_lets_all_its_memory_be_promised(movable: bool) -> None:
    found = tenant(bound(msgspec.structs.replace(SHARE, guard_fraction=None, movable=movable, workload=None)))
    assert (found.guard_fraction, found.movable, found.workload) == (1.0, movable, None)


def test_a_pod_that_is_being_deleted_is_leaving() -> None:
    pod = bound(SHARE)
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    assert tenant(msgspec.structs.replace(pod, metadata=meta)).leaving


@pytest.mark.parametrize("text", ["{", '{"node": "a"}'])
def test_a_broken_allocation_leaves_a_tenant_without_devices(text: str) -> None:
    found = tenant(make_pod({names.GPU_TURN: "1"}, annotations={names.ALLOCATION: text}, node="a"))
    assert (found.uid, found.devices, found.mode) == ("pod-1", [], "Exclusive")


def test_a_tenant_beyond_the_schema_is_listed_without_what_it_was_promised() -> None:
    pod = bound(SHARE, phase="Pending")
    meta = msgspec.structs.replace(pod.metadata, name="n" * 300, deletion_timestamp="2026-01-01T00:00:00Z")
    huge = msgspec.structs.replace(
        SHARE,
        containers=[
            ContainerAllocation(
                index=0,
                devices=[AllocatedDevice(uuid="u" * 5000, index=1, share_milli=500, memory_mib=1024)],
            )
        ],
    )
    annotations = annotations_of(huge)
    found = tenant(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(meta, annotations=annotations)))
    assert (found.uid, found.name, found.devices, found.mode) == ("pod-1", "n" * 300, [], "Exclusive")
    assert (found.namespace, found.running, found.leaving) == (pod.metadata.namespace, False, True)
