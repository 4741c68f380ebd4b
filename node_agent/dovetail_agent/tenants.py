"""The pods of a node as the agent sees them: who was promised what, and who runs. Pure."""

from dataclasses import dataclass
from typing import Final

from dovetail.allocation import AllocatedDevice, Allocation, AllocationError, allocation_in
from dovetail.api.gpujob import Mode, Workload
from dovetail.asks import host_request
from dovetail.kube.objects import Pod
from dovetail.logs import get_logger
from dovetail.pods.vendor import vendor_devices
from dovetail.tenancy import DEFAULT_PRIORITY, tenancy_in
from dovetail.vendor import DEFAULT_VENDORS, Vendors

log = get_logger(__name__)

_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A pod that is bound to a node and has not ended. `devices` is empty for a pod without GPUs.

    `workload` is the same for all workers of a job. `by_vendor` is how many devices it asked by a vendor's resource:
    kubelet picks those, and `devices` has them once it has said which. `leaving`: it was told to end.
    `purpose` is what it says it does. `movable`: it was let in to leave its devices for another's turn;
    `guard_fraction` of their memory may be promised to all who are there.
    `reservation`: it keeps its devices for others, who may use them from outside the cluster.
    """

    uid: str
    node: str
    workload: str
    running: bool
    cpu_milli: int = 0
    memory_mib: int = 0
    mode: Mode = "Exclusive"
    devices: tuple[AllocatedDevice, ...] = ()
    namespace: str = ""
    name: str = ""
    by_vendor: int = 0
    priority: int = DEFAULT_PRIORITY
    leaving: bool = False
    reservation: bool = False
    purpose: Workload | None = None
    movable: bool = False
    guard_fraction: float = 1.0


def tenant_of(pod: Pod, *, vendors: Vendors = DEFAULT_VENDORS) -> Tenant | None:
    """The tenant that a pod is, or None for one that is not bound or has ended."""
    if not pod.spec.node_name or pod.status.phase in _ENDED:
        return None
    cpu_milli, memory_mib = host_request(pod.spec)
    allocation = _allocation_of(pod)
    tenancy = tenancy_in(pod, allocation=allocation)
    return Tenant(
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        workload=f"{pod.metadata.namespace}/{tenancy.job or pod.metadata.name}",
        running=pod.status.phase == "Running",
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        mode=allocation.mode if allocation else "Exclusive",
        devices=tuple(allocation.devices) if allocation else (),
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        by_vendor=sum(vendor_devices(pod.spec, vendors=vendors).values()),
        priority=tenancy.priority,
        leaving=pod.metadata.deletion_timestamp is not None,
        reservation=tenancy.reservation,
        purpose=allocation.workload if allocation else None,
        movable=allocation is not None and allocation.movable,
        guard_fraction=(allocation.guard_fraction if allocation else None) or 1.0,
    )


def promised_mib(tenant: Tenant, *, uuid: str) -> int:
    """Memory in MiB that a tenant was promised on one device."""
    return sum(device.memory_mib for device in tenant.devices if device.uuid == uuid)


def promised_milli(tenant: Tenant, *, uuid: str) -> int:
    """Share of one device, in thousandths, that a tenant was promised."""
    return sum(device.share_milli for device in tenant.devices if device.uuid == uuid)


def _allocation_of(pod: Pod) -> Allocation | None:
    # The audit reports a broken allocation; here it must not keep the other tenants from being seen.
    try:
        return allocation_in(pod.metadata.annotations)
    except AllocationError as error:
        log.warning("broken allocation", pod=f"{pod.metadata.namespace}/{pod.metadata.name}", problem=str(error))
        return None
