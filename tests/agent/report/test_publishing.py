from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.gpunode import Device, Fault, GPUNodeStatus, TenantUse
from dovetail_agent.report import node_status
from dovetail_agent.report.publishing import Pace, Why, worth_publishing
from tests.agent.builders import NOON

PACE = Pace(threshold=0.05, heartbeat=timedelta(seconds=300))


def use(used_mib: int, *, uid: str = "pod-uid") -> TenantUse:
    return TenantUse(uid=uid, used_mib=used_mib)


DEVICE = Device(
    index=0, uuid="GPU-0", vendor="nvidia", model="V100", memory_mib=1000, utilization=0.5, used_mib=100,
    tenants=[use(100)],
)  # fmt: skip
PUBLISHED = GPUNodeStatus(observed_at=node_status.timestamp(NOON), provider="simulated", devices=[DEVICE])


def seen(
    *, after_seconds: float = 30, cpu_utilization: float = 0.0, devices: Any = None, **device: Any
) -> GPUNodeStatus:
    return msgspec.structs.replace(
        PUBLISHED,
        observed_at=node_status.timestamp(NOON + timedelta(seconds=after_seconds)),
        cpu_utilization=cpu_utilization,
        devices=[msgspec.structs.replace(DEVICE, **device)] if devices is None else devices,
    )


def test_the_first_report_is_published() -> None:
    assert worth_publishing(seen(), published=None, pace=PACE) == Why.FIRST


def test_a_newer_measurement_alone_is_no_news() -> None:
    newer = msgspec.structs.replace(seen(), measured_at=node_status.timestamp(NOON))
    assert worth_publishing(newer, published=PUBLISHED, pace=PACE) is None


def test_an_object_without_a_report_gets_one() -> None:
    assert worth_publishing(seen(), published=GPUNodeStatus(), pace=PACE) == Why.FIRST


@pytest.mark.parametrize(
    ("now", "why"),
    [
        pytest.param(seen(), None, id="nothing new"),
        pytest.param(seen(utilization=0.55), None, id="load moved by the threshold"),
        pytest.param(seen(utilization=0.56), Why.UTILIZATION, id="load moved beyond the threshold"),
        pytest.param(seen(utilization=0.44), Why.UTILIZATION, id="load fell beyond the threshold"),
        pytest.param(seen(utilization=0.56, used_mib=151), Why.LOAD, id="memory moved with the load"),
        pytest.param(seen(used_mib=150), None, id="memory moved by the threshold of the total"),
        pytest.param(seen(used_mib=151), Why.LOAD, id="memory moved beyond it"),
        pytest.param(seen(foreign_mib=60), Why.LOAD, id="foreign memory appeared"),
        pytest.param(msgspec.structs.replace(seen(), free="0.5"), Why.LOAD, id="a pod was promised a part"),
        pytest.param(seen(tenants=[use(100)]), None, id="a tenant uses what was told"),
        pytest.param(seen(tenants=[use(105)]), None, id="a tenant grew by the threshold of what was told"),
        pytest.param(seen(tenants=[use(106)]), Why.LOAD, id="a tenant grew beyond it"),
        pytest.param(seen(tenants=[use(106), use(1, uid="new")]), Why.LOAD, id="a new tenant uses memory"),
        pytest.param(seen(tenants=[use(0, uid="new")]), None, id="a new tenant uses none yet"),
        pytest.param(seen(tenants=[use(1, uid="new")]), Why.LOAD, id="a new tenant uses 1 MiB"),
        pytest.param(seen(tenants=[]), None, id="a tenant left"),
        pytest.param(seen(cpu_utilization=0.2), Why.UTILIZATION, id="the host's load moved"),
        pytest.param(seen(cpu_utilization=0.05), None, id="the host's load moved by the threshold"),
        pytest.param(seen(foreign_mib=50), None, id="foreign memory appeared by the threshold of the total"),
        pytest.param(seen(foreign_mib=51), Why.LOAD, id="foreign memory appeared beyond it"),
        pytest.param(seen(temperature_celsius=80, power_watts=300), None, id="temperature and power are for metrics"),
        pytest.param(seen(health="Unhealthy", health_reason="XID79"), Why.CHANGE, id="a device broke"),
        pytest.param(seen(devices=[DEVICE, DEVICE]), Why.CHANGE, id="a device more"),
        pytest.param(seen(devices=[]), Why.CHANGE, id="no device left"),
        pytest.param(seen(memory_mib=2000), Why.CHANGE, id="another card"),
        pytest.param(seen(after_seconds=299), None, id="before the heartbeat"),
        pytest.param(seen(after_seconds=300), Why.HEARTBEAT, id="the heartbeat"),
    ],
)
def test_what_is_worth_a_write(now: GPUNodeStatus, why: Why | None) -> None:
    assert worth_publishing(now, published=PUBLISHED, pace=PACE) == why


