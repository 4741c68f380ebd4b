"""What jobs have used, computed a second time from their runs: integrals over time, in exact fractions."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import accumulate
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.gpujob import GPUJob, Measured, job_of
from dovetail.api.gpunode import Device, TenantTotal
from dovetail.formats.timestamps import timestamp
from dovetail.jobs.device_totals import carried_on, combined, until
from dovetail.jobs.records import cut_short, record_of
from dovetail.query.jobs.records import as_job, last_run_seconds

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
# Seconds of a run, and the workers that it had.
runs = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 6)), min_size=1, max_size=4)
looks = st.lists(st.tuples(st.integers(1, 600), st.integers(0, 100), st.integers(0, 40_000)), min_size=1, max_size=6)


def at(seconds: float) -> str:
    return timestamp(BEGIN + timedelta(seconds=seconds))


def job_of_runs(told: list[tuple[int, int]], *, share: int, pause: int, elastic: bool, ended: bool) -> GPUJob:
    """A job whose last run is that of its status, with `pause` seconds before each run."""
    *earlier, (seconds, workers) = told
    before = sum(each for each, _ in earlier)
    start = before + pause * len(told)
    status: dict[str, Any] = {
        "phase": "Succeeded" if ended else "Running",
        "request": f"0.{share:03d}" if share < 1000 else "1",
        "startTime": at(start),
        "completionTime": at(start + seconds) if ended else None,
        "earlierRunSeconds": before,
        "attempt": len(told),
        "devices": [
            {"worker": each, "node": "a", "index": each, "uuid": f"GPU-{each}", "shareMilli": share, "memoryMiB": 1}
            for each in range(workers)
        ],
    }
    if elastic:
        status["elastic"] = {
            "workers": workers,
            "requested": 6,
            "earlierWorkerSeconds": sum(each * many for each, many in earlier),
        }
    spec = {"gpu": status["request"], "workers": 6 if elastic else workers, "template": {"spec": {"containers": []}}}
    meta = {"name": "x", "namespace": "team", "uid": "u", "creationTimestamp": at(0)}
    return job_of({"metadata": meta, "spec": spec | ({"minWorkers": 1} if elastic else {}), "status": status})


@given(
    told=runs, share=st.integers(1, 1000), pause=st.integers(0, 500), elastic=st.booleans(), later=st.integers(0, 50)
)
def test_gpu_seconds_are_the_gpus_of_each_run_over_its_time(
    told: list[tuple[int, int]], share: int, pause: int, elastic: bool, later: int
) -> None:
    if not elastic:
        told = [(seconds, told[-1][1]) for seconds, _ in told]
    gpus = Fraction(share, 1000)
    seconds, used = sum(each for each, _ in told), sum(each * many * gpus for each, many in told)
    found = record_of(job_of_runs(told, share=share, pause=pause, elastic=elastic, ended=True))
    assert (found.run_seconds, found.attempts) == (seconds, len(told))
    assert abs(Fraction(found.gpu_seconds) - used) < Fraction(1, 1000)
    assert abs(Fraction(found.gpus) - told[-1][1] * gpus) < Fraction(1, 10**6)
    # One that somebody deletes while it runs is charged until then.
    running = record_of(job_of_runs(told, share=share, pause=pause, elastic=elastic, ended=False))
    end = sum(each for each, _ in told) + pause * len(told) + later
    deleted = cut_short(running, now=BEGIN + timedelta(seconds=end), message="gone")
    assert deleted.run_seconds == seconds + later
    assert abs(Fraction(deleted.gpu_seconds) - used - later * told[-1][1] * gpus) < Fraction(1, 1000)
    # Its record shows the last run as long as it was.
    assert last_run_seconds(found) == told[-1][0]
    assert as_job(found).status.gpus >= told[-1][1] * gpus > as_job(found).status.gpus - 1


def reported(utilization: int, totals: list[TenantTotal]) -> Device:
    return Device(
        index=0, uuid="g", vendor="nvidia", model="T4", memory_mib=100, utilization=utilization / 100, totals=totals
    )


@given(told=looks)
def test_the_mean_of_a_device_is_the_integral_of_what_each_report_said(told: list[tuple[int, int, int]]) -> None:
    totals = carried_on(["p"], used_mib={}, before=None, seconds=0)
    for seconds, percent, used in told:
        totals = carried_on(["p"], used_mib={"p": used}, before=reported(percent, totals), seconds=seconds)
    (found,) = totals
    time = sum(seconds for seconds, _, _ in told)
    mean = Fraction(sum(seconds * percent for seconds, percent, _ in told), 100 * time)
    assert found.seconds == time
    assert found.peak_mib == max(used for _, _, used in told)
    # Each report rounds to the fourth digit.
    assert abs(Fraction(found.mean_utilization) - mean) <= Fraction(len(told), 10_000)
    # A report that goes on says the same as two of half its time.
    whole = until(reported(70, totals), seconds=60)["p"]
    half = until(reported(70, list(until(reported(70, totals), seconds=30).values())), seconds=30)["p"]
    assert whole.seconds == half.seconds
    assert abs(whole.mean_utilization - half.mean_utilization) <= 0.0002


@given(told=looks, parts=st.integers(0, 5))
def test_runs_and_devices_weigh_by_their_time_in_any_order(told: list[tuple[int, int, int]], parts: int) -> None:
    totals = [
        TenantTotal(uid=f"{seconds}", mean_utilization=percent / 100, seconds=seconds) for seconds, percent, _ in told
    ]
    time = sum(seconds for seconds, _, _ in told)
    mean = Fraction(sum(seconds * percent for seconds, percent, _ in told), 100 * time)
    whole = combined(None, totals=totals)
    assert whole is not None
    assert whole.device_seconds == time
    assert abs(Fraction(whole.mean_utilization) - mean) <= Fraction(1, 1000)
    assert combined(None, totals=totals[::-1]) == whole
    in_two = combined(combined(None, totals=totals[:parts]), totals=totals[parts:])
    assert in_two is not None
    assert in_two.device_seconds == time
    assert abs(in_two.mean_utilization - whole.mean_utilization) <= 0.0015
    assert combined(Measured(mean_utilization=0.5, device_seconds=7), totals=[]) == Measured(
        mean_utilization=0.5, device_seconds=7
    )


def test_the_waits_of_a_job_count_once() -> None:
    """Pauses between runs are neither a wait nor run time."""
    told = [(10, 1), (20, 1)]
    waits = [record_of(job_of_runs(told, share=1000, pause=pause, elastic=False, ended=True)) for pause in (0, 100)]
    assert [each.run_seconds for each in waits] == [30, 30]
    assert list(accumulate(each.gpu_seconds for each in waits)) == [30, 60]
    assert msgspec.structs.replace(waits[0], started="", ended="", wait_seconds=0) == msgspec.structs.replace(
        waits[1], started="", ended="", wait_seconds=0
    )
