"""What is asked and what is promised. Values only."""

from dataclasses import dataclass
from typing import Final, Literal

from dovetail.api.gpujob import Mode, Policy, Workload
from dovetail.gpu.request import GPURequest

Guard = Literal["Conservative", "Aggressive"]
# The part of a shared device's memory that may be promised.
GUARD_FRACTIONS: Final[dict[Guard, float]] = {"Conservative": 0.8, "Aggressive": 0.95}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one pod asks of a node. `cpu_milli` and `memory_mib` are the pod's own, not the devices'.

    `gpu` is None for a pod that needs no device. `resource` is the vendor's resource that whole devices are asked by,
    such as nvidia.com/gpu: then kubelet picks them; empty for what is asked of managed nodes. `guard` None means the
    configured one. Tenant limits bind only an ask that says its `workload`.
    `more` is what further containers of the pod ask, devices of their own, none of it larger than `gpu`.
    No two workers of a job that is `apart` may be on one node.
    `host_room_mib` is how much device memory its container could keep on the host; 0 where it cannot be moved there.
    """

    gpu: GPURequest | None
    mode: Mode = "Exclusive"
    policy: Policy = "Balanced"
    cpu_milli: int = 0
    memory_mib: int = 0
    resource: str = ""
    guard: Guard | None = None
    workload: Workload | None = None
    more: tuple[GPURequest, ...] = ()
    host_room_mib: int = 0
    apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaim:
    """One device that is promised. For a whole device `memory_mib` is all that it has beside the reserve."""

    index: int
    uuid: str
    share_milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one pod holds of one node. `key` is the pod's UID (a plan's claims have keys of their own).

    `unnamed` counts whole devices that kubelet picks and of which the node has not yet said which ones they are;
    `resource` is then the vendor's resource that they are asked by. Who is `movable` leaves its devices for another's
    turn, with all its memory, where the node can do that.
    """

    key: str
    node: str
    mode: Mode = "Exclusive"
    devices: tuple[DeviceClaim, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    unnamed: int = 0
    resource: str = ""
    guard_fraction: float | None = None
    workload: Workload | None = None
    movable: bool = False
