"""What a job is told that leaves its GPUs idle. Pure."""

from datetime import UTC, datetime
from typing import Final

from dovetail.api.gpunode import Device
from dovetail.api.meta import Condition
from dovetail.formats.durations import timestamp

CONDITION: Final = "Idle"


def tells_utilization(device: Device) -> bool:
    """Whether its driver tells how busy it is.

    Reports say 0 for what is not told: a part of a card (MIG) tells nothing, nor does one of which no figure is known.
    """
    told = device.temperature_celsius is not None or device.power_watts is not None
    return not device.mig_profile and (device.utilization > 0 or told)


def sentence(since: datetime) -> str:
    """For people."""
    return f"No GPU work since {timestamp(since.astimezone(UTC))}"


def condition_of(since: datetime | None, *, before: Condition | None, finished: bool, now: str) -> Condition | None:
    """Whether the job leaves its GPUs idle: said from the first time on. A job that is over keeps what it had."""
    if finished or (since is None and before is None):
        return before
    if since is not None:
        return Condition(
            type=CONDITION, status="True", reason="NoGPUWork", message=sentence(since), last_transition_time=now
        )
    return Condition(
        type=CONDITION, status="False", reason="GPUWork", message="Its GPUs work, or are given back",
        last_transition_time=now,
    )  # fmt: skip
