"""Jobs whose pods use more memory than promised: their condition, event and end. Pure.

Agents measure and judge (`memory_overuse` of the configuration). The operator reports to the job, and ends it if a
report requests that and `overuse_check` permits it. Such a job is not retried, because it would fail in the same way.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.gpunode import GPUNode, Overuse
from dovetail.api.meta import Condition, find_condition
from dovetail.api.reasons.capacity import AND_MORE
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.conditions import KEEPS_TO_PROMISE, condition
from dovetail.api.reasons.end import ENDED_FOR_OVERUSE, OVER_PROMISE
from dovetail.api.reasons.events import OVERUSED
from dovetail_operator.devices.overuse_check import EndingRules, refusal
from dovetail_operator.events.announcement import Announcement

CONDITION: Final = "MemoryWithinPromise"


class Overuses:
    """Overuses on all nodes from the agents' reports.

    `rules` decide which of them may end a pod.
    """

    def __init__(self, rules: EndingRules) -> None:
        self._rules = rules
        self._of_node: dict[str, dict[tuple[str, str], Overuse]] = {}

    def changed(self, gpunode: GPUNode) -> set[str]:
        """Take a report. Returns the UIDs of the pods whose overuse has changed."""
        name = gpunode.metadata.name
        before, after = self._of_node.get(name, {}), {(each.uid, each.device): each for each in gpunode.status.overuses}
        self._of_node[name] = after
        return {key[0] for key in before.keys() | after.keys() if before.get(key) != after.get(key)}

    def gone(self, node: str) -> None:
        """Drop a node whose GPUNode is deleted."""
        self._of_node.pop(node, None)

    def held_by(self, pods: Iterable[Pod]) -> tuple[Overuse, ...]:
        """The overuses of unfinished pods."""
        found = []
        for pod in pods:
            if not is_terminated(pod):
                on_node = self._of_node.get(pod.spec.node_name, {})
                found += [self._checked(each, pod=pod) for (uid, _), each in on_node.items() if uid == pod.metadata.uid]
        return tuple(sorted(found, key=lambda each: (each.name, each.index)))

    def _checked(self, overuse: Overuse, *, pod: Pod) -> Overuse:
        if overuse.evict and refusal(overuse, node=pod.spec.node_name, pod=pod, rules=self._rules):
            return msgspec.structs.replace(overuse, evict=False)
        return overuse


def explained(overuses: Iterable[Overuse]) -> Sentence:
    """The first overuse in one sentence, and the number of others."""
    first, *others = overuses
    found = OVER_PROMISE(
        pod=first.name,
        used_mib=f"{first.used_mib:,}",
        index=first.index,
        device=first.device,
        promised_mib=f"{first.promised_mib:,}",
    )
    return found + AND_MORE(count=len(others)) if others else found


def ending(overuses: Iterable[Overuse]) -> Sentence | None:
    """Why the job has to end; None if it does not."""
    to_end = [each for each in overuses if each.evict]
    return ENDED_FOR_OVERUSE() + explained(to_end) if to_end else None


def condition_of(
    overuses: tuple[Overuse, ...], *, before: Condition | None, finished: bool, now: str
) -> Condition | None:
    """Whether the job keeps to its promise; None before the first overuse.

    A finished job keeps its condition.
    """
    if overuses:
        return condition(CONDITION, status="False", why=explained(overuses), at=now)
    if before is None or finished:
        return before
    return condition(CONDITION, status="True", why=KEEPS_TO_PROMISE(), at=now)


def announcement_of(job: GPUJob, *, status: GPUJobStatus) -> Announcement | None:
    """The event for the first status with an overuse, else None."""
    before, after = (find_condition(each.conditions, type=CONDITION) for each in (job.status, status))
    if after is None or after.status != "False" or (before is not None and before.status == "False"):
        return None
    return Announcement(about=job.metadata, severity="Warning", why=OVERUSED(sentence=after.message))
