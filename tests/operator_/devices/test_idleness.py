"""Whether a device's driver measures its work, and what a job that leaves its devices idle shows."""

from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from dovetail.api.gpunode import Device
from dovetail.api.meta import Condition
from dovetail_operator.devices.idleness import CONDITION, condition_of, reports_utilization
from tests.operator_.builders import NOW, at, condition

DEVICE = Device(index=0, uuid="g", vendor="nvidia", model="V100", memory_mib=1000)


@pytest.mark.parametrize(
    ("measured", "tells"),
    [
        ({}, False),
        ({"temperature_celsius": 0}, True),
        ({"power_watts": 0}, True),
        ({"utilization": 0.01}, True),
        ({"utilization": 0.5, "temperature_celsius": 60, "mig_profile": "1g.10gb"}, False),
    ],
)
def test_a_device_without_any_measurement_and_a_mig_device_tell_no_utilization(
    measured: dict[str, Any], tells: bool
) -> None:
    assert reports_utilization(msgspec.structs.replace(DEVICE, **measured)) is tells


@pytest.mark.parametrize(
    ("since", "before", "finished", "status"),
    [
        pytest.param(None, None, False, None, id="never idle"),
        pytest.param(NOW, None, False, "True", id="idle"),
        pytest.param(NOW, "False", False, "True", id="idle again"),
        pytest.param(None, "True", False, "False", id="at work again"),
        pytest.param(None, "True", True, "True", id="over while idle"),
        pytest.param(NOW, None, True, None, id="over before it was noted"),
    ],
)
def test_the_condition_is(since: datetime | None, before: str | None, finished: bool, status: str | None) -> None:
    known = msgspec.convert(condition(CONDITION, status=before), Condition) if before else None
    found = condition_of(since, before=known, finished=finished, now=at(0))
    assert (found.status if found else None) == status


def test_the_message_has_the_time_in_utc() -> None:
    since = NOW.astimezone(timezone(timedelta(hours=3)))
    found = condition_of(since, before=None, finished=False, now=at(0))
    assert found is not None
    assert found.message == "No GPU work since 2026-01-01T12:00:00Z"
