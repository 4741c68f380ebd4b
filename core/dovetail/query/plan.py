"""The plan of the queue, from the estimates that the operator has written into the jobs. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dovetail.answers.inventory import NodeUse
from dovetail.answers.jobs import JobReference, end_of, job_reference
from dovetail.answers.owners import user_of
from dovetail.answers.plan import FilledGap, KeptRoom, PlanDrain, PlannedWorkers, PlanRow, PlanWindow
from dovetail.answers.readers import Reader
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.availability import is_leaving
from dovetail.formats.timestamps import moment


def plan_rows(
    jobs: Iterable[GPUJob], *, waiting: Sequence[GPUJob], reader: Reader, bounded: bool = False
) -> Iterator[PlanRow]:
    """Those of the jobs that run or have an estimated start; `waiting` are all for which room is kept.

    `bounded` leaves out those that just run: without planned nodes, a gap that they fill, or an announced end.
    """
    rooms = _rooms_by_node(waiting)
    for job in jobs:
        if not reader.sees(job.metadata.namespace):
            continue
        fills = _gap_in(rooms, job=job, reader=reader)
        # Thousands of jobs just run, and a row of each takes longer than all other rows.
        if bounded and fills is None and job.status.preemption is None and not _planned(job):
            continue
        row = plan_row(job, fills=fills)
        if row is not None and (not bounded or row.planned or row.fills or row.leaves_at):
            yield row


def has_room_kept(job: GPUJob) -> bool:
    """Whether the queue keeps room for the job."""
    return job.status.queue is not None and job.status.queue.reserved is not None


def kept_rooms(job: GPUJob, *, reader: Reader) -> Iterator[KeptRoom]:
    """The room that is kept for a waiting job, by node."""
    place = job.status.queue
    if place is None or place.reserved is None:
        return
    keeps = {each.name: each.keeps for each in place.reserved.kept}
    for node in place.reserved.nodes:
        yield KeptRoom(
            job=_named(job, reader=reader),
            node=node.name,
            at=place.reserved.time,
            workers=node.workers,
            keeps=keeps.get(node.name, []),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """Room that is kept for a waiting job until it is needed, and the job's rank among all that wait."""

    rank: int
    job: GPUJob
    created: datetime
    until: str
    needed: datetime


def _rooms_by_node(waiting: Sequence[GPUJob]) -> Mapping[str, Sequence[_Room]]:
    found: dict[str, list[_Room]] = defaultdict(list)
    for rank, job in enumerate(waiting):
        place = job.status.queue
        if place is None or place.reserved is None:
            continue
        created, needed = moment(job.metadata.creation_timestamp), moment(place.reserved.time)
        room = _Room(rank=rank, job=job, created=created, until=place.reserved.time, needed=needed)
        for node in place.reserved.nodes:
            found[node.name].append(room)
    return found


def _gap_in(rooms: Mapping[str, Sequence[_Room]], *, job: GPUJob, reader: Reader) -> FilledGap | None:
    """The gap before a waiting job that this one uses; None if it uses none.

    It backfills if it was submitted later, has workers on a node of the kept room, and ends before that is needed.
    """
    status = job.status
    if status.start_time is None or is_finished(job):
        return None
    # Times are read for jobs on such nodes alone.
    near = [room for node in status.nodes for room in rooms.get(node, ()) if room.job.metadata.uid != job.metadata.uid]
    if not near or not (ends := end_of(job)):
        return None
    created, end = moment(job.metadata.creation_timestamp), moment(ends)
    first = min(
        (room for room in near if created > room.created and end <= room.needed),
        key=lambda each: each.rank,
        default=None,
    )
    return None if first is None else FilledGap(job=_named(first.job, reader=reader), until=first.until)


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
        devices=job.status.devices,
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


def _named(job: GPUJob, *, reader: Reader) -> JobReference | None:
    return job_reference(job) if reader.sees(job.metadata.namespace) else None


def windows(quotas: Iterable[GPUQuota], *, reader: Reader) -> Iterator[PlanWindow]:
    """The advance reservations, by start. Those of other tenants have no names."""
    found = [(window, quota) for quota in quotas for window in quota.spec.advance_reservations]
    for window, quota in sorted(found, key=lambda each: (each[0].start_time, each[0].name)):
        is_shown = _applies_to(quota, reader=reader)
        yield PlanWindow(
            quota=quota.metadata.name if is_shown else None,
            name=window.name if is_shown else None,
            start=window.start_time,
            end=window.end_time,
            gpus=window.gpus,
            pool=window.pool,
        )


def _applies_to(quota: GPUQuota, *, reader: Reader) -> bool:
    """Whether the quota applies to namespaces that the caller sees. One of users may be another tenant's."""
    if reader.everything:
        return True
    return not quota.spec.users and (not quota.spec.namespaces or any(map(reader.sees, quota.spec.namespaces)))


def drains(nodes: Iterable[NodeUse], *, restarts: bool) -> Iterator[PlanDrain]:
    """The nodes that are to be emptied or take no work, and the devices of all others that take none.

    `restarts` says whether jobs of nodes that are emptied restart elsewhere.
    """
    for use in nodes:
        if use.unavailable:
            leaves = use.node is not None and is_leaving(use.node)
            yield PlanDrain(node=use.name, index=None, why=use.reason, restarts=restarts and leaves)
            continue
        for each in use.uses:
            if not each.takes_work:
                yield PlanDrain(node=use.name, index=each.device.index, why=each.reason, restarts=False)
