"""Pods that the Job controller cannot create, for example because of a ResourceQuota.

Other causes are Pod Security and a missing service account. The batch Job's status does not show the refusal, so its
job would hold its reserved room forever, and a gang could stay half started. The Job controller reports the refusal as
an event on the batch Job.
"""

import re
from collections.abc import Sequence
from typing import Final

from dovetail.api.builtin import Event, Job, Pod
from dovetail.api.gpujob import GPUJob, Reason
from dovetail.api.meta import EventType
from dovetail.formats.timestamps import moment
from dovetail.jobs.batch_job import is_external, is_on_the_way, true_condition, worker_of
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


def refusal_in(events: Sequence[Event], *, child: Job, pods: Sequence[Pod]) -> str:
    """Why the API server refuses pods of this start of the batch Job, in its words; else empty.

    Ignores refusals from before the newest of the `pods` was created: the Job controller creates pods again since then.
    """
    start = child.status.start_time
    since = max([start or "", *(pod.metadata.creation_timestamp for pod in pods)])
    refusals = [
        (at, event.message)
        for event in events
        if event.reason == FAILED_CREATE
        and event.involved_object.uid == child.metadata.uid
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


class RefusedPods:
    """The FailedCreate events of batch Jobs, for as long as the API server keeps them.

    Pass each such event to `changed`.
    """

    def __init__(self) -> None:
        # By the UID of the batch Job, and the event's name.
        self._events: dict[str, dict[str, Event]] = {}

    def changed(self, type_: EventType, *, event: Event) -> None:
        """Record a FailedCreate event, or its deletion."""
        uid, name = event.involved_object.uid, event.metadata.name
        events = self._events.setdefault(uid, {})
        if type_ == "DELETED":
            events.pop(name, None)
        else:
            events[name] = event
        if not events:
            del self._events[uid]

    def doubt(self, job: GPUJob, *, child: Job, pods: Sequence[Pod]) -> Doubt | None:
        """Why the plan of a job does not hold whose batch Job lacks pods; None without a refusal."""
        events = self._events.get(child.metadata.uid)
        if events is None or not lacks_pods(job, child=child, pods=pods):
            return None
        words = refusal_in(tuple(events.values()), child=child, pods=pods)
        return doubt_of(job, words=words) if words else None
