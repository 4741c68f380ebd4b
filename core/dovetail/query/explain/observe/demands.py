"""What a pod asks for in the words of any system, as amounts of its node and parts of devices. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dovetail import names
from dovetail.answers.observe import DeviceSystem
from dovetail.api.builtin import Pod, PodSpec
from dovetail.formats.quantities import QuantityError, mebibytes, milli, whole
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, KNOWN_RESOURCES, is_mig
from dovetail.gpu.request import WHOLE_MILLI, GPURequest, RequestError
from dovetail.pods.containers import every_container, peak
from dovetail.pods.translation.annotations import fraction_in
from dovetail.pods.translation.resources import FOREIGN, asked_of_hami

NVIDIA: Final = KNOWN_RESOURCES["nvidia"]
# What HAMi's extender counts and no node advertises; Volcano's plugin advertises its own.
_UNADVERTISED: Final = frozenset(name for name in FOREIGN if name.startswith("nvidia.com/"))
# The count of Volcano's devices, of which its other resources are parts.
VOLCANO_COUNT: Final = "volcano.sh/vgpu-number"
# Devices whose plugins Dovetail does not serve, and that such clusters have all the same.
_OTHERS: Final = frozenset(
    {
        "nvidia.com/gpu.shared", "amd.com/gpu.shared", "gpu.intel.com/xe", "habana.ai/gaudi", "google.com/tpu",
        "aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "aws.amazon.com/neurondevice",
    }
)  # fmt: skip
_COUNTED: Final = frozenset({*DEFAULT_VENDORS.resources, VOLCANO_COUNT, names.GPU_MILLI, *_OTHERS})
_MILLI_OF_PERCENT: Final = WHOLE_MILLI // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The same part of each of some devices, for one container.

    count        of so many devices
    memory_mib   memory of each, in MiB; None: `share_milli` says it
    share_milli  the part of each device's memory, in thousandths
    cores        the part of each device's compute, in percent; 0 for no limit, as HAMi means it
    """

    count: int = 1
    memory_mib: int | None = None
    share_milli: int = WHOLE_MILLI
    cores: int = 0

    def memory_of(self, device_mib: int) -> int:
        """The memory that it takes of a device, in MiB."""
        return device_mib * self.share_milli // WHOLE_MILLI if self.memory_mib is None else self.memory_mib

    def share_of(self, device_mib: int) -> float:
        """The part that it takes of a device of so much memory; a whole one where that is not known."""
        if self.memory_mib is None:
            return self.share_milli / WHOLE_MILLI
        return self.memory_mib / device_mib if device_mib else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a pod asks for.

    words        the devices, in the words of its manifest
    amounts      extended resources that its node must have, by name
    cpu_milli    CPU of its node
    memory_mib   memory of its node
    parts        parts of devices that only HAMi or KAI count, for each container
    system       who counts the parts; None without parts
    problem      why its request cannot be read; empty if it can
    annotations  those of a pod with parts: they may admit or exclude models and devices
    """

    words: str
    amounts: Mapping[str, int] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_mib: int = 0
    parts: tuple[Part, ...] = ()
    system: DeviceSystem | None = None
    problem: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    def devices(self, *, device_mib: int = 0) -> dict[str, float]:
        """Devices by the resource that counts them; parts, of devices of `device_mib`, are fractions of them."""
        if self.parts:
            return {NVIDIA: sum(part.count * part.share_of(device_mib) for part in self.parts)}
        return {name: devices_of(name, amount=amount) for name, amount in self.amounts.items() if counts_devices(name)}


def counts_devices(resource: str) -> bool:
    """Whether a resource counts devices, or thousandths of them, and not their memory or compute."""
    return resource in _COUNTED or is_mig(resource)


def devices_of(resource: str, *, amount: int) -> float:
    """How many devices an amount of a resource is."""
    return amount / WHOLE_MILLI if resource == names.GPU_MILLI else amount


def demand_of(pod: Pod) -> Demand | None:
    """What a pod asks for; None for a pod without GPUs."""
    named = sorted(set(_named(pod.spec)))
    parts, system, said, problem = _parts_of(pod, named=named)
    try:
        amounts = {name: amount for name in named if (amount := peak(pod.spec, resource=name, read=whole))}
        cpu_milli = peak(pod.spec, resource="cpu", read=milli)
        memory_mib = peak(pod.spec, resource="memory", read=mebibytes)
    except QuantityError as error:
        return Demand(words=", ".join(named), problem=str(error)) if named or parts else None
    if not amounts and not parts and not problem:
        return None
    return Demand(
        words=", ".join(filter(None, (*(f"{name}: {amount}" for name, amount in amounts.items()), said))),
        amounts={name: amount for name, amount in amounts.items() if name not in _UNADVERTISED},
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        parts=parts,
        system=system,
        problem=problem,
        annotations=pod.metadata.annotations if parts else {},
    )


def _named(spec: PodSpec) -> Iterator[str]:
    """The resources of GPUs that a pod names."""
    for container in every_container(spec):
        for name in (*container.resources.requests, *container.resources.limits):
            if counts_devices(name) or name in FOREIGN or name in names.MANAGED_RESOURCES:
                yield name


def _parts_of(pod: Pod, *, named: list[str]) -> tuple[tuple[Part, ...], DeviceSystem | None, str, str]:
    """The parts that a pod asks of HAMi or KAI, whose they are, KAI's words, and what is wrong with the request."""
    try:
        if (fraction := fraction_in(pod.metadata.annotations)) is not None:
            return (_part(fraction.request, limits_cores=False),), "KAI", fraction.words, ""
        if _UNADVERTISED.isdisjoint(named):
            return (), None, "", ""
        asked = asked_of_hami(pod)
    except (RequestError, QuantityError) as error:
        return (), None, "", str(error)
    return tuple(_part(each.request, limits_cores=not each.in_turns) for each in asked), "HAMi", "", ""


def _part(request: GPURequest, *, limits_cores: bool) -> Part:
    if request.memory_mib is None and request.memory_percent is None:
        return Part(count=request.count, share_milli=request.share_milli)
    return Part(
        count=request.count,
        memory_mib=request.memory_mib,
        share_milli=_MILLI_OF_PERCENT * (request.memory_percent or 0),
        cores=request.share_milli // _MILLI_OF_PERCENT if limits_cores else 0,
    )
