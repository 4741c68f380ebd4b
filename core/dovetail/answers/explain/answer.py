"""The answer: each node's reason, and what would help. Values only."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dovetail.answers.questions import ExplainedCause, ExplainedChange, ExplainedNode
from dovetail.api.reasons.clause import Sentence

ChangeKind = Literal[
    "Departure", "Uncordon", "Repair", "Strangers", "FewerGPUs", "FewerWorkers", "SmallerShare", "SmallerGPU",
    "LessMemory", "OtherModel", "OtherProfile", "OtherIndex", "LessHost", "NodeSelector", "Taint", "NodeAffinity",
    "MoreNodes", "Limit", "WiderTopology",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The whole answer.

    `fits` says whether every worker has a place now; if not, `reason` is the job's reason.
    """

    fits: bool
    sentence: Sentence
    reason: str = ""
    nodes: tuple[ExplainedNode, ...] = ()
    changes: tuple[ExplainedChange, ...] = ()

    @property
    def summary(self) -> str:
        """The sentence as a text."""
        return self.sentence.message

    @property
    def causes(self) -> list[ExplainedCause]:
        """The refusals by cause, the most frequent first."""
        counts = Counter((node.reason, node.text) for node in self.nodes if not node.fits)
        ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        return [ExplainedCause(reason=reason, text=text, nodes=count) for (reason, text), count in ordered]

    @property
    def fitting(self) -> Sequence[ExplainedNode]:
        """The nodes that fit, the best first."""
        return [node for node in self.nodes if node.fits]
