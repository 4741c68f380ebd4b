"""The condition of a job that leaves its GPUs idle. Pure."""

from datetime import UTC, datetime
from typing import Final

from dovetail import names
from dovetail.api.gpunode import Device
from dovetail.api.meta import Condition
from dovetail.api.reasons.conditions import IDLE_SINCE, NOT_IDLE, condition
from dovetail.formats.durations import timestamp

CONDITION: Final = names.CONDITION_IDLE


def reports_utilization(device: Device) -> bool:
    """Whether the device's driver reports utilization.

    Reports have 0 for a missing value. A MIG instance has no value, nor has a device without any other measurement.
    """
    is_measured = device.temperature_celsius is not None or device.power_watts is not None
    return not device.mig_profile and (device.utilization > 0 or is_measured)


def condition_of(since: datetime | None, *, before: Condition | None, finished: bool, now: str) -> Condition | None:
    """Whether the job leaves its GPUs idle; None before the first time.

    A finished job keeps its condition.
    """
    if finished or (since is None and before is None):
        return before
    if since is not None:
        why = IDLE_SINCE(time=timestamp(since.astimezone(UTC)))
        return condition(CONDITION, status="True", why=why, at=now)
    return condition(CONDITION, status="False", why=NOT_IDLE(), at=now)
