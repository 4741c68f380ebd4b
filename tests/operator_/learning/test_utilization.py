"""Mean utilization out of reports that come now and then."""

import msgspec
import pytest

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Measured
from dovetail.api.gpunode import GPUNode, TenantTotal
from dovetail.engine.model.claims import Claim
from dovetail_operator.state.store import Utilization
from tests.clock import Clock
from tests.operator_.builders import make_job

JOB = make_job()
CLAIM = Claim(key="pod", node="n", devices=(AllocatedDevice(index=0, uuid="a", share_milli=1000, memory_mib=1),))


def report(utilization: float) -> GPUNode:
    device = {"index": 0, "uuid": "a", "vendor": "nvidia", "model": "T4", "memoryMiB": 1, "utilization": utilization}
    return msgspec.convert({"metadata": {"name": "n"}, "status": {"devices": [device]}}, GPUNode)


def test_each_report_counts_until_the_next_one(clock: Clock) -> None:
    measured = Utilization(clock=clock)
    measured.reported(report(1.0), claims=[CLAIM], jobs={"pod": JOB})
    clock.now += 10
    measured.reported(report(0.5), claims=[CLAIM], jobs={"pod": JOB})
    clock.now += 30
    assert measured.measure(JOB, running=True) == Measured(mean_utilization=0.625, device_seconds=40)
    clock.now += 60
    assert measured.measure(JOB, running=False) == Measured(mean_utilization=0.55, device_seconds=100)
    clock.now += 60
    assert measured.measure(JOB, running=False) == Measured(mean_utilization=0.55, device_seconds=100)


def with_total(report: GPUNode, *, mean: float, seconds: float, uid: str = "pod") -> GPUNode:
    (device,) = report.status.devices
    total = TenantTotal(uid=uid, mean_utilization=mean, seconds=seconds)
    device = msgspec.structs.replace(device, totals=[total])
    return msgspec.structs.replace(report, status=msgspec.structs.replace(report.status, devices=[device]))


def test_a_started_process_continues_from_what_the_agent_has_seen(clock: Clock) -> None:
    measured = Utilization(clock=clock)
    measured.reported(with_total(report(1.0), mean=0.5, seconds=90), claims=[CLAIM], jobs={"pod": JOB})
    clock.now += 10
    assert measured.measure(JOB, running=True) == Measured(mean_utilization=0.55, device_seconds=100)
    measured.reported(with_total(report(1.0), mean=0.55, seconds=100), claims=[CLAIM], jobs={"pod": JOB})
    assert measured.measure(JOB, running=True) == Measured(mean_utilization=0.55, device_seconds=100)


def test_an_agent_that_knows_less_than_this_process_or_speaks_of_another_pod_changes_nothing(clock: Clock) -> None:
    measured = Utilization(clock=clock)
    measured.reported(report(1.0), claims=[CLAIM], jobs={"pod": JOB})
    clock.now += 10
    measured.reported(with_total(report(1.0), mean=0, seconds=5), claims=[CLAIM], jobs={"pod": JOB})
    measured.reported(with_total(report(1.0), mean=0, seconds=99, uid="other"), claims=[CLAIM], jobs={"pod": JOB})
    assert measured.measure(JOB, running=True) == Measured(mean_utilization=1.0, device_seconds=10)


def test_what_the_status_tells_is_gone_on_from(clock: Clock) -> None:
    told = make_job(status={"measured": {"meanUtilization": 1.0, "deviceSeconds": 10}})
    measured = Utilization(clock=clock)
    measured.reported(report(0.0), claims=[CLAIM], jobs={"pod": told})
    clock.now += 10
    assert measured.measure(told, running=True) == Measured(mean_utilization=0.5, device_seconds=20)


def test_a_pod_of_nobody_is_not_measured(clock: Clock) -> None:
    measured = Utilization(clock=clock)
    measured.reported(report(1.0), claims=[CLAIM], jobs={})
    clock.now += 10
    assert measured.measure(JOB, running=True) is None


