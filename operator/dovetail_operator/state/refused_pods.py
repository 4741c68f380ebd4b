"""Pods that the Job controller cannot make: a ResourceQuota, Pod Security or a missing service account refuses them.

The batch Job says nothing of it, so its job would hold its room for ever, and a gang could stay half started. What the
Job controller tells is an event about the batch Job.
"""

import re
from collections.abc import Sequence
from typing import Final

from dovetail.api.builtin import Event, Job, Pod
from dovetail.api.gpujob import GPUJob, Reason
from dovetail.api.meta import EventType
from dovetail.formats.timestamps import moment
from dovetail.jobs.batch_job import is_external, is_on_the_way, true_condition, worker_of
from dovetail_operator.job.plan import Doubt

# The Job controller tries again by itself: what passes soon takes no room away.
_PATIENCE_SECONDS: Final = 4.0
_REST_SECONDS: Final = 30.0
_LONGEST_REST_SECONDS: Final = 300.0
FAILED_CREATE: Final = "FailedCreate"
# Of the words: that several events are meant, and the name of a pod, which is another one each time.
_AROUND: Final = re.compile(r'^(\(combined from similar events\): )?(Error creating: )?(pods "[^"]*" is )?')


def lacks_pods(job: GPUJob, child: Job, pods: Sequence[Pod]) -> bool:
    """Whether the job's batch Job is at work and has not as many pods as it should have."""
    if is_external(job) or not is_on_the_way(job, child):
        return False
    if true_condition(child, "SuccessCriteriaMet", "FailureTarget") is not None:
        return False
    there = {worker_of(pod) for pod in pods}
    return max(len(there), child.status.succeeded) < (child.spec.completions or job.spec.workers)


def refusal_in(events: Sequence[Event], *, child: Job, pods: Sequence[Pod]) -> str:
    """Why pods of this start of the batch Job cannot be made, in the API server's words; empty where none tells.

    What was refused before the newest of the `pods` was made has passed: the others are on their way.
    """
    start = child.status.start_time
    since = max([start or "", *(pod.metadata.creation_timestamp for pod in pods)])
    told = [
        (at, event.message)
        for event in events
        if event.reason == FAILED_CREATE
        and event.involved_object.uid == child.metadata.uid
        and (at := event.last_timestamp or event.event_time) is not None
        and start is not None
        and moment(at) >= moment(since)
    ]
    return _AROUND.sub("", max(told)[1]) if told else ""


def doubt_of(job: GPUJob, *, words: str) -> Doubt:
    """The plan of a job whose pods are refused does not hold: others may have its room until it is tried again."""
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
    """What is told of pods that cannot be made, for as long as the API server keeps it. Feed it each such event."""

    def __init__(self) -> None:
        # By the UID of the batch Job, and their own names.
        self._told: dict[str, dict[str, Event]] = {}

    def changed(self, type_: EventType, event: Event) -> None:
        """An event that a pod of a batch Job cannot be made was seen, or is gone."""
        uid, name = event.involved_object.uid, event.metadata.name
        told = self._told.setdefault(uid, {})
        if type_ == "DELETED":
            told.pop(name, None)
        else:
            told[name] = event
        if not told:
            del self._told[uid]

    def doubt(self, job: GPUJob, child: Job, pods: Sequence[Pod]) -> Doubt | None:
        """Why the plan of a job does not hold of whose batch Job pods are missing; None where nothing is told of it."""
        told = self._told.get(child.metadata.uid)
        if told is None or not lacks_pods(job, child, pods):
            return None
        words = refusal_in(tuple(told.values()), child=child, pods=pods)
        return doubt_of(job, words=words) if words else None
