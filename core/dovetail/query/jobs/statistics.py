"""Sums over ended jobs, from the history's sums. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from dovetail.api.historyquery import HistorySums

_HOUR_SECONDS: Final = 3600.0


class JobStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over a group of ended jobs. None is what was not measured.

    group                the user, name, project or day; empty for all jobs
    jobs                 the number of jobs
    by_phase             the number of jobs by phase
    success_rate         the fraction of jobs that succeeded, from 0 to 1
    gpu_hours            GPUs times run time, in hours; a share counts as a fraction
    run_hours            the run time of all jobs, in hours
    mean_wait_seconds    the mean wait from submission to start, in seconds
    median_wait_seconds  the median wait
    p95_wait_seconds     95 % of the jobs waited no longer
    mean_run_seconds     the mean run time, in seconds
    mean_utilization     the mean utilization of their devices, from 0 to 1
    peak_memory_mib      the highest use of a device by a worker, in MiB
    """

    group: str
    jobs: int
    by_phase: Mapping[str, int]
    success_rate: float
    gpu_hours: float
    run_hours: float
    mean_wait_seconds: float | None
    median_wait_seconds: float | None
    p95_wait_seconds: float | None
    mean_run_seconds: float
    mean_utilization: float | None
    peak_memory_mib: int


def job_statistics(sums: HistorySums) -> JobStatistics:
    """The statistics of one group of jobs."""
    return JobStatistics(
        group=sums.group,
        jobs=sums.jobs,
        by_phase=sums.by_phase,
        success_rate=sums.by_phase.get("Succeeded", 0) / sums.jobs,
        gpu_hours=sums.gpu_seconds / _HOUR_SECONDS,
        run_hours=sums.run_seconds / _HOUR_SECONDS,
        mean_wait_seconds=sums.mean_wait_seconds,
        median_wait_seconds=sums.median_wait_seconds,
        p95_wait_seconds=sums.p95_wait_seconds,
        mean_run_seconds=sums.run_seconds / sums.jobs,
        mean_utilization=sums.mean_utilization,
        peak_memory_mib=sums.peak_mib,
    )
