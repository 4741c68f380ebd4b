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
from dovetail_operator.devices.overuse_check import EndingRules, refusal
from dovetail_operator.events.announcement import Announcement

CONDITION: Final = "MemoryWithinPromise"
REASON: Final = "MemoryOverPromise"


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


def sentence(overuses: Iterable[Overuse]) -> str:
    """The first overuse in one sentence, and the number of others."""
    first, *others = overuses
    more = f", and {len(others)} more" if others else ""
    return (
        f"Pod {first.name} uses {first.used_mib:,} MiB of GPU {first.index} ({first.device}), "
        f"but was promised {first.promised_mib:,} MiB{more}"
    )


def ending(overuses: Iterable[Overuse]) -> str:
    """Why the job has to end; empty if it does not."""
    to_end = [each for each in overuses if each.evict]
    return f"Ended by memory_overuse: {sentence(to_end)}" if to_end else ""


def condition_of(
    overuses: tuple[Overuse, ...], *, before: Condition | None, finished: bool, now: str
) -> Condition | None:
    """Whether the job keeps to its promise; None before the first overuse.

    A finished job keeps its condition.
    """
    if overuses:
        return Condition(
            type=CONDITION, status="False", reason=REASON, message=sentence(overuses), last_transition_time=now
        )
    if before is None or finished:
        return before
    message = "The job uses no more memory than it was promised any more"
    return Condition(type=CONDITION, status="True", reason="WithinPromise", message=message, last_transition_time=now)


def announcement_of(job: GPUJob, *, status: GPUJobStatus) -> Announcement | None:
    """The event for the first status with an overuse, else None."""
    before, after = (find_condition(each.conditions, type=CONDITION) for each in (job.status, status))
    if after is None or after.status != "False" or (before is not None and before.status == "False"):
        return None
    return Announcement(about=job.metadata, severity="Warning", reason=REASON, message=after.message)
