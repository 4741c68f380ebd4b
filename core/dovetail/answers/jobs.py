"""The answers about jobs: a list, one job, and its events. Pure.

They start without NumPy and the engine, as lists of jobs do.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

from msgspec import Meta

from dovetail import names
from dovetail.answers import Page, Row
from dovetail.answers.owners import project_of, user_of
from dovetail.api.builtin import Event
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import (
    AssignedDevice,
    Dependency,
    DependencyState,
    DeviceKind,
    GPUJob,
    GPUJobStatus,
    Phase,
)
from dovetail.api.historyquery import JobRecord
from dovetail.api.meta import MessageDetail, find_condition
from dovetail.formats.notebook import view
from dovetail.formats.timestamps import after, moment, timestamp
from dovetail.jobs.display_name import display_name


def console_url(gateway: str, *, namespace: str, name: str) -> str:
    """The address of a job's page in the console of the gateway at that URL."""
    return f"{gateway.rstrip('/')}/console/job/{quote(namespace, safe='')}/{quote(name, safe='')}"


class JobDependency(Dependency, frozen=True, kw_only=True, omit_defaults=False):
    """A job that must meet a condition first, and whether it has met it; null until the operator has looked."""

    state: DependencyState | None


class JobRow(Row, frozen=True, kw_only=True):
    """A GPUJob in one row. Times are RFC 3339.

    `details` are the clauses of the message as codes and parameters, for other languages ([table](reasons.md)).
    `name` is that of the object, and `displayName` is what people call the job. `request` is what each worker requests,
    and `gpus` the number of GPUs of all workers. `device` is what it runs on: `cpu` also for one that runs without the
    GPUs it requests. `simulated` says that nothing of it really runs. `position` is its place in the queue, from 1.
    `earliest` and `latest` are the bounds of `estimatedStart`, which rests on `basis` with the clauses `basisDetails`.
    `endsBy` is when the lease or the time limit ends the job, from its start or its estimated start. `idle` says
    since when it leaves its GPUs idle, by the idle policy; empty if it does not.
    """

    namespace: str
    name: str
    display_name: str
    uid: str
    number: int | None
    user: str
    project: str
    phase: Phase
    reason: str
    message: str
    details: list[MessageDetail]
    request: str
    gpus: int
    device: DeviceKind | None
    simulated: bool
    workers: int
    priority: int
    reservation: bool
    position: int | None
    estimated_start: str | None
    earliest: str | None
    latest: str | None
    basis: str
    basis_details: list[MessageDetail] = []
    dependencies: list[JobDependency]
    nodes: list[str]
    devices: list[AssignedDevice]
    time_limit_seconds: int | None
    submitted_at: str
    started_at: str | None
    completed_at: str | None
    lease_ends_at: str | None
    ends_by: str | None
    idle: str

    # The columns of a table of jobs in a notebook.
    COLUMNS: ClassVar = ("number", "display_name", "user", "phase", "request", "gpus", "nodes", "message")

    def card(self, *, gateway: str = "", log: Sequence[str] = ()) -> str:
        """The job as a notebook shows it: state, reason, estimate, devices, and lines of its log.

        The title leads to its page in the console of the `gateway` at that URL.
        """
        number = "" if self.number is None else f" {self.number}"
        between = f" ({self.earliest} to {self.latest})" if self.earliest and self.latest else ""
        shown = {
            "phase": self.phase,
            "GPUs": f"{self.gpus} ({self.request})" if self.request else str(self.gpus),
            "nodes": ", ".join(self.nodes),
            "devices": ", ".join(f"{each.node}:{each.index}" for each in self.devices),
            "message": self.message,
            "position": "" if self.position is None else str(self.position),
            "estimated start": f"{self.estimated_start}{between}" if self.estimated_start else "",
            "submitted": self.submitted_at,
            "started": self.started_at,
            "completed": self.completed_at,
        }
        rows = ((name, text) for name, text in shown.items() if text)
        url = console_url(gateway, namespace=self.namespace, name=self.name) if gateway else ""
        return view(f"Job{number}: {self.namespace}/{self.name}", url=url, rows=rows, log=log)

    def _repr_html_(self) -> str:
        return self.card()


class JobList(Page[JobRow], frozen=True, kw_only=True):
    """A page of jobs. `next` is the cursor of the next page; null for the last one."""


class HistoryPage(Row, frozen=True, kw_only=True):
    """A page of jobs that have ended, the latest end first. `next` is the cursor of the next page."""

    items: list[JobRecord]
    next: str | None


class JobDetails(Row, frozen=True, kw_only=True):
    """A GPUJob: its row, and the spec and status of the API object."""

    row: JobRow
    spec: Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/GPUJobSpec"})]
    status: Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/GPUJobStatus"})]


class JobReference(Row, frozen=True, kw_only=True):
    """A GPUJob that you may list."""

    namespace: str
    name: str
    number: int | None


class Removed(Row, frozen=True, kw_only=True):
    """A job that is cancelled or deleted; `found` is false if it was gone already."""

    namespace: str
    name: str
    found: bool


