"""Nodes and devices: what each device may do, and who holds it. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail import names
from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import Workload
from dovetail.api.gpunode import Device, Enforcement, GPUNode
from dovetail.gpu import mig
from dovetail.gpu.device_plugins import card_of
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.pods.allocation import AllocationError, allocation_in

# The engine's limit: a device is not free if foreign processes use more than this fraction of its memory.
_FOREIGN_LIMIT: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A pod that holds a device or a share.

    `job` is its job's number, None for other pods; `workload` is what it counts as for tenant limits, None for neither.
    `uid` is the pod's.
    """

    namespace: str
    pod: str
    job: int | None
    share_milli: int
    memory_mib: int
    workload: Workload | None = None
    uid: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """`job 5`, or `pod notebook`."""
        return f"pod {self.pod}" if self.job is None else f"job {self.job}"

    def called(self, *, namespace: str) -> str:
        """A name such as `job 5`, with its share if below 1, and its namespace if not `namespace`."""
        name = self.name
        details = [] if self.namespace == namespace else [self.namespace]
        details += [] if self.share_milli == WHOLE_MILLI else [f"{self.share_milli / WHOLE_MILLI:g}"]
        return f"{name} ({', '.join(details)})" if details else name


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """A device, whether it is cordoned, and its holders."""

    device: Device
    cordoned: bool
    holders: Sequence[Holder]

    @property
    def is_instance(self) -> bool:
        """Whether it is a MIG instance, which no request for a GPU gets."""
        return bool(self.device.mig_profile)

    @property
    def gpus(self) -> float:
        """What it counts as in GPUs: 1, and for a MIG instance its part of a GPU's compute, as in quotas."""
        profile = mig.normalised(self.device.mig_profile)
        return mig.milli_of(profile) / WHOLE_MILLI if profile else 1.0

    @property
    def available(self) -> bool:
        """Whether a job could take the whole device."""
        return self.status(namespace="") == "Available"

    def status(self, *, namespace: str) -> str:
        """In use, Available, cordoned, unmanaged (a foreign process uses it), or unhealthy."""
        device = self.device
        if device.health != "Healthy":
            return f"unhealthy ({device.health_reason})" if device.health_reason else "unhealthy"
        if self.holders:
            return f"In use by {', '.join(holder.called(namespace=namespace) for holder in self.holders)}"
        if self.cordoned:
            return "cordoned"
        foreign = device.strangers or device.foreign_mib > device.memory_mib * _FOREIGN_LIMIT
        return "unmanaged" if foreign else "Available"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSoftware:
    """What a node's agent reports of its node.

    `driver` and `runtime` are versions: of the driver, and of the newest CUDA that it supports (or the vendor's
    equivalent). Empty: not known.
    """

    enforcement: Enforcement = field(default_factory=Enforcement)
    driver: str = ""
    runtime: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All devices of a cluster, and their holders."""

    # Whether the scheduler runs, in words.
    scheduler: str
    # The reader's: job numbers of this namespace need no namespace with them.
    namespace: str
    # The devices by node: nodes by name, devices by index.
    nodes: Mapping[str, Sequence[DeviceUse]]
    # What each node enforces, and its driver, by its name.
    software: Mapping[str, NodeSoftware] = field(default_factory=dict)
    # Whether the pods of all namespaces were seen, and not those of the reader's own alone.
    of_all: bool = True

    @property
    def devices(self) -> list[DeviceUse]:
        """All devices, node by node."""
        return [device for devices in self.nodes.values() for device in devices]


def take(gpunodes: Iterable[GPUNode], *, pods: Iterable[Pod], scheduler: str, namespace: str) -> Inventory:
    """Compute the inventory from these objects; nodes are in order of name, devices of index."""
    gpunodes, pods = list(gpunodes), list(pods)
    held = {**holders(pods), **given(pods, gpunodes=gpunodes)}
    nodes = {}
    for gpunode in sorted(gpunodes, key=lambda gpunode: gpunode.metadata.name):
        name = gpunode.metadata.name
        nodes[name] = [
            DeviceUse(
                device=device,
                cordoned=device.uuid in gpunode.spec.cordoned,
                holders=held.get((name, device.uuid), ()),
            )
            for device in sorted(gpunode.status.devices, key=lambda device: device.index)
        ]
    software = {
        gpunode.metadata.name: NodeSoftware(
            enforcement=gpunode.status.enforcement,
            driver=gpunode.status.driver_version,
            runtime=gpunode.status.runtime_version,
        )
        for gpunode in gpunodes
    }
    return Inventory(scheduler=scheduler, namespace=namespace, nodes=nodes, software=software)


def enforcing(found: Enforcement) -> str:
    """What a node enforces, in users' words; `none` if it enforces nothing."""
    words = {
        "mps": found.mps, "turns": found.turns, "time-slicing": found.time_slicing, "mig": found.mig,
        "checkpoint": found.checkpoint,
    }  # fmt: skip
    return ", ".join(word for word, holds in words.items() if holds) or "none"


def holders(pods: Iterable[Pod]) -> dict[tuple[str, str], list[Holder]]:
    """The holders of each device, by node and UUID.

    A pod with a broken allocation holds none; `dovetail audit` reports it.
    """
    held: dict[tuple[str, str], list[Holder]] = defaultdict(list)
    for pod in pods:
        if is_terminated(pod):
            continue
        try:
            allocation = allocation_in(pod.metadata.annotations)
        except AllocationError:
            continue
        if allocation is None:
            continue
        for device in allocation.devices:
            holder = _holder(pod, share=device.share_milli, mib=device.memory_mib, workload=allocation.workload)
            held[pod.spec.node_name, device.uuid].append(holder)
    return held


def given(pods: Iterable[Pod], *, gpunodes: Iterable[GPUNode]) -> dict[tuple[str, str], list[Holder]]:
    """The holders of devices that kubelet assigned for a vendor's plugin, by node and UUID."""
    live = {pod.metadata.uid: pod for pod in pods if not is_terminated(pod)}
    held: dict[tuple[str, str], list[Holder]] = defaultdict(list)
    for gpunode in gpunodes:
        memory = {device.uuid: device.memory_mib - device.reserved_mib for device in gpunode.status.devices}
        for each in gpunode.status.assignments:
            for uuid in map(card_of, each.devices if each.uid in live else ()):
                holder = _holder(live[each.uid], share=WHOLE_MILLI, mib=memory.get(uuid, 0))
                held[gpunode.metadata.name, uuid].append(holder)
    return held


def _holder(pod: Pod, *, share: int, mib: int, workload: Workload | None = None) -> Holder:
    number = pod.metadata.labels.get(names.LABEL_JOB_NUMBER, "")
    return Holder(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        job=int(number) if number.isdigit() else None,
        share_milli=share,
        memory_mib=mib,
        workload=workload,
        uid=pod.metadata.uid,
    )
