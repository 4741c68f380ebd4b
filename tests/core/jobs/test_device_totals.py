"""The figures of a run, carried from report to report by the agents and added to a job by its readers."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import Measured
from dovetail.api.gpunode import Device, GPUNode, TenantTotal
from dovetail.jobs.device_totals import carried_on, seconds_since, with_figures_so_far
from dovetail.names import LABEL_JOB_NUMBER
from tests.operator_.builders import NOW, at, make_job, make_pod


def device(utilization: float, *totals: TenantTotal, uuid: str = "g") -> Device:
    return Device(
        index=0, uuid=uuid, vendor="nvidia", model="T4", memory_mib=100, utilization=utilization, totals=list(totals)
    )


def total(uid: str = "p", *, mean: float = 0.0, seconds: float = 0.0, peak: int = 0) -> TenantTotal:
    return TenantTotal(uid=uid, mean_utilization=mean, seconds=seconds, peak_mib=peak)


def gpunode(*devices: Device, age: float = 0) -> GPUNode:
    return msgspec.convert(
        {"metadata": {"name": "n1"}, "status": {"observedAt": at(-age), "devices": msgspec.to_builtins(devices)}},
        GPUNode,
    )


def test_a_report_counts_until_the_next_one_and_the_peak_stays() -> None:
    first = carried_on(["p"], used_mib={"p": 40}, before=None, seconds=30)
    assert first == [total(peak=40)]
    second = carried_on(["p"], used_mib={"p": 70}, before=device(1.0, *first), seconds=10)
    assert second == [total(mean=1.0, seconds=10, peak=70)]
    third = carried_on(["p"], used_mib={"p": 10}, before=device(0.5, *second), seconds=30)
    assert third == [total(mean=0.625, seconds=40, peak=70)]


def test_a_pod_that_comes_begins_with_nothing_and_one_that_goes_takes_its_totals_along() -> None:
    before = device(1.0, total("old", mean=1.0, seconds=9, peak=9), total("stays", mean=0.0, seconds=10))
    assert carried_on(["stays", "new"], used_mib={"new": 3}, before=before, seconds=10) == [
        total("new", peak=3),
        total("stays", mean=0.5, seconds=20),
    ]


@pytest.mark.parametrize(("observed_at", "seconds"), [(None, 0), (at(-30), 30), (at(30), 0), (at(-86400), 600)])
def test_a_report_counts_for_ten_minutes_at_most_and_never_before_its_time(
    observed_at: str | None, seconds: float
) -> None:
    assert seconds_since(observed_at, now=NOW) == seconds


def job(**status: Any) -> Any:
    return make_job(status={"phase": "Running", "startTime": at(-90), **status})


def test_a_running_job_has_what_was_measured_of_its_pods_and_of_its_runs_before() -> None:
    pod = make_pod(node="n1")
    uid = pod.metadata.uid
    node = gpunode(
        device(1.0, total(uid, mean=0.5, seconds=90, peak=40), total("other", mean=1, seconds=99, peak=99)),
        device(0.0, total(uid, mean=0.5, seconds=90, peak=60), uuid="h"),
        age=10,
    )
    found = with_figures_so_far(job(), pods=[pod], gpunodes={"n1": node}, now=NOW).status
    assert (found.measured, found.elapsed) == (Measured(mean_utilization=0.5, device_seconds=200), "90s")
    assert found.memory is not None
    assert found.memory.peak_mib == 60
    earlier = {
        "measured": {"meanUtilization": 1.0, "deviceSeconds": 200},
        "memory": {"strategy": "Dynamic", "basis": "b", "peakMiB": 70},
    }
    found = with_figures_so_far(job(**earlier), pods=[pod], gpunodes={"n1": node}, now=NOW).status
    assert found.measured == Measured(mean_utilization=0.75, device_seconds=400)
    assert found.memory is not None
    assert (found.memory.peak_mib, found.memory.basis) == (70, "b")


def test_a_pod_of_an_earlier_job_of_its_name_does_not_count() -> None:
    pods = [make_pod(node="n1", meta={"uid": "own"}), make_pod(node="n1", meta={"uid": "seat"})]
    pods.append(make_pod(node="n1", meta={"uid": "earlier", "labels": {LABEL_JOB_NUMBER: "3"}}))
    pods[0].metadata.labels[LABEL_JOB_NUMBER] = "4"
    totals = [total(pod.metadata.uid, mean=1.0, seconds=10) for pod in pods]
    node = gpunode(device(1.0, *totals))
    found = with_figures_so_far(job(number=4), pods=pods, gpunodes={"n1": node}, now=NOW).status
    assert found.measured == Measured(mean_utilization=1.0, device_seconds=20)


@pytest.mark.parametrize(
    ("phase", "pods", "nodes"),
    [("Succeeded", True, True), ("Running", False, True), ("Running", True, False)],
    ids=["it has ended", "no pod", "no report"],
)
def test_a_job_without_news_is_as_its_status_says(phase: str, pods: bool, nodes: bool) -> None:
    pod = make_pod(node="n1")
    node = gpunode(device(1.0, total(pod.metadata.uid, mean=0.5, seconds=90, peak=40)))
    known = make_job(status={"phase": phase, "measured": {"meanUtilization": 0.25, "deviceSeconds": 4}})
    found = with_figures_so_far(
        known, pods=[pod] if pods else [], gpunodes={"n1": node} if nodes else {}, now=NOW + timedelta(seconds=1)
    )
    assert found == known


def test_a_pod_that_has_ended_counts_no_further() -> None:
    pod = make_pod(node="n1", phase="Succeeded")
    node = gpunode(device(1.0, total(pod.metadata.uid, mean=0.5, seconds=90, peak=40)))
    assert with_figures_so_far(job(), pods=[pod], gpunodes={"n1": node}, now=NOW).status.measured is None
