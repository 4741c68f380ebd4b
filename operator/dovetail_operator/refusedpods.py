"""Pods that the Job controller cannot make: a ResourceQuota, Pod Security or a missing service account refuses them.

The batch Job says nothing of it, so its job would hold its room for ever, and a gang could stay half started. What the
Job controller tells is an event about the batch Job; that is looked up for a job whose pods do not come.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Final

from dovetail.api.gpujob import GPUJob, Reason
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.kube.objects import Event, Job, Pod
from dovetail.kube.reflector import key_of
from dovetail.kube.resources import EVENTS
from dovetail.logs import get_logger
from dovetail.moments import moment
from dovetail_operator.observed import Observed, is_external, is_on_the_way, true_condition, worker_of
from dovetail_operator.plans import Doubt
from dovetail_operator.state import State

log = get_logger("dovetail.operator.refusedpods")

# Most pods come within this time, and nothing has to be asked.
_FIRST_LOOK_SECONDS: Final = 3.0
_LONGEST_LOOK_SECONDS: Final = 30.0
_TICK_SECONDS: Final = 1.0
# One after the other: what is asked costs the API server a walk over the events of a namespace.
_LOOKS_A_TICK: Final = 10
# The Job controller tries again by itself: what passes soon takes no room away.
_PATIENCE_SECONDS: Final = 4.0
_REST_SECONDS: Final = 30.0
_LONGEST_REST_SECONDS: Final = 300.0
_REASON: Final = "FailedCreate"
# Of the words: that several events are meant, and the name of a pod, which is another one each time.
_AROUND: Final = re.compile(r'^(\(combined from similar events\): )?(Error creating: )?(pods "[^"]*" is )?')


def lacks_pods(job: GPUJob, child: Job | None, pods: Sequence[Pod]) -> bool:
    """Whether the job's batch Job is at work and has not as many pods as it should have."""
    if child is None or is_external(job) or not is_on_the_way(job, child):
        return False
    if true_condition(child, "SuccessCriteriaMet", "FailureTarget") is not None:
        return False
    there = {worker_of(pod) for pod in pods}
    return max(len(there), child.status.succeeded) < (child.spec.completions or job.spec.workers)


def refusal_in(events: Sequence[Event], *, child: Job) -> str:
    """Why the pods of this start of the batch Job cannot be made, in the API server's words; empty where none tells."""
    start = child.status.start_time
    told = [
        (at, event.message)
        for event in events
        if event.reason == _REASON
        and event.involved_object.uid == child.metadata.uid
        and (at := event.last_timestamp or event.event_time) is not None
        and start is not None
        and moment(at) >= moment(start)
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
    """Looks up why pods do not come, and notes it in the state; `look_again` has the queue take note of that.

    `clock` is in seconds.
    """

    def __init__(
        self, client: Client, state: State, *, look_again: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._state = state
        self._look_again = look_again
        self._clock = clock
        # When to look next, and how long to wait after that, by the job's key.
        self._due: dict[str, tuple[float, float]] = {}

    def watch(self, seen: Observed) -> None:
        """Remember a job whose pods are missing, perhaps for a moment only."""
        if lacks_pods(seen.job, seen.child, seen.pods):
            due = (self._clock() + _FIRST_LOOK_SECONDS, _FIRST_LOOK_SECONDS)
            self._due.setdefault(key_of(seen.job.metadata), due)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Ask about the jobs whose time has come."""
        now, asked = self._clock(), 0
        for key in [key for key, (due, _) in self._due.items() if due <= now]:
            asked += await self._look(key, now=now)
            if asked >= _LOOKS_A_TICK:
                break

    async def _look(self, key: str, *, now: float) -> bool:
        """Ask about one job where its pods are still missing; whether that was asked."""
        job = self._state.jobs.get(key)
        child = None if job is None else self._state.child_of(job)
        if job is None or child is None or not lacks_pods(job, child, self._state.pods.of(child)):
            del self._due[key]
            if job is not None:
                self._state.refused_pods.pop(job.metadata.uid, None)
            return False
        pause = min(_LONGEST_LOOK_SECONDS, 2 * self._due[key][1])
        self._due[key] = (now + pause, pause)
        words = await self._words(child)
        if words and words != self._state.refused_pods.get(job.metadata.uid):
            log.info("pods are refused", job=key, message=words)
            self._state.refused_pods[job.metadata.uid] = words
            self._look_again()
        return True

    async def _words(self, child: Job) -> str:
        about = f"involvedObject.uid={child.metadata.uid},reason={_REASON}"
        try:
            found = await self._client.list(
                EVENTS, as_type=Event, namespace=child.metadata.namespace, field_selector=about
            )
        except KubeError as error:
            log.warning("cannot tell why pods do not come", job=child.metadata.name, error=str(error))
            return ""
        return refusal_in(found.items, child=child)
