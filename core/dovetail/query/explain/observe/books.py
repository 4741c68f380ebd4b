"""The books of each node: what it has, what bound pods are promised of it, and who they are. Pure.

They add up as kube-scheduler does: allocatable less the requests of the pods that are bound and have not ended. Where
HAMi or KAI share devices, their own annotations and labels say what they gave.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from dovetail import names
from dovetail.answers.observe import DeviceSystem
from dovetail.api.builtin import Node, Pod, is_terminated
from dovetail.formats.quantities import Quantity, QuantityError, mebibytes, milli, read_whole, whole
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.pods.containers import peak
from dovetail.pods.tenancy import controller_of
from dovetail.query.explain.observe import hami
from dovetail.query.explain.observe.demands import NVIDIA, VOLCANO_COUNT, Demand, counts_devices, demand_of

# KAI's label of the pods that share a device; `…/<group>` of those that share several.
KAI_GROUP: Final = "runai-gpu-group"
_MODELS: Final = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", names.LABEL_MODEL)
_DEVICE_MEMORY: Final = "nvidia.com/gpu.memory"
_TRUE: Final = "True"
# kubelet's own default.
_MOST_PODS: Final = "110"
# The memory and compute of devices, which Volcano's and Dovetail's plugins advertise.
_PARTS: Final = frozenset(
    {
        names.GPU_MEMORY_MIB, names.GPU_TURN, "volcano.sh/vgpu-memory", "volcano.sh/vgpu-memory-percentage",
        "volcano.sh/vgpu-cores",
    }
)  # fmt: skip
_Bound = tuple[Pod, Demand | None]
_mebibytes_down: Final = partial(mebibytes, rounding="down")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """An amount of a node and what is promised of it."""

    total: int
    promised: int = 0

    @property
    def free(self) -> int:
        """What is left; below zero where pods were bound to a node that has lost devices."""
        return self.total - self.promised


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a bound pod is promised: devices, by the resource that counts them."""

    pod: Pod
    devices: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBook:
    """The books of a node.

    node      the node
    amounts   its extended resources of GPUs, and how much of them is promised
    cpu       CPU in thousandths
    memory    memory in MiB
    pods      number of pods
    held      the pods that hold devices, in the order of their names
    hamis     HAMi's devices with what is given of them; none on other nodes
    shared    KAI's shared devices: the part that is promised of each, 0 to 1, by group
    """

    node: Node
    amounts: Mapping[str, Room]
    cpu: Room
    memory: Room
    pods: Room
    held: tuple[Held, ...] = ()
    hamis: tuple[hami.Device, ...] = ()
    shared: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def closed(self) -> str:
        """Why the node takes no pods, in words; empty if it does."""
        if self.node.spec.unschedulable:
            return "is cordoned"
        if not any(each.type == "Ready" and each.status == _TRUE for each in self.node.status.conditions):
            return "is not ready"
        return ""

    @property
    def model(self) -> str:
        """The model of its devices by its labels or HAMi's annotation; empty where neither says it."""
        labels = self.node.metadata.labels
        said = next((labels[label] for label in _MODELS if labels.get(label)), "")
        return said or next((device.model for device in self.hamis), "")

    @property
    def device_mib(self) -> int:
        """The memory of one of its devices in MiB; 0 where nothing says it."""
        if self.hamis:
            return max(device.memory_mib for device in self.hamis)
        return read_whole(self.node.metadata.labels.get(_DEVICE_MEMORY, ""), otherwise=0)

    def system(self, resource: str) -> DeviceSystem:
        """Who hands out the devices of a resource."""
        if resource == names.GPU_MILLI:
            return "Dovetail"
        if resource == VOLCANO_COUNT:
            return "Volcano"
        if self.hamis and resource == NVIDIA:
            return "HAMi"
        return "KAI" if self.shared and resource == NVIDIA else "DevicePlugin"

    def devices(self, resource: str) -> int:
        """How many devices of a resource the node has. HAMi's plugin advertises each one several times."""
        if self.hamis and resource == NVIDIA:
            return len(self.hamis)
        total = self.amounts[resource].total
        return total // WHOLE_MILLI if resource == names.GPU_MILLI else total

    def promised(self, resource: str) -> float:
        """How many devices of a resource are promised, with parts as fractions."""
        if self.hamis and resource == NVIDIA:
            return sum(device.promised for device in self.hamis)
        promised = self.amounts[resource].promised
        if resource == names.GPU_MILLI:
            return promised / WHOLE_MILLI
        # A pod of KAI's own holds each shared device whole, and those that share it are promised parts.
        shared = self.shared if resource == NVIDIA else {}
        return promised - len(shared) + sum(shared.values())

    def whole_free(self, resource: str) -> int:
        """How many devices of a resource are promised to no pod, not even a part."""
        if self.hamis and resource == NVIDIA:
            return sum(device.healthy and not device.tenants for device in self.hamis)
        free = max(0, self.amounts[resource].free)
        return free // WHOLE_MILLI if resource == names.GPU_MILLI else free


