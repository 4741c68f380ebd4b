"""Pods into what the programs on their node need to know about them. Pure."""

import logging

import msgspec

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.decoding import UnreadableError, convert
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors
from dovetail.pods.allocation import Allocation, AllocationError, allocation_in
from dovetail.pods.containers import every_container
from dovetail.pods.demand import host_request
from dovetail.pods.device_plugin import vendor_devices
from dovetail.pods.tenancy import tenancy_in

log = logging.getLogger("dovetail.node_tenants")


def tenant_of_pod(pod: Pod, *, vendors: Vendors = DEFAULT_VENDORS) -> NodeTenant | None:
    """What a node's programs know about a pod; None for one that is not bound or has ended."""
    if not pod.spec.node_name or is_terminated(pod):
        return None
    cpu_milli, memory_mib = host_request(pod.spec)
    allocation = _allocation_of(pod)
    tenancy = tenancy_in(pod, allocation=allocation)
    tenant = NodeTenant(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        job=tenancy.job,
        running=pod.status.phase == "Running",
        leaving=pod.metadata.deletion_timestamp is not None,
        mode=allocation.mode if allocation else "Exclusive",
        devices=allocation.devices if allocation else [],
        device_containers=_containers_of(pod, allocation=allocation) if allocation else [],
        guard_fraction=(allocation.guard_fraction if allocation else None) or 1.0,
        movable=allocation is not None and allocation.movable,
        workload=allocation.workload if allocation else None,
        priority=tenancy.priority,
        reservation=tenancy.reservation,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        vendor_devices=sum(vendor_devices(pod.spec, vendors=vendors).values()),
    )
    return _within_bounds(tenant)


def _within_bounds(tenant: NodeTenant) -> NodeTenant:
    """The tenant.

    Without its promises where one value violates the schema, which would refuse all tenants.
    """
    try:
        return convert(msgspec.to_builtins(tenant), as_type=NodeTenant)
    except UnreadableError as error:
        log.warning("pod %s/%s is listed without its devices: %s", tenant.namespace, tenant.name, error)
    return NodeTenant(
        uid=tenant.uid,
        namespace=tenant.namespace,
        name=tenant.name,
        running=tenant.running,
        leaving=tenant.leaving,
    )


def _containers_of(pod: Pod, *, allocation: Allocation) -> list[str]:
    """The container of each of the allocation's devices; empty for an index that the pod does not have."""
    containers = {index: each.name for index, each in enumerate(every_container(pod.spec))}
    return [containers.get(each.index, "") for each in allocation.containers for _ in each.devices]


def _allocation_of(pod: Pod) -> Allocation | None:
    # The audit reports a broken allocation; here it must not hide the other tenants.
    try:
        return allocation_in(pod.metadata.annotations)
    except AllocationError as error:
        log.warning("broken allocation of pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
        return None
