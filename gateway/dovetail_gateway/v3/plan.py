"""v3: the plan: since when each job runs and until when at most, and when each waiting job is estimated to start."""

from collections.abc import Iterator, Sequence
from typing import Any

from dovetail.answers.jobs import JobReference, end_of, job_device, job_reference
from dovetail.answers.owners import user_of
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.formats.timestamps import moment
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.v3.paging import page
from dovetail_gateway.v3.plan_bounds import drains, windows
from dovetail_gateway.v3.types.plan import (
    FilledGap,
    KeptRoom,
    PlanFilter,
    PlannedWorkers,
    PlanPage,
    PlanRow,
)


class Plan:
    """The handler of `/api/v3/plan`. The estimates are those that the operator has written into the jobs."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    async def get_plan(self, call: Call[Nothing, PlanFilter, Any]) -> Answer:
        """A page of the jobs that run or have an estimated start, in the order of their starts."""
        waiting = [job for job in self._cache.jobs.values() if has_room_kept(job) and not is_finished(job)]
        rows = {
            f"{row.starts_at} {row.namespace}/{row.name}": row
            for row in self._rows(call.sees, namespace=call.query.namespace, waiting=waiting)
            if not call.query.bounded or row.planned or row.fills or row.leaves_at
        }
        chosen, following = page(sorted(rows), cursor=call.query.cursor, limit=call.query.limit)
        is_first = not call.query.cursor
        drained = drains(self._cache.node_uses(), rules=self._cache.settings.drain) if is_first else ()
        return Answer(
            value=PlanPage(
                items=[rows[key] for key in chosen],
                kept=[room for job in waiting for room in kept_rooms(job, sees=call.sees)] if is_first else [],
                windows=list(windows(self._cache.quotas, sees=call.sees)) if is_first else [],
                drains=list(drained),
                next=following,
            )
        )

    def _rows(self, sees: Visibility, *, namespace: str | None, waiting: Sequence[GPUJob]) -> Iterator[PlanRow]:
        for job in self._cache.jobs.values():
            here = job.metadata.namespace
            if not sees.sees(here) or namespace not in {None, here}:
                continue
            if (row := plan_row(job, fills=filled_gap(job, waiting=waiting, sees=sees))) is not None:
                yield row


def has_room_kept(job: GPUJob) -> bool:
    """Whether the queue keeps room for the job."""
    return job.status.queue is not None and job.status.queue.reserved is not None


def kept_rooms(job: GPUJob, *, sees: Visibility) -> Iterator[KeptRoom]:
    """The room that is kept for a waiting job, by node."""
    place = job.status.queue
    if place is None or place.reserved is None:
        return
    keeps = {each.name: each.keeps for each in place.reserved.kept}
    for node in place.reserved.nodes:
        yield KeptRoom(
            job=_named(job, sees=sees),
            node=node.name,
            at=place.reserved.time,
            workers=node.workers,
            keeps=keeps.get(node.name, []),
        )


def filled_gap(job: GPUJob, *, waiting: Sequence[GPUJob], sees: Visibility) -> FilledGap | None:
    """The gap before a waiting job that this one uses; None if it uses none.

    It backfills if it was submitted later, has workers on a node of the kept room, and ends before that is needed.
    """
    status = job.status
    if status.start_time is None or is_finished(job) or not (ends := end_of(job)):
        return None
    for other in waiting:
        place = other.status.queue
        if place is None or place.reserved is None or other.metadata.uid == job.metadata.uid:
            continue
        is_later = moment(job.metadata.creation_timestamp) > moment(other.metadata.creation_timestamp)
        shares_nodes = not {each.name for each in place.reserved.nodes}.isdisjoint(status.nodes)
        if is_later and shares_nodes and moment(ends) <= moment(place.reserved.time):
            return FilledGap(job=_named(other, sees=sees), until=place.reserved.time)
    return None


def plan_row(job: GPUJob, *, fills: FilledGap | None = None) -> PlanRow | None:
    """A job's place in the plan; None for one that has ended, or whose start is not known."""
    status, place = job.status, job.status.queue
    estimated = None if place is None else place.estimated_start
    starts_at = status.start_time or estimated or (status.admitted_time if status.placement is not None else None)
    if starts_at is None or is_finished(job):
        return None
    return PlanRow(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        number=status.number,
        user=user_of(job) or "",
        phase=status.phase or "Queued",
        request=status.request,
        workers=job.spec.workers,
        starts_at=starts_at,
        earliest=None if place is None or status.start_time else place.estimated_start_earliest,
        latest=None if place is None or status.start_time else place.estimated_start_latest,
        ends_by=end_of(job),
        leaves_at=None if status.preemption is None else status.preemption.at,
        position=None if place is None else place.position,
        nodes=status.nodes,
        devices=[job_device(each) for each in job.status.devices],
        planned=_planned(job),
        fills=fills,
    )


def _planned(job: GPUJob) -> list[PlannedWorkers]:
    """The nodes of a job that has no devices yet."""
    status = job.status
    if status.devices:
        return []
    reserved = None if status.queue is None else status.queue.reserved
    source = status.placement or reserved
    return [PlannedWorkers(node=each.name, workers=each.workers) for each in ([] if source is None else source.nodes)]


def _named(job: GPUJob, *, sees: Visibility) -> JobReference | None:
    return job_reference(job) if sees.sees(job.metadata.namespace) else None
