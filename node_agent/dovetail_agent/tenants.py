"""The pods of a node as the agent sees them: promises and running state. Pure."""

from dataclasses import dataclass

from dovetail.api.builtin import Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Mode, Workload
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.cluster.node_tenants import tenant_of_pod
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors
from dovetail.pods.tenancy import DEFAULT_PRIORITY


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A pod that is bound to a node and has not ended.

    - `uid`: the pod's UID.
    - `node`: the node's name.
    - `workload`: namespace and job or pod, the same for all workers of a job.
    - `running`: whether it runs.
    - `cpu_milli`: requested CPU in thousandths.
    - `memory_mib`: requested host memory in MiB.
    - `mode`: how it uses its devices.
    - `devices`: its promised devices; empty for a pod without GPUs.
    - `namespace`: the pod's namespace.
    - `name`: the pod's name.
    - `by_vendor`: number of devices requested by a vendor's resource. Kubelet assigns them, and `devices` has them
      after that.
    - `priority`: its weight among turns.
    - `leaving`: its deletion has begun.
    - `reservation`: it keeps its devices for users who may be outside the cluster.
    - `purpose`: training or inference, as declared; None if not declared.
    - `movable`: it was admitted to leave its devices for another tenant's turn.
    - `guard_fraction`: the ratio of a device's memory that may be promised to all its tenants together.
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
    """Return the tenant that the operator's object describes."""
    return Tenant(
        uid=listed.uid,
        node=node,
        workload=f"{listed.namespace}/{listed.job or listed.name}",
        running=listed.running,
        cpu_milli=listed.cpu_milli,
        memory_mib=listed.memory_mib,
        mode=listed.mode,
        devices=tuple(listed.devices),
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
    """Return a pod's tenant, or None for a pod that is not bound or has ended."""
    listed = tenant_of_pod(pod, vendors=vendors)
    return None if listed is None else tenant_from(listed, node=pod.spec.node_name)


def promised_mib(tenant: Tenant, *, uuid: str) -> int:
    """Memory in MiB that a tenant was promised on one device."""
    return sum(device.memory_mib for device in tenant.devices if device.uuid == uuid)


def promised_milli(tenant: Tenant, *, uuid: str) -> int:
    """Share of one device, in thousandths, that a tenant was promised."""
    return sum(device.share_milli for device in tenant.devices if device.uuid == uuid)