def of_two(first: float | None, second: float | None) -> GPUNode:
    """A report of two devices; None for one that is not in it."""
    values = {"a": first, "b": second}
    devices = [
        {"index": 0, "uuid": uuid, "vendor": "nvidia", "model": "T4", "memoryMiB": 1, "utilization": value}
        for uuid, value in values.items()
        if value is not None
    ]
    return msgspec.convert({"metadata": {"name": "n"}, "status": {"devices": devices}}, GPUNode)


BOTH = Claim(
    key="pod",
    node="n",
    devices=tuple(AllocatedDevice(index=0, uuid=uuid, share_milli=1000, memory_mib=1) for uuid in "ab"),
)


def test_every_device_of_a_job_counts_for_its_own_time(clock: Clock) -> None:
    measured = Utilization(clock=clock)
    measured.reported(of_two(1.0, None), claims=[BOTH], jobs={"pod": JOB})
    clock.now += 10
    measured.reported(of_two(1.0, 0.0), claims=[BOTH], jobs={"pod": JOB})
    clock.now += 10
    assert measured.measure(JOB, running=True) == Measured(mean_utilization=0.667, device_seconds=30)


def test_a_device_that_leaves_the_report_counts_no_further(clock: Clock) -> None:
    measured = Utilization(clock=clock)
    measured.reported(of_two(1.0, 0.5), claims=[BOTH], jobs={"pod": JOB})
    clock.now += 10
    measured.reported(of_two(None, 0.5), claims=[BOTH], jobs={"pod": JOB})
    clock.now += 10
    assert measured.measure(JOB, running=True) == Measured(mean_utilization=0.667, device_seconds=30)


def test_jobs_on_one_node_are_measured_apart_and_a_foreign_pod_hides_none(clock: Clock) -> None:
    measured, other = Utilization(clock=clock), make_job("y")
    second = Claim(key="pod-y", node="n", devices=BOTH.devices[1:])
    foreign = Claim(key="foreign", node="n", devices=BOTH.devices)
    jobs = {"pod": JOB, "pod-y": other}
    measured.reported(of_two(1.0, 0.25), claims=[foreign, CLAIM, second], jobs=jobs)
    clock.now += 4
    found = [measured.measure(each, running=True) for each in (JOB, other)]
    assert found == [
        Measured(mean_utilization=1.0, device_seconds=4),
        Measured(mean_utilization=0.25, device_seconds=4),
    ]


def test_what_is_asked_twice_is_added_once(clock: Clock) -> None:
    measured = Utilization(clock=clock)
    measured.reported(report(0.5), claims=[CLAIM], jobs={"pod": JOB})
    clock.now += 10
    assert measured.measure(JOB, running=True) == measured.measure(JOB, running=True)
    clock.now += 10
    assert measured.measure(JOB, running=True) == Measured(mean_utilization=0.5, device_seconds=20)


def test_a_job_without_any_measured_time_shows_what_its_status_has(clock: Clock) -> None:
    told = make_job(status={"measured": {"meanUtilization": 0.25, "deviceSeconds": 4}})
    measured = Utilization(clock=clock)
    assert measured.measure(told, running=True) == told.status.measured
    measured.reported(report(1.0), claims=[CLAIM], jobs={"pod": JOB})
    assert measured.measure(JOB, running=True) is None, "no time has passed"
    clock.now += 0.5
    assert measured.measure(JOB, running=True) == Measured(mean_utilization=1.0, device_seconds=0.5)


def test_a_job_that_is_made_again_under_its_uid_begins_from_its_status(clock: Clock) -> None:
    measured = Utilization(clock=clock)
    measured.reported(report(1.0), claims=[CLAIM], jobs={"pod": JOB})
    clock.now += 10
    measured.drop(JOB)
    measured.drop(JOB)
    assert measured.measure(JOB, running=True) is None


@pytest.mark.parametrize(("reported", "mean"), [(1.0, 1.0), (0.12345, 0.123)])
def test_the_mean_is_a_ratio_in_thousandths(clock: Clock, reported: float, mean: float) -> None:
    measured = Utilization(clock=clock)
    measured.reported(report(reported), claims=[CLAIM], jobs={"pod": JOB})
    clock.now += 1.26
    assert measured.measure(JOB, running=True) == Measured(mean_utilization=mean, device_seconds=1.3)
