"""The plan of the queue: what runs, when jobs that wait start, what is kept free for them, what is emptied. Pure.

The estimates are those that the operator has written into the jobs.
"""

from collections.abc import Iterable, Iterator, Sequence

from dovetail.answers import Row
from dovetail.answers.inventory import NodeUse
from dovetail.answers.jobs import JobDevice, JobReference, end_of, job_device, job_reference
from dovetail.answers.owners import user_of
from dovetail.answers.readers import Reader
from dovetail.api.gpujob import GPUJob, Phase, is_finished
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.availability import is_leaving
from dovetail.config.groups import DrainRules
from dovetail.formats.timestamps import moment


class FilledGap(Row, frozen=True, kw_only=True):
    """The gap that a job uses: it ends by `until`, when room that is kept on its node is needed for `job`.

    `job` is null for a job of another tenant.
    """

    job: JobReference | None
    until: str


class PlannedWorkers(Row, frozen=True, kw_only=True):
    """The workers that are planned on a node. The queue plans nodes; devices are chosen when the pods are bound."""

    node: str
    workers: int


class PlanRow(Row, frozen=True, kw_only=True):
    """A job that runs, or that waits with an estimated start. `earliest` and `latest` are the estimate's bounds.

    `endsBy` is when its lease or its time limit ends it, null without either. `leavesAt` is when its pods end because
    of a preemption or a drain that is announced. `planned` are its nodes before it has devices.
    """

    namespace: str
    name: str
    number: int | None
    user: str
    phase: Phase
    request: str
    workers: int
    starts_at: str
    earliest: str | None
    latest: str | None
    ends_by: str | None
    leaves_at: str | None
    position: int | None
    nodes: list[str]
    devices: list[JobDevice]
    planned: list[PlannedWorkers]
    fills: FilledGap | None


class KeptRoom(Row, frozen=True, kw_only=True):
    """Room of a node that is kept for a waiting job, as requests in the compact text; `workers` start there by `at`.

    `job` is null for a job of another tenant.
    """

    job: JobReference | None
    node: str
    at: str
    workers: int
    keeps: list[str]


class PlanWindow(Row, frozen=True, kw_only=True):
    """An advance reservation of a quota. Both names are null for a quota that applies to other tenants alone."""

    quota: str | None
    name: str | None
    start: str
    end: str
    gpus: int
    pool: str | None


class PlanDrain(Row, frozen=True, kw_only=True):
    """A node, or one device of it, that takes no new work.

    `restarts` says whether its jobs restart elsewhere once there is room.
    """

    node: str
    index: int | None
    why: str
    restarts: bool


class PlanPage(Row, frozen=True, kw_only=True):
    """A page of the plan, by start. All that is kept, reserved or drained is on the first page alone."""

    items: list[PlanRow]
    kept: list[KeptRoom]
    windows: list[PlanWindow]
    drains: list[PlanDrain]
    next: str | None


def plan_rows(jobs: Iterable[GPUJob], *, waiting: Sequence[GPUJob], reader: Reader) -> Iterator[PlanRow]:
    """Those of the jobs that run or have an estimated start; `waiting` are all for which room is kept."""
    for job in jobs:
        if not reader.sees(job.metadata.namespace):
            continue
        if (row := plan_row(job, fills=filled_gap(job, waiting=waiting, reader=reader))) is not None:
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


def filled_gap(job: GPUJob, *, waiting: Sequence[GPUJob], reader: Reader) -> FilledGap | None:
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
            return FilledGap(job=_named(other, reader=reader), until=place.reserved.time)
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


def drains(nodes: Iterable[NodeUse], *, rules: DrainRules) -> Iterator[PlanDrain]:
    """The nodes that are to be emptied or take no work, and the devices of all others that take none."""
    restarts = rules.action == "Restart"
    for use in nodes:
        if use.unavailable:
            leaves = use.node is not None and is_leaving(use.node)
            yield PlanDrain(node=use.name, index=None, why=use.reason, restarts=restarts and leaves)
            continue
        for each in use.uses:
            if not each.takes_work:
                yield PlanDrain(node=use.name, index=each.device.index, why=each.reason, restarts=False)
