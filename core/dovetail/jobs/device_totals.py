"""What was measured of a device while a pod held it, and of a running job through its pods. Pure.

The agents carry each tenant's totals from report to report, so a restart of any program loses nothing. A report counts
until the next one. The status of a job has the figures of its ended runs; readers compute those of the running one
here, and the operator writes them when the run ends.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import GPUJob, Measured
from dovetail.api.gpunode import Device, GPUNode, TenantTotal
from dovetail.formats.durations import human, moment
from dovetail.jobs.memory_use import with_peak
from dovetail.jobs.runs import is_of_earlier_job, run_seconds

# An agent that is down must not count its last report for hours.
_MOST_SECONDS: Final = 600.0


def until(device: Device, *, seconds: float) -> dict[str, TenantTotal]:
    """The totals of a reported device `seconds` after its report, by pod UID."""
    return {total.uid: _longer(total, utilization=device.utilization, seconds=seconds) for total in device.totals}


def seconds_since(observed_at: str | None, *, now: datetime) -> float:
    """How many seconds a report of that time counts at `now`."""
    return 0.0 if observed_at is None else min(_MOST_SECONDS, max(0.0, (now - moment(observed_at)).total_seconds()))


def carried_on(
    holders: Iterable[str], *, used_mib: Mapping[str, int], before: Device | None, seconds: float
) -> list[TenantTotal]:
    """A new report's totals: those of the report before, for `seconds` more, of the pods that hold the device.

    `holders` are their UIDs; `used_mib` is their memory, where it is known.
    """
    known = {} if before is None else until(before, seconds=seconds)
    return [_with_peak(known.get(uid, TenantTotal(uid=uid)), used_mib=used_mib.get(uid, 0)) for uid in sorted(holders)]


def with_figures_so_far(job: GPUJob, *, pods: Iterable[Pod], gpunodes: Mapping[str, GPUNode], now: datetime) -> GPUJob:
    """The job with the figures of its current run added to its status; the job itself if it does not run.

    `pods` have the job's name, `gpunodes` are the nodes by name.
    """
    if job.status.phase != "Running":
        return job
    own = [pod for pod in pods if not is_terminated(pod) and not is_of_earlier_job(pod, number=job.status.number)]
    found = [total for pod in own for total in _of_pod(pod, gpunodes=gpunodes, now=now)]
    measured = combined(job.status.measured, totals=found)
    memory = with_peak(job, mib=max((total.peak_mib for total in found), default=0))
    ran = run_seconds(job.status, now=now)
    elapsed = job.status.elapsed if ran is None else human(ran)
    status = msgspec.structs.replace(job.status, measured=measured, memory=memory, elapsed=elapsed)
    return msgspec.structs.replace(job, status=status)


def combined(before: Measured | None, *, totals: Iterable[TenantTotal]) -> Measured | None:
    """The mean over the ended runs and these totals; None if nothing was measured for any time."""
    weighted = 0.0 if before is None else before.mean_utilization * before.device_seconds
    seconds = 0.0 if before is None else before.device_seconds
    for total in totals:
        weighted += total.mean_utilization * total.seconds
        seconds += total.seconds
    if seconds <= 0:
        return before
    return Measured(mean_utilization=round(min(1.0, weighted / seconds), 3), device_seconds=round(seconds, 1))


def _of_pod(pod: Pod, *, gpunodes: Mapping[str, GPUNode], now: datetime) -> list[TenantTotal]:
    gpunode = gpunodes.get(pod.spec.node_name)
    if gpunode is None:
        return []
    seconds = seconds_since(gpunode.status.observed_at, now=now)
    totals = (until(device, seconds=seconds).get(pod.metadata.uid) for device in gpunode.status.devices)
    return [total for total in totals if total is not None]


def _longer(total: TenantTotal, *, utilization: float, seconds: float) -> TenantTotal:
    sum_seconds = total.seconds + seconds
    if sum_seconds <= 0:
        return total
    mean = (total.mean_utilization * total.seconds + utilization * seconds) / sum_seconds
    return msgspec.structs.replace(total, mean_utilization=round(min(1.0, mean), 4), seconds=round(sum_seconds, 1))


def _with_peak(total: TenantTotal, *, used_mib: int) -> TenantTotal:
    return total if used_mib <= total.peak_mib else msgspec.structs.replace(total, peak_mib=used_mib)
