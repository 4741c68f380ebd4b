"""All that one job's object says, for programs and for `gjob show`. Pure."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from dovetail.api.builtin import Event
from dovetail.api.gpujob import ENDS, Attempt, GPUJob, NotifyEvent, Preemption, Tasks
from dovetail.api.meta import Condition
from dovetail.query.jobs.events import JobEvent, job_events
from dovetail.query.jobs.rows import JobRow, job_row


class JobDetails(JobRow, frozen=True, kw_only=True):
    """A job, with all that its row omits. Times are RFC 3339; None is what does not apply or is not known yet.

    uid                  the object's UID
    estimated_earliest   the earlier bound of its estimated start
    estimated_latest     the later bound
    bounds_held          of the latest jobs that started here, the part that did so between their bounds, 0 to 1
    begin_time           before this time it does not start
    admitted_time        when the queue admitted it
    lease_end_time       when the lease of a reservation ends
    earlier_run_seconds  how long its runs before the latest one have lasted, in seconds
    retries              how many retries are used
    max_retries          how many retries it has
    attempt              which attempt this is, from 1
    attempts             the attempts before that
    tasks                the progress of an array or a sweep
    preemption           its preemptions
    peak_memory_mib      the highest use of a device by a worker, in MiB
    memory_basis         what the promise of device memory rests on
    mean_utilization     the mean utilization of its devices, from 0 to 1
    notify_emails        where messages about it go
    notify_events        the events that cause messages
    notified             the events for which messages have been sent
    conditions           its conditions
    events               what has happened to it, oldest first; None if the reader may not list events
    """

    uid: str
    estimated_earliest: str | None
    estimated_latest: str | None
    bounds_held: float | None
    begin_time: str | None
    admitted_time: str | None
    lease_end_time: str | None
    earlier_run_seconds: int
    retries: int
    max_retries: int
    attempt: int
    attempts: list[Attempt]
    tasks: Tasks | None
    preemption: Preemption | None
    peak_memory_mib: int | None
    memory_basis: str | None
    mean_utilization: float | None
    notify_emails: list[str]
    notify_events: list[NotifyEvent]
    notified: list[str]
    conditions: list[Condition]
    events: list[JobEvent] | None


def job_details(job: GPUJob, *, events: Iterable[Event] | None, now: datetime) -> JobDetails:
    """The job at `now`, with these events; `events` is None if the reader may not list them."""
    status, spec, notify, place = job.status, job.spec, job.spec.notify, job.status.queue
    return JobDetails(
        **msgspec.structs.asdict(job_row(job, now=now)),
        uid=job.metadata.uid,
        estimated_earliest=None if place is None else place.estimated_start_earliest,
        estimated_latest=None if place is None else place.estimated_start_latest,
        bounds_held=None if place is None else place.bounds_held,
        begin_time=spec.begin_time,
        admitted_time=status.admitted_time,
        lease_end_time=status.lease.expiration_time if status.lease else None,
        earlier_run_seconds=status.earlier_run_seconds,
        retries=status.retries,
        max_retries=spec.backoff_limit,
        attempt=status.attempt,
        attempts=status.attempts,
        tasks=status.tasks,
        preemption=status.preemption,
        peak_memory_mib=status.memory.peak_mib if status.memory else None,
        memory_basis=status.memory.basis if status.memory else None,
        mean_utilization=status.measured.mean_utilization if status.measured else None,
        notify_emails=notify.emails if notify else [],
        notify_events=notify.events or list(ENDS) if notify else [],
        notified=status.notified,
        conditions=status.conditions,
        events=None if events is None else job_events(events),
    )
