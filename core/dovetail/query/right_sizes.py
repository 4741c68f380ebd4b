"""Right sizes: what the next run of a job should request, from what this run and earlier ones used. Pure.

Memory comes from measured peaks, as in `dovetail.jobs.memory_use`: runs of one name count, back to one that used all
that it was promised. Compute comes from the mean utilization of the job's devices.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from msgspec.structs import replace as with_fields

from dovetail.answers.owners import project_of, user_of
from dovetail.answers.waste import RightSizeRow, TeamSavings
from dovetail.api.gpujob import GPUJob, MemoryUse
from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import Sentence
from dovetail.formats.durations import human
from dovetail.gpu.request import WHOLE_MILLI, GPURequest, RequestError, parse
from dovetail.jobs.batch_job import is_external, is_guests
from dovetail.jobs.memory_use import MARGIN_PERCENT, believed, name_of_runs
from dovetail.jobs.runs import run_seconds, workers_of
from dovetail.pods.demand import request_of_job

# A shorter measurement shows how a job starts, and not what it needs.
ENOUGH_SECONDS: Final = 600.0
# A fifth above the mean: work comes in bursts.
_LOAD_PERCENT: Final = 120
# Shares and memory are suggested in such steps, as people write them.
_STEP_MILLI: Final = 100
_STEP_MIB: Final = 1024
_HOUR_SECONDS: Final = 3600.0
_FIELD: Final = "rightSize"
# The change of the spec with which the owner takes that back.
WITHDRAWN: Final[Mapping[str, None]] = {_FIELD: None}


@dataclass(frozen=True, slots=True, kw_only=True)
class RightSizes:
    """The right size of each user's runs of one name, from the latest that was measured, and what all jobs save."""

    rows: list[RightSizeRow]
    teams: list[TeamSavings]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJob:
    """A job with its right size; None without any measurement. An accepted one saves `saved_gpus` in its latest run."""

    job: GPUJob
    size: RightSizeRow | None
    saved_gpus: float


def measured(jobs: Iterable[GPUJob], *, now: datetime) -> list[MeasuredJob]:
    """Those of these jobs, with the figures of their runs so far, of which something was measured or is saved."""
    found = (MeasuredJob(job=job, size=measured_size(job, now=now), saved_gpus=saved_by_accepted(job)) for job in jobs)
    return [each for each in found if each.size is not None or each.saved_gpus]


def right_sizes(jobs: Iterable[MeasuredJob]) -> RightSizes:
    """The right sizes of these jobs."""
    latest: dict[tuple[str, str, str], tuple[str, RightSizeRow]] = {}
    sizes: list[RightSizeRow] = []
    for each in jobs:
        if each.size is None:
            continue
        sizes.append(each.size)
        created, key = each.job.metadata.creation_timestamp, (*name_of_runs(each.job), each.size.user)
        if key not in latest or latest[key][0] < created:
            latest[key] = created, each.size
    return RightSizes(rows=[row for _, row in latest.values()], teams=_teams(sizes))


def _teams(rows: Iterable[RightSizeRow]) -> list[TeamSavings]:
    """The savings of each project, the largest first."""
    found: dict[tuple[str, str], list[RightSizeRow]] = defaultdict(list)
    for row in rows:
        if row.suggested or row.saved_hours:
            found[row.namespace, row.project].append(row)
    teams = [
        TeamSavings(
            namespace=namespace,
            project=project,
            jobs=sum(bool(row.suggested) for row in theirs),
            saved_gpus=round(sum(row.saved_gpus for row in theirs), 4),
            savable_hours=round(sum(row.savable_hours for row in theirs), 4),
            saved_hours=round(sum(row.saved_hours for row in theirs), 4),
        )
        for (namespace, project), theirs in found.items()
    ]
    return sorted(teams, key=lambda team: (-team.savable_hours, team.namespace, team.project))


def accepted(job: GPUJob, *, now: datetime) -> Mapping[str, str] | Sentence:
    """The change of the spec with which the owner accepts the smaller request of a job; else why not."""
    row = measured_size(job, now=now)
    if (refusal := _refusal(job, row=row)) is not None or row is None:
        return says.KEEPS_REQUEST(job=job.metadata.name) + (refusal or says.SIZE_UNMEASURED())
    smaller = parse(row.suggested)
    return {_FIELD: str(GPURequest(share_milli=smaller.share_milli, memory_mib=smaller.memory_mib))}


def _refusal(job: GPUJob, *, row: RightSizeRow | None) -> Sentence | None:
    """Why the job keeps its request; None if its right size is smaller."""
    if is_guests(job):
        return says.SIZE_OF_CONTROLLER()
    if is_external(job):
        return says.SIZE_OF_KUEUE()
    if row is None:
        return says.SIZE_UNMEASURED()
    return None if row.suggested else says.NO_SMALLER_SIZE() + _basis(row, job=job)