def test_a_threshold_of_zero_tells_every_change() -> None:
    pace = Pace(threshold=0.0, heartbeat=timedelta(seconds=300))
    assert worth_publishing(seen(utilization=0.51), published=PUBLISHED, pace=pace) == Why.UTILIZATION
    assert worth_publishing(seen(), published=PUBLISHED, pace=pace) is None


def test_a_condition_that_turns_is_told_at_once() -> None:
    ready = node_status.unreadable("no", provider="simulated", previous=PUBLISHED, now=NOON)
    assert worth_publishing(ready, published=PUBLISHED, pace=PACE) == Why.CHANGE
    still = node_status.unreadable("no", provider="simulated", previous=ready, now=NOON + timedelta(seconds=30))
    assert worth_publishing(still, published=ready, pace=PACE) is None


def test_an_error_that_comes_again_and_again_is_told_once() -> None:
    def faulty(at: str) -> GPUNodeStatus:
        return seen(
            health="Unhealthy", health_reason="Xid74NvLinkError", faults=[Fault(reason="Xid74NvLinkError", at=at)]
        )

    first, again = faulty("2026-11-21T12:00:00Z"), faulty("2026-11-21T12:00:15Z")
    assert worth_publishing(first, published=PUBLISHED, pace=PACE) == Why.CHANGE
    assert worth_publishing(again, published=first, pace=PACE) is None


@pytest.mark.parametrize(
    ("why", "after_seconds", "wait"),
    [
        (Why.LOAD, 1, 4.0), (Why.LOAD, 5, 0.0), (Why.UTILIZATION, 30, 30.0), (Why.UTILIZATION, 60, 0.0),
        (Why.CHANGE, 1, 0.0), (Why.FIRST, 1, 0.0), (None, 1, 0.0),
    ],
)  # fmt: skip
def test_only_another_load_waits_for_more_of_its_kind(why: Why | None, after_seconds: float, wait: float) -> None:
    pace = replace(PACE, between=timedelta(seconds=5), between_utilization=timedelta(seconds=60))
    assert pace.wait_seconds(why, report=seen(after_seconds=after_seconds), published=PUBLISHED) == wait


@pytest.mark.parametrize("why", [Why.LOAD, Why.UTILIZATION])
def test_no_load_waits_past_the_heartbeat(why: Why) -> None:
    pause = timedelta(seconds=60)
    pace = Pace(threshold=0.05, heartbeat=timedelta(seconds=30), between=pause, between_utilization=pause)
    assert pace.wait_seconds(why, report=seen(after_seconds=20), published=PUBLISHED) == 10
    assert pace.wait_seconds(why, report=seen(after_seconds=30), published=PUBLISHED) == 0


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        pytest.param(0.1, 0.5, Why.LOAD, id="a device begins to work"),
        pytest.param(0.1, 0.2, Why.LOAD, id="it is busy enough not to be idle"),
        pytest.param(0.1, 0.19, Why.UTILIZATION, id="it is still idle"),
        pytest.param(0.2, 0.5, Why.UTILIZATION, id="it was no longer idle before"),
        pytest.param(0.5, 0.1, Why.UTILIZATION, id="it becomes idle"),
        pytest.param(0.18, 0.21, None, id="it moved by less than the threshold"),
    ],
)
def test_a_device_that_begins_to_work_is_reported_as_memory_is(before: float, now: float, why: Why | None) -> None:
    published = msgspec.structs.replace(PUBLISHED, devices=[msgspec.structs.replace(DEVICE, utilization=before)])
    assert worth_publishing(seen(utilization=now), published=published, pace=replace(PACE, idle_below=0.2)) == why


