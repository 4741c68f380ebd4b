"""The pods of a node as the agent sees them: who was promised what, and who runs. Pure."""

from dataclasses import dataclass

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import Mode, Workload
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.cluster.node_tenants import tenant_of_pod
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors
from dovetail.pods.allocation import AllocatedDevice
from dovetail.pods.tenancy import DEFAULT_PRIORITY


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A pod that is bound to a node and has not ended. `devices` is empty for a pod without GPUs.

    `workload` is the same for all workers of a job. `by_vendor` is how many devices it asked by a vendor's resource:
    kubelet picks those, and `devices` has them once it has said which. `leaving`: its deletion has begun.
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


def tenant_from(listed: NodeTenant, *, node: str) -> Tenant:
    """The tenant that the operator's object describes."""
    return Tenant(
        uid=listed.uid,
        node=node,
        workload=f"{listed.namespace}/{listed.job or listed.name}",
        running=listed.running,
        cpu_milli=listed.cpu_milli,
        memory_mib=listed.memory_mib,
        mode=listed.mode,
        devices=tuple(
            AllocatedDevice(uuid=each.uuid, index=each.index, share_milli=each.share_milli, memory_mib=each.memory_mib)
            for each in listed.devices
        ),
        namespace=listed.namespace,
        name=listed.name,
        by_vendor=listed.vendor_devices,
        priority=listed.priority,
        leaving=listed.leaving,
        reservation=listed.reservation,
        purpose=listed.workload,
        movable=listed.movable,
        guard_fraction=listed.guard_fraction,
    )


def tenant_of(pod: Pod, *, vendors: Vendors = DEFAULT_VENDORS) -> Tenant | None:
    """The tenant that a pod is, or None for one that is not bound or has ended."""
    listed = tenant_of_pod(pod, vendors=vendors)
    return None if listed is None else tenant_from(listed, node=pod.spec.node_name)


def promised_mib(tenant: Tenant, *, uuid: str) -> int:
    """Memory in MiB that a tenant was promised on one device."""
    return sum(device.memory_mib for device in tenant.devices if device.uuid == uuid)


def promised_milli(tenant: Tenant, *, uuid: str) -> int:
    """Share of one device, in thousandths, that a tenant was promised."""
    return sum(device.share_milli for device in tenant.devices if device.uuid == uuid)
