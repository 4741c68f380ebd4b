"""Sums over ended jobs, from the history's sums. Pure."""

from collections.abc import Mapping
from typing import Final

from dovetail.answers import Row
from dovetail.api.historyquery import HistorySums

_HOUR_SECONDS: Final = 3600.0


class JobStatistics(Row, frozen=True, kw_only=True):
    """Sums over a group of ended jobs: of a user, name, project or day, or of all if `group` is empty.

    A share counts as a fraction of a GPU in `gpuHours`, which are GPUs times run time. Waits are from submission to
    start: 95 % of the jobs waited no longer than `p95WaitSeconds`. Rates and utilization are from 0 to 1; cancelled
    jobs count neither as succeeded nor as failed. `peakMemoryMiB` is the highest use of a device by a worker. Null is
    what was not measured.
    """

    group: str
    jobs: int
    by_phase: Mapping[str, int]
    success_rate: float | None
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
    ended = sums.jobs - sums.by_phase.get("Cancelled", 0)
    return JobStatistics(
        group=sums.group,
        jobs=sums.jobs,
        by_phase=sums.by_phase,
        success_rate=sums.by_phase.get("Succeeded", 0) / ended if ended else None,
        gpu_hours=sums.gpu_seconds / _HOUR_SECONDS,
        run_hours=sums.run_seconds / _HOUR_SECONDS,
        mean_wait_seconds=sums.mean_wait_seconds,
        median_wait_seconds=sums.median_wait_seconds,
        p95_wait_seconds=sums.p95_wait_seconds,
        mean_run_seconds=sums.run_seconds / sums.jobs,
        mean_utilization=sums.mean_utilization,
        peak_memory_mib=sums.peak_mib,
    )
