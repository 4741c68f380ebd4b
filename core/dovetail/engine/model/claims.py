"""What a pod asks for (`Ask`) and what it is promised (`Claim`). Values only."""

from collections import Counter
from dataclasses import dataclass, field, replace

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Mode, Policy, Workload
from dovetail.engine.model.settings import DEFAULT_WEIGHTS, Weights
from dovetail.engine.model.topology import Topology
from dovetail.gpu import mig
from dovetail.gpu.request import WHOLE_MILLI, GPURequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one pod asks of a node.

    gpu             the GPU request of its first container; None for a pod that needs no device
    mode            how it uses a device: alone, a fraction of it, or in turns
    policy          how nodes and devices are ranked
    weights         of the terms that rank nodes; asks that differ in them alone are equal: they fit the same nodes
    cpu_milli       the pod's CPU request
    memory_mib      the pod's memory request, not device memory
    resource        the device plugin's resource, such as nvidia.com/gpu, if kubelet picks the devices; empty on
                    managed nodes
    guard_fraction  the part of a shared device's memory that may be promised, 0 to 1; None means the configured one
    workload        training or inference; tenant limits apply only to an ask that says so
    more            the GPU requests of further containers, none of them larger than `gpu`
    host_room_mib   how much device memory its container can keep in host memory; 0 if it cannot be moved there
    apart           each worker of the job needs a node of its own
    topology        where the workers of the job must or should be together; None for a pod alone
    warm            nodes that have what the pod loads; asks that differ in them alone are equal too
    """

    gpu: GPURequest | None
    mode: Mode = "Exclusive"
    policy: Policy = "Balanced"
    cpu_milli: int = 0
    memory_mib: int = 0
    resource: str = ""
    guard_fraction: float | None = None
    workload: Workload | None = None
    more: tuple[GPURequest, ...] = ()
    host_room_mib: int = 0
    apart: bool = False
    weights: Weights = field(default=DEFAULT_WEIGHTS, compare=False)
    topology: Topology | None = None
    warm: tuple[str, ...] = field(default=(), compare=False)

    @property
    def profile(self) -> str:
        """The profile of the MIG instances that are asked for; empty for GPUs, and for a pod without devices."""
        return "" if self.gpu is None else self.gpu.mig

    @property
    def alone(self) -> "Ask":
        """What each pod asks of its node, without the rules of its gang."""
        return self if self.topology is None else replace(self, topology=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one pod is promised on one node.

    key              the pod's UID; the claims of a plan have keys of their own
    node             the node's name
    mode             how the pod uses its devices
    devices          the promised devices
    cpu_milli        the pod's CPU request
    memory_mib       the pod's memory request
    unnamed          how many whole devices kubelet picks whose ids the node has not reported yet
    resource         the device plugin's resource of those devices
    guard_fraction   the part of a shared device's memory that may be promised while this tenant is there
    workload         training or inference, where tenant limits apply
    movable          for another tenant's turn, the pod leaves its devices with all its memory, if the node supports it
    instances        how many MIG instances of each profile kubelet picks
    """

    key: str
    node: str
    mode: Mode = "Exclusive"
    devices: tuple[AllocatedDevice, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    unnamed: int = 0
    resource: str = ""
    guard_fraction: float | None = None
    workload: Workload | None = None
    movable: bool = False
    instances: tuple[tuple[str, int], ...] = ()

    @property
    def milli(self) -> int:
        """The compute of all devices, in thousandths of a GPU; a MIG instance counts by its slices."""
        gpus = sum(device.share_milli for device in self.devices if not device.mig) + WHOLE_MILLI * self.unnamed
        instances = Counter(device.mig for device in self.devices if device.mig)
        instances.update(dict(self.instances))
        return gpus + sum(mig.milli_of(profile, count=count) for profile, count in instances.items())

    @property
    def picked(self) -> int:
        """How many devices kubelet picks, GPUs and MIG instances."""
        return self.unnamed + sum(count for _, count in self.instances)

    def unnamed_of(self, profile: str) -> int:
        """How many devices that kubelet picks are MIG instances of this profile; of the empty one, whole devices."""
        return self.unnamed if not profile else dict(self.instances).get(profile, 0)

    def of_plugin(self, profile: str) -> int:
        """How many devices of that kind a plugin gave or will give."""
        return self.unnamed_of(profile) + (0 if profile else len(self.devices))
