"""Notifications of job changes by mail or webhook: which changes, and their text. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dovetail import names
from dovetail.api.gpujob import ENDS, FINISHED, GPUJob, NotifyEvent
from dovetail.formats.durations import human, moment
from dovetail.jobs.runs import end_of_run

MOST_NOTED: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A reportable change of a job. `key` distinguishes it from all others of the same job."""

    event: NotifyEvent
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """The message about one change. Two messages with the same `id` are the same message."""

    id: str
    to: Sequence[str]
    subject: str
    text: str
    facts: dict[str, Any]


def due(job: GPUJob) -> list[Change]:
    """The requested changes that the job's status shows and does not record as sent, in order."""
    asked = job.spec.notify
    # An array is reported as a whole, not task by task.
    if asked is None or names.LABEL_ARRAY in job.metadata.labels:
        return []
    wanted = asked.events or ENDS
    return [each for each in _changes(job) if each.event in wanted and each.key not in job.status.notified]


def noted(job: GPUJob, *, changes: Sequence[Change]) -> list[str]:
    """The status field that records sent changes, with `changes` added."""
    return [*job.status.notified, *(change.key for change in changes)][-MOST_NOTED:]


def letter(job: GPUJob, *, change: Change) -> Letter:
    """The text of the change."""
    assert job.spec.notify is not None, "only called for jobs with notifications"
    status, meta = job.status, job.metadata
    number = f"{status.number} " if status.number is not None else ""
    subject = f"Job {number}({meta.name}) {_said(change)}"
    rows = [
        ("Job", f"{number}({meta.name})"),
        ("Namespace", meta.namespace),
        ("User", meta.annotations.get(names.USER, "")),
        ("Project", meta.labels.get(names.LABEL_PROJECT, "")),
        ("State", change.event),
        ("Reason", _reason(job, change=change)),
        ("GPUs", status.request),
        ("Nodes", ", ".join(status.nodes)),
        ("Submitted", meta.creation_timestamp),
        ("Started", status.start_time or ""),
        ("Ended", status.completion_time or ""),
        ("Run time", _run_time(job)),
    ]
    lines = [f"{name + ':':<11}{value}" for name, value in rows if value]
    return Letter(
        id=f"{meta.uid}/{change.key}",
        to=list(job.spec.notify.emails),
        subject=" ".join(subject.split()),
        text="\n".join([f"{subject}.", "", *lines, ""]),
        facts=_facts(job, change=change),
    )


def _changes(job: GPUJob) -> list[Change]:
    status, made = job.status, job.status.preemption
    count = made.count if made is not None else 0
    found = []
    if status.start_time is not None and not _was_before(status.start_time, preempted=made.last_time if made else None):
        found.append(Change(event="Started", key=f"Started/{status.attempt}.{count}"))
    if count:
        found.insert(0, Change(event="Preempted", key=f"Preempted/{count}"))
    if status.phase in FINISHED:
        found += [Change(event=event, key=event) for event in ENDS if event == status.phase]
    return found


def _was_before(start: str, *, preempted: str | None) -> bool:
    """Whether the start in the status belongs to a run that has been preempted since."""
    return preempted is not None and datetime.fromisoformat(start) < datetime.fromisoformat(preempted)


def _said(change: Change) -> str:
    return {"Started": "has started", "TimedOut": "has timed out", "Preempted": "has been preempted"}.get(
        change.event, f"has {change.event.lower()}" if change.event != "Cancelled" else "was cancelled"
    )


def _reason(job: GPUJob, *, change: Change) -> str:
    status = job.status
    if change.event == "Preempted" and status.preemption is not None:
        return status.preemption.message
    if change.event in {"Started", "Succeeded"}:
        return ""
    return f"{status.reason}: {status.message}" if status.reason and status.message else status.message or status.reason


def _run_time(job: GPUJob) -> str:
    start, end = job.status.start_time, end_of_run(job.status)
    return human((moment(end) - moment(start)).total_seconds()) if start and end else ""


def _facts(job: GPUJob, *, change: Change) -> dict[str, Any]:
    status, meta = job.status, job.metadata
    return {
        "event": change.event,
        "namespace": meta.namespace,
        "name": meta.name,
        "number": status.number,
        "uid": meta.uid,
        "user": meta.annotations.get(names.USER, ""),
        "project": meta.labels.get(names.LABEL_PROJECT, ""),
        "reason": _reason(job, change=change),
        "request": status.request,
        "nodes": list(status.nodes),
        "attempt": status.attempt,
        "submitTime": meta.creation_timestamp,
        "startTime": status.start_time,
        "completionTime": status.completion_time,
    }
