"""Mean utilization out of reports that come now and then."""

import msgspec

from dovetail.api.gpujob import Measured
from dovetail.api.gpunode import GPUNode
from dovetail.engine.model.claims import Claim, DeviceClaim
from dovetail_operator.learning.utilization import Utilization
from tests.clock import Clock
from tests.operator_.builders import make_job

JOB = make_job()
CLAIM = Claim(key="pod", node="n", devices=(DeviceClaim(index=0, uuid="a", share_milli=1000, memory_mib=1),))


def report(utilization: float) -> GPUNode:
    device = {"index": 0, "uuid": "a", "vendor": "nvidia", "model": "T4", "memoryMiB": 1, "utilization": utilization}
    return msgspec.convert({"metadata": {"name": "n"}, "status": {"devices": [device]}}, GPUNode)


def test_each_report_counts_until_the_next_one(clock: Clock) -> None:
    measured = Utilization(clock=clock)
    measured.reported(report(1.0), claims=[CLAIM], jobs={"pod": JOB})
    clock.now += 10
    measured.reported(report(0.5), claims=[CLAIM], jobs={"pod": JOB})
    clock.now += 30
    assert measured.of(JOB, running=True) == Measured(mean_utilization=0.625, device_seconds=40)
    clock.now += 60
    assert measured.of(JOB, running=False) == Measured(mean_utilization=0.55, device_seconds=100)
    clock.now += 60
    assert measured.of(JOB, running=False) == Measured(mean_utilization=0.55, device_seconds=100)


def test_what_the_status_tells_is_gone_on_from(clock: Clock) -> None:
    told = make_job(status={"measured": {"meanUtilization": 1.0, "deviceSeconds": 10}})
    measured = Utilization(clock=clock)
    measured.reported(report(0.0), claims=[CLAIM], jobs={"pod": told})
    clock.now += 10
    assert measured.of(told, running=True) == Measured(mean_utilization=0.5, device_seconds=20)


def test_a_pod_of_nobody_is_not_measured(clock: Clock) -> None:
    measured = Utilization(clock=clock)
    measured.reported(report(1.0), claims=[CLAIM], jobs={})
    clock.now += 10
    assert measured.of(JOB, running=True) is None
