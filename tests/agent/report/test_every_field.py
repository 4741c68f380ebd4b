"""Each field of a report, changed alone: it is news at once, unless it is named here as a figure that always moves."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest

from dovetail.api.gpunode import (
    Assignment,
    Device,
    Enforcement,
    Fault,
    GPUNodeStatus,
    Links,
    Overuse,
    ReshapableCard,
    Stranger,
    TenantTotal,
    TenantUse,
)
from dovetail.api.meta import Condition
from dovetail_agent.report import node_status
from dovetail_agent.report.publishing import Pace, Why, worth_publishing
from tests.agent.builders import NOON

PACE: Final = Pace(threshold=0.05, heartbeat=timedelta(minutes=5))
AT: Final = node_status.timestamp(NOON)
DEVICE: Final = Device(
    index=0, uuid="GPU-0", vendor="nvidia", model="V100", memory_mib=1000, reserved_mib=10, used_mib=100,
    foreign_mib=10, tenants=[TenantUse(uid="u", used_mib=9)], totals=[TenantTotal(uid="u")], utilization=0.5,
    temperature_celsius=40, power_watts=100, compute_capability="9.0", mig_profile="1g.10gb", parent="GPU-9",
    pci_bus_id="0000:3b:00.0", numa_node=0, links=Links(nvlink=[1]), health="Unhealthy", health_reason="Xid79",
    strangers=[Stranger(pid=7)], taint="Strangers", faults=[Fault(reason="Xid79", at=AT)],
)  # fmt: skip
REPORT: Final = GPUNodeStatus(
    observed_at=AT, measured_at=AT, boot_id="b", provider="nvml", driver_version="580", runtime_version="13",
    enforcement=Enforcement(mps=True), gpus=1, free="0.5", cpu_utilization=0.5, memory_utilization=0.5,
    devices=[DEVICE], reshapable=[ReshapableCard(uuid="GPU-9", index=0, model="A100", slots=[])],
    assignments=[Assignment(uid="u", namespace="team", name="p", devices=["GPU-0"])],
    overuses=[
        Overuse(uid="u", namespace="team", name="p", device="GPU-0", index=0, promised_mib=5, used_mib=9, since=AT)
    ],
    tenants_asked=1,
    conditions=[Condition(type="Ready", status="True", last_transition_time=AT, reason="r", message="m")],
)  # fmt: skip
# These go along with the next report. Those of load ask for one by themselves, beyond a threshold.
FIGURES: Final = {
    "status": {"observed_at", "measured_at", "free", "cpu_utilization", "memory_utilization"},
    "device": {
        "used_mib", "foreign_mib", "tenants", "totals", "utilization", "temperature_celsius", "power_watts",
    },
    "fault": {"at"},
    "overuse": {"used_mib"},
    "condition": {"last_transition_time"},
}  # fmt: skip


def of_device(device: Device) -> GPUNodeStatus:
    return msgspec.structs.replace(REPORT, devices=[device])


# Each part of the report with how the report is put together from it.
PARTS: Final[dict[str, tuple[Any, Callable[[Any], GPUNodeStatus]]]] = {
    "status": (REPORT, lambda part: part),
    "device": (DEVICE, of_device),
    "fault": (DEVICE.faults[0], lambda part: of_device(msgspec.structs.replace(DEVICE, faults=[part]))),
    "overuse": (REPORT.overuses[0], lambda part: msgspec.structs.replace(REPORT, overuses=[part])),
    "condition": (REPORT.conditions[0], lambda part: msgspec.structs.replace(REPORT, conditions=[part])),
}
FIELDS: Final = [(name, field) for name, (part, _) in PARTS.items() for field in part.__struct_fields__]


def other(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}-" if not value.endswith("Z") else node_status.timestamp(NOON + timedelta(seconds=1))
        case list():
            return []
        case Links():
            return Links()
        case Enforcement():
            return Enforcement()
    raise AssertionError(f"a value of another type: give one for {value!r}")


@pytest.mark.parametrize(("part", "field"), FIELDS)
def test_whatever_differs_is_news_unless_it_moves_all_the_time(part: str, field: str) -> None:
    whole, build = PARTS[part]
    changed = build(msgspec.structs.replace(whole, **{field: other(getattr(whole, field))}))
    is_news = worth_publishing(changed, published=REPORT, pace=PACE) == Why.CHANGE
    assert is_news == (field not in FIGURES[part])


def test_a_report_like_the_one_before_is_no_news() -> None:
    assert worth_publishing(REPORT, published=REPORT, pace=PACE) is None
