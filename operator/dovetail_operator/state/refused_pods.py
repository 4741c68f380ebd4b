"""Pods that their controller cannot create, for example because of a ResourceQuota.

Other causes are Pod Security and a missing service account. The batch Job's status does not show the refusal, so its
job would hold its reserved room forever, and a gang could stay half started. The Job controller reports the refusal as
an event on the batch Job. For a guest, that is the guest itself, or one of the objects that its controller makes.
KubeRay and the MPI operator, which create pods themselves, report it on the RayCluster or MPIJob.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from dovetail.api.builtin import Event, Job, ObjectReference, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.api.reasons.start import API_QUOTA_PODS, API_REFUSES_PODS, PODS_REFUSED
from dovetail.api.resources import JOBS
from dovetail.formats.timestamps import moment
from dovetail.jobs.batch_job import (
    expected_workers,
    is_external,
    is_guests,
    is_on_the_way,
    true_condition,
    worker_of,
)
from dovetail.jobs.guests.batch_job import BatchJobs
from dovetail.jobs.guests.jobset import JobSets
from dovetail.jobs.guests.mpijob import MPIJobs
from dovetail.jobs.guests.raycluster import RayClusters
from dovetail.jobs.guests.rayjob import RayJobs
from dovetail.jobs.guests.record import name_with
from dovetail.jobs.guests.run import POD_MAKERS
from dovetail.jobs.guests.trainjob import TrainJobs
from dovetail_operator.job.plan_doubts import Doubt

# The Job controller retries by itself: a refusal that soon passes does not cost the job its room.
_PATIENCE_SECONDS: Final = 4.0
_REST_SECONDS: Final = 30.0
_LONGEST_REST_SECONDS: Final = 300.0
_MPI_FAILED: Final = "MPIJobFailed"
# The reasons of such events, and the kind that they are about.
REFUSALS: Final = (
    ("FailedCreate", JOBS.kind),
    ("FailedToCreateHeadPod", RayClusters.resource.kind),
    ("FailedToCreateWorkerPod", RayClusters.resource.kind),
    (_MPI_FAILED, MPIJobs.resource.kind),
)
# Of the MPI operator's events of that reason, the others report a job that has failed.
_MPI_WORDS: Final = "worker pod created failed: "
# Removed from messages: the note on combined events, and the pod's name, which differs each time.
_AROUND: Final = re.compile(
    r"^(\(combined from similar events\): )?"
    r"(Error creating: |Failed to create (head|worker) Pod [^,]*, |worker pod created failed: )?"
    r'(pods "[^"]*" is )?'
)


def lacks_pods(job: GPUJob, *, child: Job, pods: Sequence[Pod]) -> bool:
    """Whether the job's batch Job is running and has fewer pods than it should have."""
    if is_external(job) or not is_on_the_way(job, child=child):
        return False
    if true_condition(child, "SuccessCriteriaMet", "FailureTarget") is not None:
        return False
    there = {worker_of(pod) for pod in pods}
    return max(len(there), child.status.succeeded) < (child.spec.completions or expected_workers(job, child=child))


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
        if _is_refusal(event)
        and (at := event.last_timestamp or event.event_time) is not None
        and start is not None
        and moment(at) >= moment(since)
    ]
    return _AROUND.sub("", max(refusals)[1]) if refusals else ""


def doubt_of(job: GPUJob, *, words: str) -> Doubt:
    """Doubt the plan of a job whose pods are refused: its room is free until the next try."""
    why = (API_QUOTA_PODS if "exceeded quota" in words else API_REFUSES_PODS)(message=words)
    times = min(10, max(0, job.status.plans - 1))
    return Doubt(
        why=PODS_REFUSED().message,
        patience_seconds=_PATIENCE_SECONDS,
        rest_seconds=min(_LONGEST_REST_SECONDS, _REST_SECONDS * 2.0**times),
        words=why.message,
        reason=why.wait_reason,
    )


def jobs_that_lack(about: ObjectReference) -> Iterator[str]:
    """The possible names of the GPUJobs whose pods an object makes: a batch Job's own, and those of guests."""
    own: dict[str, Sequence[str]] = {
        JOBS.kind: [BatchJobs.prefix],
        RayClusters.resource.kind: [RayClusters.prefix],
        MPIJobs.resource.kind: [MPIJobs.prefix],
    }
    makers = {JOBS.kind: [JobSets.prefix, TrainJobs.prefix], RayClusters.resource.kind: [RayJobs.prefix]}
    if about.kind == JOBS.kind:
        yield about.name
    for prefix in own.get(about.kind, ()):
        yield name_with(prefix, name=about.name)
    # Such as JOBSET-REPLICATED-INDEX and RAYJOB-RANDOM, and each part may have dashes.
    parts = about.name.split("-")
    for prefix in makers.get(about.kind, ()):
        for end in range(1, len(parts)):
            yield name_with(prefix, name="-".join(parts[:end]))


def _is_refusal(event: Event) -> bool:
    if (event.reason, event.involved_object.kind) not in REFUSALS:
        return False
    return event.reason != _MPI_FAILED or _MPI_WORDS in event.message


class RefusedPods:
    """The events of `REFUSALS`, for as long as the API server keeps them.

    Pass each such event to `changed`.
    """

    def __init__(self) -> None:
        # By the UID of the object, and the event's name.
        self._events: dict[str, dict[str, Event]] = {}
        # By namespace and KIND/NAME, with and without an index: the UIDs of the objects that have events.
        self._uids: dict[tuple[str, str], set[str]] = {}

    def changed(self, type_: EventType, *, event: Event) -> None:
        """Record an event, or its deletion."""
        about, name = event.involved_object, event.metadata.name
        events = self._events.setdefault(about.uid, {})
        if type_ == "DELETED":
            events.pop(name, None)
        else:
            events[name] = event
        if not events:
            del self._events[about.uid]
        for each in _names_of(about):
            uids = self._uids.setdefault((about.namespace, each), set())
            if events:
                uids.add(about.uid)
            else:
                uids.discard(about.uid)
            if not uids:
                del self._uids[about.namespace, each]

    def doubt(self, job: GPUJob, *, child: Job, pods: Sequence[Pod]) -> Doubt | None:
        """Why the plan of a job does not hold whose batch Job lacks pods; None without a refusal."""
        events = self._events_about(job, child=child)
        if not events or not lacks_pods(job, child=child, pods=pods):
            return None
        words = refusal_in(events, start=start_of(job, child=child), pods=pods)
        return doubt_of(job, words=words) if words else None

    def _events_about(self, job: GPUJob, *, child: Job) -> list[Event]:
        """The events on the objects of which the job's pods are made."""
        uids = {child.metadata.uid}
        if is_guests(job):
            uids |= {owner.uid for owner in job.metadata.owner_references}
            for maker in child.metadata.annotations.get(POD_MAKERS, "").split(","):
                uids |= self._uids.get((job.metadata.namespace, maker), set())
        return [event for uid in uids for event in self._events.get(uid, {}).values()]


def _names_of(about: ObjectReference) -> list[str]:
    """How a guest names an object of which its pods are made: with its index, and without it."""
    stem, dash, index = about.name.rpartition("-")
    found = [about.name, f"{stem}{dash}"] if index.isdigit() and dash else [about.name]
    return [f"{about.kind}/{each}" for each in found]