@pytest.mark.parametrize(("used", "why"), [(0.05, None), (0.06, Why.UTILIZATION)])
def test_the_hosts_memory_is_worth_a_write_beyond_the_threshold(used: float, why: Why | None) -> None:
    now = msgspec.structs.replace(seen(), memory_utilization=used)
    assert worth_publishing(now, published=PUBLISHED, pace=PACE) == why


SECOND = msgspec.structs.replace(DEVICE, index=1, uuid="GPU-1")
BOTH = msgspec.structs.replace(PUBLISHED, devices=[DEVICE, SECOND])


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"utilization": 0.56}, Why.UTILIZATION),
        ({"used_mib": 151}, Why.LOAD),
        ({"tenants": [use(106)]}, Why.LOAD),
    ],
)
def test_the_load_of_any_device_is_worth_a_write(changed: dict[str, Any], why: Why) -> None:
    first = seen(devices=[msgspec.structs.replace(DEVICE, **changed), SECOND])
    second = seen(devices=[DEVICE, msgspec.structs.replace(SECOND, **changed)])
    assert [worth_publishing(each, published=BOTH, pace=PACE) for each in (first, second)] == [why] * 2
    assert worth_publishing(seen(devices=[DEVICE, SECOND]), published=BOTH, pace=PACE) is None


def test_the_use_of_each_tenant_is_compared_with_its_own() -> None:
    two = msgspec.structs.replace(
        PUBLISHED, devices=[msgspec.structs.replace(DEVICE, tenants=[use(10, uid="a"), use(90)])]
    )
    assert worth_publishing(seen(tenants=[use(10, uid="a"), use(90)]), published=two, pace=PACE) is None
    assert worth_publishing(seen(tenants=[use(90, uid="a"), use(10)]), published=two, pace=PACE) == Why.LOAD


def test_a_device_without_a_known_memory_is_worth_a_write_for_any_use() -> None:
    """MIG parents report no memory of their own."""
    blank = msgspec.structs.replace(DEVICE, memory_mib=0, used_mib=0, tenants=[])
    published = msgspec.structs.replace(PUBLISHED, devices=[blank])
    again = seen(devices=[msgspec.structs.replace(blank, used_mib=1)])
    assert worth_publishing(again, published=published, pace=PACE) == Why.LOAD
    assert worth_publishing(seen(devices=[blank]), published=published, pace=PACE) is None


@pytest.mark.parametrize("after_seconds", [0, 4, 5, 6])
def test_a_load_waits_until_the_pause_since_the_last_report_is_over(after_seconds: int) -> None:
    pace = replace(PACE, between=timedelta(seconds=5))
    wait = pace.wait_seconds(Why.LOAD, report=seen(after_seconds=after_seconds), published=PUBLISHED)
    assert wait == max(0, 5 - after_seconds)


def test_a_load_without_an_earlier_report_does_not_wait() -> None:
    pace = replace(PACE, between=timedelta(seconds=5))
    assert pace.wait_seconds(Why.LOAD, report=seen(), published=None) == 0


def test_a_repeated_overuse_or_condition_is_news_only_when_it_says_something_else() -> None:
    ready = node_status.condition("Ready", status="True", reason="DevicesRead", message="one", previous=None, now=NOON)
    later = msgspec.structs.replace(ready, last_transition_time="2030-01-01T00:00:00Z")
    other = msgspec.structs.replace(ready, message="two")
    published = msgspec.structs.replace(PUBLISHED, conditions=[ready])
    for condition, why in ((later, None), (other, Why.CHANGE)):
        now = msgspec.structs.replace(seen(), conditions=[condition])
        assert worth_publishing(now, published=published, pace=PACE) == why
