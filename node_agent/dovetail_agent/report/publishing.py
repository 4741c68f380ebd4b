"""Decides whether to write a report: on a change, on a load change, or as a heartbeat. Pure.

Every write goes into etcd and to all watchers. At 5,000 nodes, a report every 10 s is hundreds of megabytes a minute.
On change plus a heartbeat, it is a few.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Final

import msgspec

from dovetail.api.gpunode import Device, GPUNodeStatus

# Ratios are in hundredths, but the difference of two floats is not: 0.55 - 0.5 is above 0.05.
_ROUNDING: Final = 1e-9


class Why(StrEnum):
    """Why a report is published."""

    FIRST = "first"
    CHANGE = "change"
    LOAD = "load"
    UTILIZATION = "utilization"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The load change (a ratio of the whole) that triggers a write, and the longest silence.

    `between` is the shortest time between two reports that differ only in load: it combines workers that start one
    after the other. `between_utilization` is that time where only utilization differs, which moves all the time and
    which readers smooth. A device whose utilization rises to `idle_below` begins to work, and is not idle from then on.
    """

    threshold: float
    heartbeat: timedelta
    between: timedelta = timedelta()
    between_utilization: timedelta = timedelta()
    idle_below: float = 0.0

    def wait_seconds(self, why: Why | None, *, report: GPUNodeStatus, published: GPUNodeStatus | None) -> float:
        """How many seconds a report with this reason may wait; 0 for now."""
        pause = {Why.LOAD: self.between, Why.UTILIZATION: self.between_utilization}.get(why or Why.CHANGE)
        if pause is None or published is None:
            return 0.0
        # A report that waited past the heartbeat could become older than `measurement_max_age` allows.
        return max(0.0, (min(pause, self.heartbeat) - (_time(report) - _time(published))).total_seconds())


def worth_publishing(report: GPUNodeStatus, *, published: GPUNodeStatus | None, pace: Pace) -> Why | None:
    """Return why `report` should replace the published one, or None if it may wait."""
    if published is None or published.observed_at is None:
        return Why.FIRST
    if _lasting(report) != _lasting(published):
        return Why.CHANGE
    if load := _moved(report, published=published, pace=pace):
        return load
    if _time(report) - _time(published) >= pace.heartbeat:
        return Why.HEARTBEAT
    return None


def _time(status: GPUNodeStatus) -> datetime:
    return datetime.fromisoformat(status.observed_at or "")


def _lasting(status: GPUNodeStatus) -> GPUNodeStatus:
    """Return the report without the figures that change all the time.

    Any other difference is a change.
    """
    return msgspec.structs.replace(
        status,
        observed_at=None,
        measured_at=None,
        free="",
        cpu_utilization=0.0,
        memory_utilization=0.0,
        devices=[
            msgspec.structs.replace(
                device,
                used_mib=0,
                foreign_mib=0,
                tenants=[],
                totals=[],
                utilization=0.0,
                temperature_celsius=None,
                power_watts=None,
                # Errors come in bursts: a repeated error is reported with the next write.
                faults=[msgspec.structs.replace(fault, at="") for fault in device.faults],
            )
            for device in status.devices
        ],
        overuses=[msgspec.structs.replace(each, used_mib=0) for each in status.overuses],
        conditions=[msgspec.structs.replace(condition, last_transition_time="") for condition in status.conditions],
    )


def _moved(report: GPUNodeStatus, *, published: GPUNodeStatus, pace: Pace) -> Why | None:
    pairs = list(zip(report.devices, published.devices, strict=True))
    if report.free != published.free or any(_load_moved(now, before=before, pace=pace) for now, before in pairs):
        return Why.LOAD
    utilization = [
        (report.cpu_utilization, published.cpu_utilization),
        (report.memory_utilization, published.memory_utilization),
        *((now.utilization, before.utilization) for now, before in pairs),
    ]
    moved = any(_differ(now, before=before, threshold=pace.threshold) for now, before in utilization)
    return Why.UTILIZATION if moved else None


def _load_moved(now: Device, *, before: Device, pace: Pace) -> bool:
    """Whether a device's memory has moved, or the device begins to work: an idle job may be ended."""
    total = max(1, now.memory_mib)
    moved = partial(_differ, threshold=pace.threshold)
    return (
        _tenant_grew(now, before=before, threshold=pace.threshold)
        or moved(now.used_mib / total, before=before.used_mib / total)
        or moved(now.foreign_mib / total, before=before.foreign_mib / total)
        or (
            before.utilization < pace.idle_below <= now.utilization
            and moved(now.utilization, before=before.utilization)
        )
    )


def _tenant_grew(now: Device, *, before: Device, threshold: float) -> bool:
    """Whether a tenant's use has grown by more than `threshold` of the published use.

    The operator learns a job's memory needs from its peak.
    """
    used_before = {tenant.uid: tenant.used_mib for tenant in before.tenants}
    return any(tenant.used_mib > used_before.get(tenant.uid, 0) * (1 + threshold) for tenant in now.tenants)


def _differ(now: float, *, before: float, threshold: float) -> bool:
    return abs(now - before) > threshold + _ROUNDING
