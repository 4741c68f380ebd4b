"""Right sizes: what the next run of a job should request, from what this run and earlier ones used. Pure.

Memory comes from measured peaks, as in `dovetail.jobs.memory_use`: runs of one name count, back to one that used all
that it was promised. Compute comes from the mean utilization of the job's devices.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from msgspec.structs import replace as with_fields

from dovetail.answers.owners import project_of, user_of
from dovetail.answers.waste import RightSizeRow
from dovetail.api.gpujob import GPUJob, MemoryUse
from dovetail.formats.durations import human
from dovetail.gpu.request import WHOLE_MILLI, GPURequest, RequestError, parse
from dovetail.jobs.memory_use import MARGIN_PERCENT, believed, name_of_runs

# A shorter measurement shows how a job starts, and not what it needs.
ENOUGH_SECONDS: Final = 600.0
# A fifth above the mean: work comes in bursts.
_LOAD_PERCENT: Final = 120
# Shares and memory are suggested in such steps, as people write them.
_STEP_MILLI: Final = 100
_STEP_MIB: Final = 1024


def right_sizes(jobs: Iterable[GPUJob]) -> Iterator[RightSizeRow]:
    """The right size of each user's runs of one name, from the latest one that has measurements."""
    latest: dict[tuple[str, str, str], GPUJob] = {}
    for job in jobs:
        if not (job.status.memory or job.status.measured):
            continue
        key = (*name_of_runs(job), user_of(job) or "")
        if key not in latest or latest[key].metadata.creation_timestamp < job.metadata.creation_timestamp:
            latest[key] = job
    for job in latest.values():
        if (found := right_size(job)) is not None:
            yield found


def right_size(job: GPUJob) -> RightSizeRow | None:
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
        saved_gpus=0.0,
        promised_mib=max(device.memory_mib for device in status.devices),
        peak_mib=max(peaks, default=0),
        mean_utilization=None if measured is None else measured.mean_utilization,
        device_seconds=0.0 if measured is None else measured.device_seconds,
        runs=len(peaks),
        basis="",
    )
    if (lacking := _lacking(found, use=status.memory)) or found.mean_utilization is None:
        return with_fields(found, basis=lacking)
    smaller = _smaller(request, of=found, mean=found.mean_utilization)
    return with_fields(
        found,
        suggested="" if smaller is None else str(smaller),
        saved_gpus=0.0 if smaller is None else _saved(request, smaller=smaller, workers=job.spec.workers),
        basis=_basis(found, mean=found.mean_utilization),
    )


def _peaks(use: MemoryUse | None) -> list[int]:
    """The peaks in MiB that count: of this run, and of the ones before it."""
    if use is None or use.limited:
        return []
    return [peak for peak in (use.peak_mib, *believed(use.earlier_runs)) if peak]


def _lacking(found: RightSizeRow, *, use: MemoryUse | None) -> str:
    """Why nothing can be suggested; empty if something can."""
    if use is not None and use.limited:
        return "It used all the memory that it was promised, so it may need more"
    if not found.peak_mib:
        return "No memory use of its own was measured on its devices"
    if found.mean_utilization is None or found.device_seconds < ENOUGH_SECONDS:
        return f"Measured for {human(found.device_seconds)} of device time; a right size needs {human(ENOUGH_SECONDS)}"
    return ""


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


def _basis(found: RightSizeRow, *, mean: float) -> str:
    runs = f"{found.runs} run{'s' if found.runs > 1 else ''} of {found.name}"
    memory = f"Peak {found.peak_mib:,} MiB of {found.promised_mib:,} MiB on a device in {runs}"
    return f"{memory}; mean utilization {mean:.0%} over {human(found.device_seconds)} of device time"