def measured_size(job: GPUJob, *, now: datetime) -> RightSizeRow | None:
    """The right size of a job that has run; None without devices or without any measurement."""
    status = job.status
    if not status.devices or job.spec.reservation is not None or not (status.memory or status.measured):
        return None
    try:
        request = parse(status.request)
    except RequestError:
        return None
    peaks = _peaks(status.memory)
    measured = status.measured
    hours = (run_seconds(status, now=now) or 0.0) / _HOUR_SECONDS
    found = RightSizeRow(
        namespace=job.metadata.namespace,
        name=name_of_runs(job)[1],
        job=job.metadata.name,
        number=status.number,
        user=user_of(job) or "",
        project=project_of(job),
        phase=status.phase or "Queued",
        request=status.request,
        suggested="",
        accepted=job.spec.right_size or "",
        saved_gpus=0.0,
        savable_hours=0.0,
        saved_hours=round(saved_by_accepted(job) * hours, 4),
        promised_mib=max(device.memory_mib for device in status.devices),
        peak_mib=max(peaks, default=0),
        mean_utilization=None if measured is None else measured.mean_utilization,
        device_seconds=0.0 if measured is None else measured.device_seconds,
        runs=len(peaks),
        basis="",
    )
    basis = _basis(found, job=job).message
    if _lacking(found, job=job) is not None or found.mean_utilization is None:
        return with_fields(found, basis=basis)
    smaller = _smaller(request, of=found, mean=found.mean_utilization)
    saved = 0.0 if smaller is None else _saved(request, smaller=smaller, workers=workers_of(job))
    return with_fields(
        found,
        suggested="" if smaller is None else str(smaller),
        saved_gpus=saved,
        savable_hours=round(saved * hours, 4),
        basis=basis,
    )


def saved_by_accepted(job: GPUJob) -> float:
    """The GPUs by which the latest run of a job is smaller than its spec says, because of its right size."""
    if job.spec.right_size is None:
        return 0.0
    try:
        asked, request = request_of_job(job), parse(job.status.request)
    except RequestError:
        return 0.0
    return 0.0 if asked is None else max(0.0, _saved(asked, smaller=request, workers=workers_of(job)))


def _peaks(use: MemoryUse | None) -> list[int]:
    """The peaks in MiB that count: of this run, and of the ones before it."""
    if use is None or use.limited:
        return []
    return [peak for peak in (use.peak_mib, *believed(use.earlier_runs)) if peak]


def _lacking(found: RightSizeRow, *, job: GPUJob) -> Sentence | None:
    """Why nothing can be suggested; None if something can."""
    use, placement = job.status.memory, job.status.placement
    if job.spec.mode == "Exclusive":
        return says.SIZE_EXCLUSIVE()
    if placement is not None and placement.worker.resource:
        return says.SIZE_OF_PLUGIN()
    if use is not None and use.limited:
        return says.SIZE_LIMITED()
    if not found.peak_mib:
        return says.SIZE_WITHOUT_MEMORY()
    if found.mean_utilization is None or found.device_seconds < ENOUGH_SECONDS:
        return says.SIZE_TOO_SOON(measured=human(found.device_seconds), needed=human(ENOUGH_SECONDS))
    return None


def _smaller(request: GPURequest, *, of: RightSizeRow, mean: float) -> GPURequest | None:
    """The request that would do; None if it is not smaller by a step."""
    if request.mig:
        # A MIG instance is taken whole, and whether a smaller profile would do depends on how its GPU is partitioned.
        return None
    share = min(request.share_milli, _up(round(mean * 10 * _LOAD_PERCENT), step=_STEP_MILLI) or _STEP_MILLI)
    memory = min(of.promised_mib, _up(of.peak_mib * MARGIN_PERCENT // 100, step=_STEP_MIB))
    # A whole device has all its memory: less of it is possible with a share alone.
    asked = of.promised_mib if request.memory_mib is None else request.memory_mib
    less_memory = not request.whole and request.names_memory and memory <= asked - _STEP_MIB
    if share > request.share_milli - _STEP_MILLI and not less_memory:
        return None
    return replace(request, share_milli=share, memory_mib=memory, memory_percent=None)


def _up(amount: int, *, step: int) -> int:
    return -(-amount // step) * step


def _saved(request: GPURequest, *, smaller: GPURequest, workers: int) -> float:
    return workers * (request.total_milli - smaller.total_milli) / WHOLE_MILLI


def _basis(found: RightSizeRow, *, job: GPUJob) -> Sentence:
    """What the answer rests on, or what it lacks."""
    return _lacking(found, job=job) or says.SIZE_MEASURED(
        peak_mib=f"{found.peak_mib:,}",
        promised_mib=f"{found.promised_mib:,}",
        runs=found.runs,
        name=found.name,
        utilization=f"{found.mean_utilization or 0.0:.0%}",
        measured=human(found.device_seconds),
    )
