"""The seats of a guest's record: which pods may have one, and how many pods can still come. Pure.

A seat has the size of the record's request, no matter who made the pod. How many seats a guest keeps follows from its
spec and status as they are now: a guest that asks for fewer pods than before keeps fewer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dovetail import names
from dovetail.api.builtin import JobStatus
from dovetail.api.gpujob import GPUJob, Mode, Workload
from dovetail.api.reasons import start as says
from dovetail.formats.quantities import read_whole
from dovetail.gpu.memory_strategy import fraction_of
from dovetail.gpu.request import GPURequest, RequestError, parse
from dovetail.jobs.guests.kind import Guest, GuestError, Kind, PodSet
from dovetail.pods.containers import mode_of
from dovetail.pods.demand import request_of_job
from dovetail.pods.options.annotations import guard_in, workload_in

# After these, a guest's controller makes no pod any more.
_OVER: Final = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a seat takes of its node's devices."""

    request: GPURequest
    mode: Mode
    guard_fraction: float | None
    workload: Workload | None


def size_of(record: GPUJob) -> Size | None:
    """The size of a record's seats; None for a record without GPUs. Raises `RequestError`."""
    request, spec = request_of_job(record), record.spec
    if request is None:
        return None
    strategy = spec.memory.strategy
    return Size(
        request=request,
        mode=mode_of(spec.mode, request=request),
        guard_fraction=None if strategy is None else fraction_of(strategy),
        workload=spec.workload,
    )


def size_in(annotations: Mapping[str, str]) -> Size | None:
    """The size that a pod or its template asks for; None for one without GPUs. Raises `RequestError`."""
    if (single := next((key for key in annotations if key.startswith(f"{names.REQUEST}.")), None)) is not None:
        raise RequestError(
            annotations[single], field=f"annotation {single}", problem=says.ONE_QUEUED_CONTAINER(),
            example=f"annotation {names.REQUEST}",
        )  # fmt: skip
    if (text := annotations.get(names.REQUEST)) is None:
        return None
    request = parse(text)
    return Size(
        request=request,
        mode=mode_of(annotations.get(names.MODE), request=request),
        guard_fraction=guard_in(annotations),
        workload=workload_in(annotations),
    )


def misfit(annotations: Mapping[str, str], *, record: GPUJob) -> str:
    """Why a pod with these annotations gets no seat of the record, and does not start without one.

    Empty for a pod of the record's own request, and for one without GPUs, such as a launcher.
    """
    try:
        asked, own = size_in(annotations), size_of(record)
    except RequestError as error:
        return str(error)
    if asked is None or asked == own:
        return ""
    name = record.metadata.name
    if own is None:
        return f"it requests {asked.request}, and GPUJob {name} has pods without GPUs"
    if asked.request != own.request:
        return f"it requests {asked.request}, and each pod of GPUJob {name} has {own.request}"
    return f"its mode, memory strategy or workload is not that of GPUJob {name}"


def can_come(guest: Guest, *, kind: Kind, record: GPUJob, succeeded: int = 0) -> int:
    """How many unfinished pods with the record's request the guest may have at the same time from now on.

    `succeeded` is the number of its pods that have succeeded, for kinds whose status does not count them. 0 for a guest
    that is over or is being deleted, and for one whose spec cannot be read: its pods go on, and no others come.
    """
    if guest.metadata.deletion_timestamp is not None:
        return 0
    progress = kind.progress(guest)
    if any(each.type in _OVER and each.status == "True" for each in progress.conditions):
        return 0
    try:
        sets = [each for each in kind.pod_sets(guest.spec) if each.count and _is_seated(each, record=record)]
    except GuestError:
        return 0
    count = sum(each.count for each in sets)
    totals = [each.total for each in sets]
    left = sum(total or 0 for total in totals) - max(succeeded, progress.succeeded + _failed_indexes(progress))
    return count if None in totals else max(0, min(count, left))


def _failed_indexes(status: JobStatus) -> int:
    """How many indexes have failed for good, with `backoffLimitPerIndex`; the status has them as `0-3,7`."""
    spans = [part.partition("-") for part in status.failed_indexes.split(",") if part]
    ends = [(read_whole(first, otherwise=0), read_whole(last, otherwise=-1)) for first, _, last in spans]
    return sum(max(0, last - first) + 1 for first, last in ends)


def _is_seated(pods: PodSet, *, record: GPUJob) -> bool:
    """Whether the pods of a template are workers of the record: they have its own request."""
    annotations = pods.template.annotations
    is_worker = pods.asks_for_gpus or record.spec.gpu is None
    return is_worker and not misfit(annotations, record=record)