class Position(Row, frozen=True, kw_only=True):
    """The place of a job in the queue; null for one that does not wait for room.

    `details` are the clauses of the message as codes and parameters, and `basisDetails` those of `basis`.
    `boundsHeld` is how many of the latest jobs started within such bounds, a ratio.
    """

    phase: Phase
    reason: str
    message: str
    details: list[MessageDetail]
    position: int | None
    estimated_start: str | None
    earliest: str | None
    latest: str | None
    bounds_held: float | None
    basis: str
    basis_details: list[MessageDetail] = []


class EventRow(Row, frozen=True, kw_only=True):
    """Something that happened to a job, last `at`; null if its writer states no time."""

    type: str
    reason: str
    message: str
    count: int
    at: str | None


class EventList(Row, frozen=True, kw_only=True):
    """The events of a job, the oldest first."""

    items: list[EventRow]


def job_row(job: GPUJob) -> JobRow:
    """The row of a job."""
    meta, spec, status = job.metadata, job.spec, job.status
    place = status.queue
    return JobRow(
        namespace=meta.namespace,
        name=meta.name,
        display_name=display_name(meta),
        uid=meta.uid,
        number=status.number,
        user=user_of(job) or "",
        project=project_of(job),
        phase=status.phase or "Queued",
        reason=status.reason,
        message=status.message,
        details=status.details,
        request=status.request or str(spec.gpu or ""),
        gpus=status.gpus,
        device=status.device,
        simulated=status.simulated,
        workers=spec.workers,
        priority=spec.priority,
        reservation=spec.reservation is not None,
        position=None if place is None else place.position,
        estimated_start=None if place is None else place.estimated_start,
        earliest=None if place is None else place.estimated_start_earliest,
        latest=None if place is None else place.estimated_start_latest,
        basis="" if place is None else place.basis,
        basis_details=[] if place is None else place.basis_details,
        dependencies=_dependencies(job),
        nodes=status.nodes,
        devices=status.devices,
        time_limit_seconds=spec.active_deadline_seconds,
        submitted_at=meta.creation_timestamp,
        started_at=status.start_time,
        completed_at=status.completion_time,
        lease_ends_at=None if status.lease is None else status.lease.expiration_time,
        ends_by=end_of(job),
        idle=_idle(status),
    )


def job_reference(job: GPUJob) -> JobReference:
    """What names the job."""
    return JobReference(namespace=job.metadata.namespace, name=job.metadata.name, number=job.status.number)


def _dependencies(job: GPUJob) -> list[JobDependency]:
    known = {each.name: each.state for each in job.status.dependencies}
    return [
        JobDependency(name=each.name, condition=each.condition, state=known.get(each.name))
        for each in job.spec.dependencies
    ]


def end_of(job: GPUJob) -> str | None:
    """When the job's lease or time limit ends it, from its start or estimated start; None without either."""
    status, limit = job.status, job.spec.active_deadline_seconds
    if status.lease is not None and status.lease.expiration_time:
        return status.lease.expiration_time
    starts_at = status.start_time or (None if status.queue is None else status.queue.estimated_start)
    if limit is None or starts_at is None:
        return None
    return timestamp(after(moment(starts_at), seconds=limit))


def _idle(status: GPUJobStatus) -> str:
    """Since when the job leaves its GPUs idle, in a sentence; empty if it does not."""
    found = find_condition(status.conditions, type=names.CONDITION_IDLE)
    return found.message if found is not None and found.status == "True" else ""


def job_details(job: GPUJob) -> JobDetails:
    """The job with its spec and status."""
    return JobDetails(row=job_row(job), spec=values_of(job.spec), status=values_of(job.status))


def position_of(job: GPUJob) -> Position:
    """The place of a job in the queue."""
    status = job.status
    place = status.queue
    return Position(
        phase=status.phase or "Queued",
        reason=status.reason,
        message=status.message,
        details=status.details,
        position=None if place is None else place.position,
        estimated_start=None if place is None else place.estimated_start,
        earliest=None if place is None else place.estimated_start_earliest,
        latest=None if place is None else place.estimated_start_latest,
        bounds_held=None if place is None else place.bounds_held,
        basis="" if place is None else place.basis,
        basis_details=[] if place is None else place.basis_details,
    )


def event_rows(events: Iterable[Event]) -> list[EventRow]:
    """The events, the oldest first."""
    return [_event(each) for each in sorted(events, key=_order)]


def _order(event: Event) -> tuple[str, int, str]:
    """By time, then by version: versions are numbers, of which a longer one is larger."""
    version = event.metadata.resource_version
    return _time(event), len(version), version


def _event(event: Event) -> EventRow:
    return EventRow(
        type=event.type,
        reason=event.reason,
        message=event.message,
        count=event.count or 1,
        at=_time(event) or None,
    )


def _time(event: Event) -> str:
    said = event.last_timestamp or event.event_time or event.first_timestamp or event.metadata.creation_timestamp
    # Some writers add microseconds.
    return f"{said[:19]}Z" if said else ""
