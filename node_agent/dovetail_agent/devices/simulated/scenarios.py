"""The scenarios of simulated nodes from `simulated.yaml`: faults, load curves, topologies.

Pure.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from importlib import resources
from typing import Annotated, Final, Literal

import msgspec
import yaml
from msgspec import Meta

from dovetail.api.gpunode import Links
from dovetail.decoding import convert
from dovetail.gpu.models import normalise
from dovetail_agent.devices.model import DeviceInfo, DeviceSample

Ratio = Annotated[float, Meta(ge=0, le=1)]
# Models with NVLink between the devices of a socket.
_NVLINK_FAMILIES: Final = frozenset({"P100", "V100", "A100", "A800", "H100", "H800", "H200", "B200"})
_HOUR_SECONDS: Final = 3600
Absent = Literal["utilization", "temperatureCelsius", "powerWatts", "usedByTenantMib"]


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    about: str


class Fault(_Entry, frozen=True, kw_only=True):
    """What a faulty device does.

    - `unhealthy`: whether it takes no work.
    - `silent`: whether it reports no figures.
    - `hangs`: a driver call that never returns; empty for none.
    - `unlinked`: whether its NVLinks are down.
    - `pace`: factor on its utilization, from 0 to 1.
    - `celsius_at_least`: lowest temperature in degrees Celsius.
    - `throttled_by`: what lowers its clocks.
    - `ecc_corrected`: count of corrected memory errors.
    - `ecc_uncorrected`: count of uncorrected memory errors.
    - `remapped_rows`: rows of memory taken out of use.
    - `foreign_ratio`: ratio of its memory used by others.
    - `foreign_ratio_per_hour`: growth of that ratio within each hour.
    - `absent`: figures that it does not report.
    """

    unhealthy: bool = True
    silent: bool = True
    hangs: str = ""
    unlinked: bool = False
    pace: Ratio = 1.0
    celsius_at_least: int = 0
    throttled_by: tuple[str, ...] | None = None
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0
    remapped_rows: int | None = None
    foreign_ratio: Ratio = 0.0
    foreign_ratio_per_hour: Ratio = 0.0
    absent: tuple[Absent, ...] = ()


class Pause(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A pause: for `seconds` of every `every_seconds`, a pod computes at `level` instead."""

    every_seconds: int
    seconds: int
    level: Ratio


class Load(_Entry, frozen=True, kw_only=True):
    """How much a pod computes, and which ratio of its memory it fills, over time."""

    level: Ratio
    spread: Ratio
    wave: Ratio
    period_seconds: tuple[int, int]
    memory: tuple[Ratio, Ratio]
    pause: Pause | None = None


class Topology(_Entry, frozen=True, kw_only=True):
    """How the devices of a node are connected."""

    sockets: Literal[1, 2]
    nvlink: Literal["all", "socket", "pairs", "none", "model"]


class Scenarios(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All scenarios, by name."""

    faults: Mapping[str, Fault]
    loads: Mapping[str, Load]
    topologies: Mapping[str, Topology]


def _read() -> Scenarios:
    text = resources.files("dovetail_agent").joinpath("simulated.yaml").read_text(encoding="utf-8")
    return convert(yaml.safe_load(text), as_type=Scenarios)


SCENARIOS: Final = _read()
# The effect of a fault that is not in `simulated.yaml`.
OTHER_FAULT: Final = Fault(about="")


def compute_level(workload: str, *, now: datetime, load: str = "Mixed") -> float:
    """Return the ratio of its share that a workload uses: its level, a slow wave, and pauses."""
    curve = SCENARIOS.loads[load]
    level, phase, pace = traits(workload)
    shortest, longest = curve.period_seconds
    seconds, period = now.timestamp(), shortest + (longest - shortest) * pace
    if curve.pause and (seconds + phase * curve.pause.every_seconds) % curve.pause.every_seconds < curve.pause.seconds:
        return curve.pause.level
    wave = curve.wave * math.sin(2 * math.pi * (seconds / period + phase))
    return min(1.0, max(0.0, curve.level + curve.spread * level + wave))


def memory_level(workload: str, *, load: str = "Mixed") -> float:
    """Return the ratio of its promised memory that a workload fills."""
    least, most = SCENARIOS.loads[load].memory
    return least + (most - least) * traits(workload)[0]


def traits(workload: str) -> tuple[float, float, float]:
    """Derive three numbers in [0, 1) from a workload's name alone."""
    digest = hashlib.blake2b(workload.encode(), digest_size=6).digest()
    first, second, third = (int.from_bytes(digest[at : at + 2]) / 65536 for at in (0, 2, 4))
    return first, second, third


def wiring(index: int, *, count: int, model: str, topology: str) -> tuple[int, Links]:
    """Return a device's socket and its links."""
    shape = SCENARIOS.topologies[topology]
    half = count if count < 4 or shape.sockets == 1 else -(-count // 2)
    others = [other for other in range(count) if other != index]
    socket = [other for other in others if other // half == index // half]
    pair = [other for other in socket if other // 2 == index // 2]
    linked = normalise(model).family in _NVLINK_FAMILIES
    nvlink = {"all": others, "socket": socket, "pairs": pair, "none": [], "model": socket if linked else []}
    return index // half, Links(nvlink=nvlink[shape.nvlink], switch=pair)


def unlinked(devices: tuple[DeviceInfo, ...], *, faults: Mapping[int, Fault]) -> tuple[DeviceInfo, ...]:
    """Remove the NVLinks of the devices whose links are down."""
    down = {index for index, fault in faults.items() if fault.unlinked}
    if not down:
        return devices
    return tuple(
        replace(device, links=Links(nvlink=_left(device, down=down), switch=device.links.switch)) for device in devices
    )


def _left(device: DeviceInfo, *, down: set[int]) -> list[int]:
    return [] if device.index in down else [other for other in device.links.nvlink if other not in down]


def afflicted(sample: DeviceSample, *, name: str, fault: Fault, device: DeviceInfo, now: datetime) -> DeviceSample:
    """Apply a fault to a device's sample."""
    reason = name if fault.unhealthy else ""
    if fault.silent:
        return DeviceSample(unhealthy_reason=reason)
    celsius = None if sample.temperature_celsius is None else max(sample.temperature_celsius, fault.celsius_at_least)
    whole = replace(
        sample,
        used_mib=min(device.memory_mib, (sample.used_mib or 0) + _foreign_mib(fault, device=device, now=now)),
        utilization=None if sample.utilization is None else sample.utilization * fault.pace,
        temperature_celsius=celsius,
        throttled_by=fault.throttled_by,
        ecc_errors={"corrected": fault.ecc_corrected, "uncorrected": fault.ecc_uncorrected},
        remapped_rows=fault.remapped_rows,
        unhealthy_reason=reason,
    )
    return replace(
        whole,
        utilization=None if "utilization" in fault.absent else whole.utilization,
        temperature_celsius=None if "temperatureCelsius" in fault.absent else whole.temperature_celsius,
        power_watts=None if "powerWatts" in fault.absent else whole.power_watts,
        used_by_tenant_mib=None if "usedByTenantMib" in fault.absent else whole.used_by_tenant_mib,
    )


def _foreign_mib(fault: Fault, *, device: DeviceInfo, now: datetime) -> int:
    grown = fault.foreign_ratio_per_hour * (now.timestamp() % _HOUR_SECONDS) / _HOUR_SECONDS
    return int(device.memory_mib * min(1.0, fault.foreign_ratio + grown))
