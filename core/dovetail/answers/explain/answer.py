"""The answer: each node's reason, and what would help. Values only."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dovetail.engine.model.claims import DeviceClaim
from dovetail.engine.model.refusals import RefusalKind
from dovetail.pods.node_affinity import ExclusionKind

ChangeKind = Literal[
    "Departure", "Uncordon", "Repair", "Strangers", "FewerGPUs", "FewerWorkers", "SmallerShare", "SmallerGPU",
    "LessMemory", "OtherModel", "OtherProfile", "OtherIndex", "LessHost", "NodeSelector", "Taint", "NodeAffinity",
    "MoreNodes", "Limit", "WiderTopology",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """The answer of one node.

    - `node`: its name
    - `reason`: why the pod does not fit; empty where it fits
    - `message`: the reason with the node's numbers
    - `text`: the reason in words that all nodes with the same cause share
    - `score`: 0 to 1, where the pod fits
    - `terms`: the terms of the score
    - `devices`: what the pod would get
    - `note`: why the node's measurements do not count; empty where they do
    """

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
    """One change that would make the request fit, as a sentence.

    `node` is where the change happens, `request` what to request instead, if that is the change. `later` says that it
    helps only once other jobs have left.
    """

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
    """The whole answer.

    `fits` says whether every worker has a place now; if not, `reason` is the job's reason.
    """

    fits: bool
    summary: str
    reason: str = ""
    nodes: tuple[NodeAnswer, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def causes(self) -> list[Cause]:
        """The refusals by cause, the most frequent first."""
        counts = Counter((node.reason, node.text) for node in self.nodes if not node.fits)
        ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        return [Cause(reason=reason, text=text, nodes=count) for (reason, text), count in ordered]

    @property
    def fitting(self) -> Sequence[NodeAnswer]:
        """The nodes that fit, the best first."""
        return [node for node in self.nodes if node.fits]
