"""What keeps a running job's workers and their neighbors within their promises. Pure.

The answer comes from the agents of the job's nodes. Nothing is claimed that no agent has tested.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import Mode
from dovetail.api.gpunode import Enforcement, GPUNode
from dovetail.api.meta import Condition
from dovetail.api.reasons import conditions as says
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.nodes import DETAIL

CONDITION: Final = "Enforced"
_SHOWN: Final = 4
Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforced:
    """What enforces a mode on a node: condition status, and the sentence without the node."""

    status: Status
    why: Sentence


class Enforcements:
    """What the nodes can enforce, from the agents' reports."""

    def __init__(self) -> None:
        self._of_node: dict[str, Enforcement] = {}

    def changed(self, gpunode: GPUNode) -> bool:
        """Take a report. Returns whether it changes anything."""
        name, found = gpunode.metadata.name, gpunode.status.enforcement
        before, self._of_node[name] = self._of_node.get(name), found
        return before != found

    def gone(self, node: str) -> None:
        """Drop a node whose GPUNode is deleted."""
        self._of_node.pop(node, None)

    def reports_for(self, pods: Iterable[Pod]) -> dict[str, Enforcement | None]:
        """The reports of the nodes that run unfinished pods; None for a node without a report."""
        nodes = {pod.spec.node_name for pod in pods if pod.spec.node_name and not is_terminated(pod)}
        return {node: self._of_node.get(node) for node in sorted(nodes)}


def enforced(mode: Mode, *, found: Enforcement | None) -> Enforced:
    """What enforces `mode` on a node with this report."""
    if mode == "Exclusive":
        return Enforced(status="True", why=says.ALONE())
    if found is None:
        return Enforced(status="Unknown", why=says.UNREPORTED())
    if mode == "Fractional":
        if found.mps:
            return Enforced(status="True", why=_with(says.BY_MPS(), found=found, name="mps"))
        return Enforced(status="False", why=_with(says.SHARES_UNENFORCED(), found=found, name="mps"))
    if found.turns:
        return Enforced(status="True", why=says.IN_TURNS())
    unshared = says.BY_DRIVER() if found.time_slicing else says.TIME_UNSHARED()
    return Enforced(status="False", why=_with(unshared, found=found, name="turns"))


def condition_of(
    nodes: Mapping[str, Enforcement | None], *, mode: Mode | None, before: Condition | None, finished: bool, now: str
) -> Condition | None:
    """The weakest enforcement among the job's nodes; None while it runs on no node.

    A finished job keeps its condition.
    """
    if finished:
        return before
    if not nodes or mode is None:
        return None
    found = {node: enforced(mode, found=enforcement) for node, enforcement in nodes.items()}
    weakest = min(found.values(), key=lambda each: (("False", "Unknown", "True").index(each.status), each.why.reason))
    where = [node for node, each in found.items() if each == weakest]
    shown, more = ", ".join(where[:_SHOWN]), len(where) - _SHOWN
    listed = says.AND_OTHER_NODES(nodes=shown, more=more) if more > 0 else says.ON_NODES(nodes=shown)
    return says.condition(CONDITION, status=weakest.status, why=weakest.why + listed, at=now)


def _with(sentence: Sentence, *, found: Enforcement, name: str) -> Sentence:
    why = found.reasons.get(name, "")
    return sentence + DETAIL(detail=why) if why else sentence
