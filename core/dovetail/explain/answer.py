"""The answer: what each node says, and what would have to change. Values only."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dovetail.engine.model.claims import DeviceClaim
from dovetail.engine.model.refusals import RefusalKind
from dovetail.pods.node_affinity import ExclusionKind

ChangeKind = Literal[
    "Departure", "Uncordon", "Repair", "Strangers", "FewerGPUs", "FewerWorkers", "SmallerShare", "LessMemory",
    "OtherModel", "OtherIndex", "LessHost", "NodeSelector", "Taint", "NodeAffinity", "MoreNodes", "Limit",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """One node. Where it fits, `reason` is empty and there are a score of 0 to 1, its terms, and the devices that the
    pod would get; else `message` has the node's numbers and `text` is the same for every node of the cause.
    `note` says why what was measured there does not count, if it does not."""

    node: str
    reason: RefusalKind | ExclusionKind | Literal[""] = ""
    message: str = ""
    text: str = ""
    score: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    devices: tuple[DeviceClaim, ...] = ()
    note: str = ""

    @property
    def fits(self) -> bool:
        """Whether the pod could go there now."""
        return not self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that would make it fit, as a sentence; `node` is where, `request` what to ask instead if that is it.
    `later`: not now, but once others have left."""

    kind: ChangeKind
    text: str
    node: str = ""
    request: str = ""
    later: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """How many nodes refuse for one cause, in the words that they share."""

    reason: str
    text: str
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All of it. `fits` says whether every worker has a place now; `reason` is the job's reason where not."""

    fits: bool
    summary: str
    reason: str = ""
    nodes: tuple[NodeAnswer, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def causes(self) -> list[Cause]:
        """Refusals by cause, the most frequent first."""
        counts = Counter((node.reason, node.text) for node in self.nodes if not node.fits)
        ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        return [Cause(reason=reason, text=text, nodes=count) for (reason, text), count in ordered]

    @property
    def fitting(self) -> Sequence[NodeAnswer]:
        """The nodes that fit, the best first."""
        return [node for node in self.nodes if node.fits]
