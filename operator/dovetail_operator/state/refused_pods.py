"""Pods that the Job controller cannot create, for example because of a ResourceQuota.

Other causes are Pod Security and a missing service account. The batch Job's status does not show the refusal, so its
job would hold its reserved room forever, and a gang could stay half started. The Job controller reports the refusal as
an event on the batch Job. For a guest, that is the guest itself, or one of the batch Jobs that its controller makes.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from dovetail import names
from dovetail.api.builtin import Event, Job, Pod
from dovetail.api.gpujob import GPUJob, Reason
from dovetail.api.meta import EventType
from dovetail.formats.timestamps import moment
from dovetail.jobs.batch_job import is_external, is_guests, is_on_the_way, true_condition, worker_of
from dovetail.jobs.guests.batch_job import BatchJobs
from dovetail.jobs.guests.jobset import JobSets
from dovetail.jobs.guests.record import name_with
from dovetail.jobs.guests.trainjob import TrainJobs
from dovetail_operator.job.plan_doubts import Doubt

# The Job controller retries by itself: a refusal that soon passes does not cost the job its room.
_PATIENCE_SECONDS: Final = 4.0
_REST_SECONDS: Final = 30.0
_LONGEST_REST_SECONDS: Final = 300.0
FAILED_CREATE: Final = "FailedCreate"
# Removed from messages: the note on combined events, and the pod's name, which differs each time.
_AROUND: Final = re.compile(r'^(\(combined from similar events\): )?(Error creating: )?(pods "[^"]*" is )?')


def lacks_pods(job: GPUJob, *, child: Job, pods: Sequence[Pod]) -> bool:
    """Whether the job's batch Job is running and has fewer pods than it should have."""
    if is_external(job) or not is_on_the_way(job, child=child):
        return False
    if true_condition(child, "SuccessCriteriaMet", "FailureTarget") is not None:
        return False
    there = {worker_of(pod) for pod in pods}
    return max(len(there), child.status.succeeded) < (child.spec.completions or job.spec.workers)


def start_of(job: GPUJob, *, child: Job) -> str | None:
    """When this start of a job began; None before."""
    # Of other kinds than the batch Job, only a few say when they have started.
    return child.status.start_time or (job.status.admitted_time if is_guests(job) else None)


def refusal_in(events: Sequence[Event], *, start: str | None, pods: Sequence[Pod]) -> str:
    """Why the API server refuses pods of a batch Job since this start, in its words; else empty.

    Ignores refusals from before the newest of the `pods` was created: the Job controller creates pods again since then.
    """
    since = max([start or "", *(pod.metadata.creation_timestamp for pod in pods)])
    refusals = [
        (at, event.message)
        for event in events
        if event.reason == FAILED_CREATE
        and (at := event.last_timestamp or event.event_time) is not None
        and start is not None
        and moment(at) >= moment(since)
    ]
    return _AROUND.sub("", max(refusals)[1]) if refusals else ""


def doubt_of(job: GPUJob, *, words: str) -> Doubt:
    """Doubt the plan of a job whose pods are refused: its room is free until the next try."""
    reason: Reason = "Quota" if "exceeded quota" in words else "Invalid"
    times = min(10, max(0, job.status.plans - 1))
    return Doubt(
        why="the API server refuses its pods",
        patience_seconds=_PATIENCE_SECONDS,
        rest_seconds=min(_LONGEST_REST_SECONDS, _REST_SECONDS * 2.0**times),
        words=f"the API server refuses its pods: {words}",
        reason=reason,
    )


def jobs_that_lack(name: str) -> Iterator[str]:
    """The possible names of the GPUJobs whose pods a batch Job of this name makes: its own, and those of guests."""
    yield name
    yield name_with(BatchJobs.prefix, name=name)
    # A JobSet's Jobs have the names JOBSET-REPLICATED-INDEX, and each part may have dashes.
    parts = name.split("-")
    for end in range(1, len(parts) - 1):
        for prefix in (JobSets.prefix, TrainJobs.prefix):
            yield name_with(prefix, name="-".join(parts[:end]))


class RefusedPods:
    """The FailedCreate events of batch Jobs, for as long as the API server keeps them.

    Pass each such event to `changed`.
    """

    def __init__(self) -> None:
        # By the UID of the batch Job, and the event's name.
        self._events: dict[str, dict[str, Event]] = {}
        # By namespace and the batch Job's name without its index: the UIDs of those that have events.
        self._uids: dict[tuple[str, str], set[str]] = {}

    def changed(self, type_: EventType, *, event: Event) -> None:
        """Record a FailedCreate event, or its deletion."""
        about, name = event.involved_object, event.metadata.name
        events = self._events.setdefault(about.uid, {})
        uids = self._uids.setdefault((about.namespace, _stem(about.name)), set())
        if type_ == "DELETED":
            events.pop(name, None)
        else:
            events[name] = event
            uids.add(about.uid)
        if not events:
            del self._events[about.uid]
            uids.discard(about.uid)
        if not uids:
            del self._uids[about.namespace, _stem(about.name)]

    def doubt(self, job: GPUJob, *, child: Job, pods: Sequence[Pod]) -> Doubt | None:
        """Why the plan of a job does not hold whose batch Job lacks pods; None without a refusal."""
        events = self._events_about(job, child=child)
        if not events or not lacks_pods(job, child=child, pods=pods):
            return None
        words = refusal_in(events, start=start_of(job, child=child), pods=pods)
        return doubt_of(job, words=words) if words else None

    def _events_about(self, job: GPUJob, *, child: Job) -> list[Event]:
        """The events on the batch Jobs that make the job's pods."""
        uids = {child.metadata.uid}
        if is_guests(job):
            uids |= {owner.uid for owner in job.metadata.owner_references}
            for stem in filter(None, child.metadata.annotations.get(names.JOB_STEMS, "").split(",")):
                uids |= self._uids.get((job.metadata.namespace, stem), set())
        return [event for uid in uids for event in self._events.get(uid, {}).values()]


def _stem(name: str) -> str:
    """The name before the dash and the index at its end; empty for a name without an index."""
    stem, _, index = name.rpartition("-")
    return stem if index.isdigit() else ""
