"""The answer: each node's reason, and what would help. Values only."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dovetail.answers.questions import ExplainedCause, ExplainedChange, ExplainedNode
from dovetail.api.meta import MessageDetail
from dovetail.api.reasons.clause import Sentence

ChangeKind = Literal[
    "Departure", "Uncordon", "Repair", "Strangers", "FewerGPUs", "FewerWorkers", "SmallerShare", "SmallerGPU",
    "LessMemory", "OtherModel", "OtherProfile", "OtherIndex", "LessHost", "NodeSelector", "Taint", "NodeAffinity",
    "MoreNodes", "Limit", "WiderTopology",
]  # fmt: skip


def change(kind: ChangeKind, *, says: Sentence, node: str = "", request: str = "") -> ExplainedChange:
    """The change that this sentence of the table describes."""
    return ExplainedChange(kind=kind, text=says.message, node=node, request=request, details=list(says.clauses))


def said_by(found: ExplainedChange) -> Sentence:
    """The sentence of a change."""
    return Sentence(message=found.text, clauses=tuple(found.details))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The whole answer.

    `fits` says whether every worker has a place now; if not, `reason` is the job's reason. `clauses` has those of the
    texts of nodes, by the text.
    """

    fits: bool
    sentence: Sentence
    reason: str = ""
    nodes: tuple[ExplainedNode, ...] = ()
    changes: tuple[ExplainedChange, ...] = ()
    clauses: Mapping[str, Sequence[MessageDetail]] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The sentence as a text."""
        return self.sentence.message

    @property
    def causes(self) -> list[ExplainedCause]:
        """The refusals by cause, the most frequent first."""
        counts = Counter((node.reason, node.text) for node in self.nodes if not node.fits)
        ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        return [
            ExplainedCause(reason=reason, text=text, nodes=count, details=list(self.clauses.get(text, ())))
            for (reason, text), count in ordered
        ]

    @property
    def fitting(self) -> Sequence[ExplainedNode]:
        """The nodes that fit, the best first."""
        return [node for node in self.nodes if node.fits]
