"""HAMi's books: the devices of its nodes and what its pods were given, as its annotations say. Pure.

The device plugin writes `hami.io/node-nvidia-register`: JSON since HAMi 2.6, and before fields between commas with a
colon after each device. The scheduler writes `hami.io/vgpu-devices-allocated`: UUID, vendor, MiB and percent of compute
between commas, a colon after each device and a semicolon after each container
(https://project-hami.io/docs/developers/protocol).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dovetail.api.builtin import Node, Pod
from dovetail.decoding import UnreadableError, decode
from dovetail.formats.quantities import read_whole
from dovetail.query.explain.observe.demands import Part

REGISTER: Final = "hami.io/node-nvidia-register"
ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
_USE_TYPE: Final = "nvidia.com/use-gputype"
_NO_TYPE: Final = "nvidia.com/nouse-gputype"
_USE_UUID: Final = "nvidia.com/use-gpuuuid"
_NO_UUID: Final = "nvidia.com/nouse-gpuuuid"
# The old form: id, tenants, MiB, percent of compute, model, NUMA node, health.
_FIELDS: Final = 7
_ALL_CORES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a pod was given of a device."""

    uuid: str
    memory_mib: int
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of a HAMi node, and what its tenants were given of it."""

    uuid: str
    model: str
    memory_mib: int
    cores: int
    most_tenants: int
    healthy: bool = True
    tenants: int = 0
    used_mib: int = 0
    used_cores: int = 0

    @property
    def promised(self) -> float:
        """The part of the device that is promised: the larger of memory and compute, 0 to 1."""
        return self.part(Given(uuid=self.uuid, memory_mib=self.used_mib, cores=self.used_cores))

    def part(self, given: Given) -> float:
        """The part of the device that something given of it is: the larger of memory and compute, 0 to 1."""
        memory = given.memory_mib / self.memory_mib if self.memory_mib else 0.0
        return min(1.0, max(memory, given.cores / self.cores if self.cores else 0.0))


def devices_of(node: Node) -> tuple[Device, ...]:
    """The devices of a HAMi node without tenants; none where the annotation cannot be read."""
    text = node.metadata.annotations.get(REGISTER, "").strip()
    if text.startswith("["):
        try:
            found = decode(text, as_type=list[dict[str, Any]])
        except UnreadableError:
            return ()
        return tuple(_from_json(each) for each in found)
    rows = (each.split(",") for each in text.split(":") if each.strip())
    return tuple(_from_fields(row) for row in rows if len(row) >= _FIELDS)


def _from_json(said: Mapping[str, Any]) -> Device:
    return Device(
        uuid=str(said.get("id", "")),
        model=str(said.get("type", "")),
        memory_mib=_number(said.get("devmem")),
        cores=_number(said.get("devcore")),
        most_tenants=_number(said.get("count")),
        # The field is left out of JSON where it is false.
        healthy=bool(said.get("health", False)),
    )


def _from_fields(row: Sequence[str]) -> Device:
    uuid, count, memory, cores, model, _numa, health, *_ = (each.strip() for each in row)
    return Device(
        uuid=uuid,
        model=model,
        memory_mib=_number(memory),
        cores=_number(cores),
        most_tenants=_number(count),
        healthy=health == "true",
    )


def _number(said: Any) -> int:
    return read_whole(str(said), otherwise=0)


def given_to(pod: Pod) -> tuple[Given, ...]:
    """What HAMi's scheduler gave a pod; none where it gave nothing yet."""
    text = pod.metadata.annotations.get(ALLOCATED, "")
    rows = [row.split(",") for container in text.split(";") for row in container.split(":") if row.strip()]
    return tuple(
        Given(uuid=row[0].strip(), memory_mib=_number(row[2].strip()), cores=_number(row[3].strip()))
        for row in rows
        if len(row) > 3
    )


def with_tenants(devices: Sequence[Device], *, given: Iterable[Given]) -> tuple[Device, ...]:
    """The devices with what pods were given of them."""
    found = {device.uuid: device for device in devices}
    for each in given:
        if (device := found.get(each.uuid)) is not None:
            found[each.uuid] = _with(device, memory_mib=each.memory_mib, cores=each.cores)
    return tuple(found.values())


def has_room(devices: Sequence[Device], *, parts: Sequence[Part], annotations: Mapping[str, str]) -> bool:
    """Whether HAMi's rules give every container its parts; the fullest devices are tried first."""
    left, admits = list(devices), _admission(annotations)
    for part in parts:
        fitting = [device for device in left if admits(device) and _fits(device, part=part)]
        chosen = sorted(fitting, key=lambda device: device.memory_mib - device.used_mib)[: part.count]
        if len(chosen) < part.count:
            return False
        taken = {device.uuid for device in chosen}
        left = [
            _with(device, memory_mib=part.memory_of(device.memory_mib), cores=part.cores)
            if device.uuid in taken
            else device
            for device in left
        ]
    return True


def could_have(devices: Sequence[Device], *, parts: Sequence[Part], annotations: Mapping[str, str]) -> bool:
    """Whether the parts fit on the devices without tenants."""
    empty = [replace(device, tenants=0, used_mib=0, used_cores=0) for device in devices]
    return has_room(empty, parts=parts, annotations=annotations)


def _with(device: Device, *, memory_mib: int, cores: int) -> Device:
    return replace(
        device,
        tenants=device.tenants + 1,
        used_mib=device.used_mib + memory_mib,
        used_cores=device.used_cores + cores,
    )


def _fits(device: Device, *, part: Part) -> bool:
    if not device.healthy or device.tenants >= device.most_tenants:
        return False
    if device.used_mib + part.memory_of(device.memory_mib) > device.memory_mib:
        return False
    if device.used_cores + part.cores > device.cores:
        return False
    # All compute means the device alone; a device whose compute is given out also takes no tenant without a limit.
    if part.cores == _ALL_CORES and device.tenants:
        return False
    return not (device.cores and device.used_cores == device.cores and not part.cores)


def _admission(annotations: Mapping[str, str]) -> Callable[[Device], bool]:
    """Whether a pod's annotations admit a device: HAMi looks for their words in the name of the model."""
    types, no_types = _words(annotations, key=_USE_TYPE), _words(annotations, key=_NO_TYPE)
    uuids, no_uuids = _words(annotations, key=_USE_UUID), _words(annotations, key=_NO_UUID)

    def admits(device: Device) -> bool:
        model, uuid = device.model.lower(), device.uuid.lower()
        return (
            (not types or any(word in model for word in types))
            and not any(word in model for word in no_types)
            and (not uuids or uuid in uuids)
            and uuid not in no_uuids
        )

    return admits


def _words(annotations: Mapping[str, str], *, key: str) -> tuple[str, ...]:
    return tuple(word for each in annotations.get(key, "").split(",") if (word := each.strip().lower()))