def books_of(nodes: Iterable[Node], *, pods: Iterable[Pod]) -> list[NodeBook]:
    """The books of all nodes, by name."""
    bound: dict[str, list[_Bound]] = defaultdict(list)
    for pod in sorted(pods, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        if pod.spec.node_name and not is_terminated(pod):
            bound[pod.spec.node_name].append((pod, demand_of(pod)))
    ordered = sorted(nodes, key=lambda node: node.metadata.name)
    return [_book(node, bound=bound.get(node.metadata.name, ())) for node in ordered]


def owner_of(pod: Pod) -> str:
    """The kind and name of a pod's controller; empty for none."""
    owner = controller_of(pod)
    return "" if owner is None else f"{owner.kind}/{owner.name}"


def _book(node: Node, *, bound: Sequence[_Bound]) -> NodeBook:
    pods, there = [pod for pod, _ in bound], node.status.allocatable
    devices, device_mib = hami.devices_of(node), _label_mib(node)
    if devices:
        devices = hami.with_tenants(devices, given=[each for pod in pods for each in hami.given_to(pod)])
        device_mib = max(device.memory_mib for device in devices)
    return NodeBook(
        node=node,
        amounts=_amounts(node, demands=[demand for _, demand in bound if demand is not None]),
        cpu=Room(total=_amount(there.get("cpu"), read=milli), promised=_sum(pods, resource="cpu", read=milli)),
        memory=Room(
            total=_amount(there.get("memory"), read=_mebibytes_down),
            promised=_sum(pods, resource="memory", read=mebibytes),
        ),
        pods=Room(total=_amount(there.get("pods", _MOST_PODS), read=whole), promised=len(pods)),
        held=_held(bound, devices=devices, device_mib=device_mib),
        hamis=devices,
        shared=_shared(bound, device_mib=device_mib),
    )


def _amounts(node: Node, *, demands: Sequence[Demand]) -> dict[str, Room]:
    """The extended resources of GPUs; a plugin that is down leaves its resource in the capacity alone."""
    there = node.status.allocatable
    named = sorted(name for name in {*node.status.capacity, *there} if counts_devices(name) or name in _PARTS)
    return {
        name: Room(
            total=_amount(there.get(name), read=whole),
            promised=sum(demand.amounts.get(name, 0) for demand in demands),
        )
        for name in named
    }


def _label_mib(node: Node) -> int:
    return read_whole(node.metadata.labels.get(_DEVICE_MEMORY, ""), otherwise=0)


def _held(bound: Sequence[_Bound], *, devices: Sequence[hami.Device], device_mib: int) -> tuple[Held, ...]:
    """The pods that hold devices; KAI's own hold them for others."""
    found = (
        Held(pod=pod, devices=_devices(pod, demand=demand, devices=devices, device_mib=device_mib))
        for pod, demand in bound
        if demand is not None and not _is_reservation(pod, demand=demand)
    )
    return tuple(each for each in found if any(each.devices.values()))


def _devices(pod: Pod, *, demand: Demand, devices: Sequence[hami.Device], device_mib: int) -> dict[str, float]:
    known = {device.uuid: device for device in devices}
    given = [each for each in hami.given_to(pod) if each.uuid in known]
    if given:
        return {NVIDIA: sum(known[each.uuid].part(each) for each in given)}
    return demand.devices(device_mib=device_mib)


def _is_reservation(pod: Pod, *, demand: Demand) -> bool:
    """Whether it is a pod of KAI's own that holds a device for those that share it."""
    return KAI_GROUP in pod.metadata.labels and not demand.parts and bool(demand.amounts.get(NVIDIA))


def _shared(bound: Sequence[_Bound], *, device_mib: int) -> dict[str, float]:
    """The part of each shared device of KAI's that is promised, by group."""
    found: dict[str, float] = {}
    for pod, demand in bound:
        # Each of several devices is shared by the same part.
        part = sum(each.share_of(device_mib) for each in demand.parts) if demand is not None else 0.0
        for group in _groups(pod):
            found[group] = found.get(group, 0.0) + part
    return {group: min(1.0, part) for group, part in found.items()}


def _groups(pod: Pod) -> list[str]:
    labels = pod.metadata.labels
    several = [label.removeprefix(f"{KAI_GROUP}/") for label in labels if label.startswith(f"{KAI_GROUP}/")]
    return several or ([labels[KAI_GROUP]] if KAI_GROUP in labels else [])


def _sum(pods: Iterable[Pod], *, resource: str, read: Callable[[Quantity], int]) -> int:
    return sum(_peak(pod, resource=resource, read=read) for pod in pods)


def _peak(pod: Pod, *, resource: str, read: Callable[[Quantity], int]) -> int:
    try:
        return peak(pod.spec, resource=resource, read=read)
    except QuantityError:
        return 0


def _amount(text: Quantity | None, *, read: Callable[[Quantity], int]) -> int:
    try:
        return 0 if text is None else max(0, read(text))
    except QuantityError:
        return 0
