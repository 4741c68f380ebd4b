"""Doubts about plans: why a started job's plan does not seem to hold, and when it counts as overtaken. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import GPUJob, Reason
from dovetail.api.reasons import start as says
from dovetail.api.reasons.clause import Sentence
from dovetail.cluster.view import ClusterView
from dovetail.formats.durations import after, timestamp
from dovetail.jobs.batch_job import refused_since, worker_of
from dovetail.jobs.obstacle import Obstacle

# How long a doubtful plan is kept: without room on its node, and refused by kube-scheduler.
_PATIENCE_SECONDS: Final = 3.0
_REFUSED_SECONDS: Final = 5.0
_LONGEST_REFUSED_SECONDS: Final = 60.0
# The longest pause before a new plan for a job that kube-scheduler refuses repeatedly.
_LONGEST_REST_SECONDS: Final = 300.0
# Such as "0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient memory. preemption: …": what follows the first
# full stop is about preemption and claims of devices.
_REFUSAL: Final = re.compile(r"0/\d+ nodes are available: ([^.]*)\.")
_CAUSE: Final = re.compile(r"\d+ Insufficient (\w+)")
_WORDS: Final = {"cpu": "CPU", "memory": "memory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why a plan does not seem to hold. After `patience_seconds` it counts as overtaken.

    The job then gets no new plan for `rest_seconds`, and its status shows `words` with `reason`. `why` is the short
    form for the message about the overtaken plan.
    """

    why: str
    patience_seconds: float = 0.0
    rest_seconds: float = 0.0
    words: str = ""
    reason: Reason = "Resources"


def doubt_about(node: str, *, view: ClusterView, others_go_on: bool = False) -> Doubt:
    """The doubt about the plan of a worker that has no room on its planned node.

    With `others_go_on` the plan is kept for a moment, because a new plan would restart the other workers too.
    """
    # Room may come free for this worker alone, and pods may be bound that the watch has not shown yet.
    patience = _PATIENCE_SECONDS if others_go_on else 0.0
    if (closed := view.closed(node)) is not None:
        return Doubt(why=closed.on(node).message, patience_seconds=patience)
    # Another pod there may be about to end, or this is a state between two events.
    return Doubt(why=says.ROOM_TAKEN(node=node).message, patience_seconds=_PATIENCE_SECONDS)


def doubt_of_refusal(job: GPUJob, *, pods: Sequence[Pod]) -> Doubt:
    """Doubt a plan that kube-scheduler refuses, perhaps by rules that Dovetail does not model.

    The patience doubles with each plan, up to 60 s. It stays at 5 s if some workers have started, because they would
    wait for the others. From the second plan on, other jobs may use the room before the next try.
    """
    times = max(0, job.status.plans - 1)
    # kube-scheduler refuses the pod of a replaced worker until the plan has its new node, and retries after a pause.
    is_replaced = job.status.placement is not None and job.status.placement.replaced > 0
    half_started = not is_replaced and any(pod.spec.node_name and not is_terminated(pod) for pod in pods)
    patience = (
        _LONGEST_REFUSED_SECONDS
        if is_replaced
        else min(_LONGEST_REFUSED_SECONDS, _REFUSED_SECONDS * 2.0 ** min(10, times))
    )
    rest = min(_LONGEST_REST_SECONDS, _REFUSED_SECONDS * 2.0 ** min(10, times - 1)) if times else 0.0
    return Doubt(
        why=says.NO_PLACE_FOUND().message,
        patience_seconds=_REFUSED_SECONDS if half_started else patience,
        rest_seconds=rest,
        words=_refusal(pods).message,
    )


def _refusal(pods: Sequence[Pod]) -> Sentence:
    """kube-scheduler's message on the first worker that it cannot place."""
    refused = [pod for pod in pods if refused_since([pod]) is not None]
    for pod in sorted(refused, key=worker_of):
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.message:
                return why_unplaced(condition.message)
    return says.SCHEDULER_FINDS_NONE()


def why_unplaced(message: str) -> Sentence:
    """Why the scheduler places a pod nowhere; its own message unless only CPU or memory is short."""
    if not message:
        return says.SCHEDULER_FINDS_NONE()
    causes = found[1].split(", ") if (found := _REFUSAL.match(message)) else []
    short = [_WORDS.get(cause[1], "") if (cause := _CAUSE.fullmatch(each)) else "" for each in causes]
    if not short or not all(short):
        return says.SCHEDULER_REFUSES(message=message)
    return says.NOT_ENOUGH_FREE(what=" and ".join(dict.fromkeys(short)))


def rest_after(doubt: Doubt, *, now: datetime) -> Obstacle | None:
    """The pause before a job with an overtaken plan gets a new one; None without a pause."""
    if not doubt.rest_seconds:
        return None
    until = after(now, seconds=doubt.rest_seconds)
    why = says.NEW_PLAN_AT(time=timestamp(until), why=doubt.words).with_reason(doubt.reason)
    return replace(Obstacle.of(why), until=until)


class Doubts:
    """Since when plans are doubtful, by the job's UID."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def overtaken(self, doubts: Mapping[str, Doubt], *, now: float) -> dict[str, str]:
        """Return the plans that have been doubtful for too long, with the reason.

        `now` is in seconds.
        """
        self._since = {uid: self._since.get(uid, now) for uid in doubts}
        return {uid: each.why for uid, each in doubts.items() if now - self._since[uid] >= each.patience_seconds}
