"""The answers to questions about the queue: dry run, explanation, audit. Types only."""

from typing import Literal

from dovetail.answers import Row
from dovetail.answers.notebook import view


class NodeShare(Row, frozen=True, kw_only=True):
    """A number of GPUs on a node."""

    node: str
    gpus: int


class DryRun(Row, frozen=True, kw_only=True):
    """What the queue would decide now. `victims` counts the jobs that would be preempted.

    `cpu_in_seconds` is when a job that waits for busy GPUs would run on the CPU; null if it would wait for them.
    """

    outcome: Literal["Starts", "Waits", "Never", "NotBefore", "Blocked", "Invalid"]
    reason: str
    message: str
    nodes: list[NodeShare]
    position: int | None
    starts_in_seconds: float | None
    earliest_in_seconds: float | None
    latest_in_seconds: float | None
    basis: str
    victims: int
    cpu_in_seconds: float | None


class ExplainedNode(Row, frozen=True, kw_only=True):
    """A node's answer to a job; `reason` is empty where it fits."""

    node: str
    reason: str
    message: str
    score: float | None


class ExplainedChange(Row, frozen=True, kw_only=True):
    """A change that would make the job fit."""

    kind: str
    text: str
    node: str
    request: str


class ExplainedCause(Row, frozen=True, kw_only=True):
    """How many nodes refuse for one cause."""

    reason: str
    text: str
    nodes: int


class ExplainedDevice(Row, frozen=True, kw_only=True):
    """A device that the job holds."""

    pod: str
    node: str
    index: int
    uuid: str
    share_milli: int
    memory_mib: int


class Explanation(Row, frozen=True, kw_only=True):
    """Why a job waits, or where it is. What belongs to other tenants is called `another tenant`."""

    state: str
    summary: str
    fits: bool | None
    reason: str
    notes: list[str]
    basis: str
    changes: list[ExplainedChange]
    causes: list[ExplainedCause]
    nodes: list[ExplainedNode]
    held: list[ExplainedDevice]

    def __str__(self) -> str:
        lines = [self.summary, *self.notes, *(f"- {change.text}" for change in self.changes)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return view(
            self.summary,
            notes=self.notes,
            items=[change.text for change in self.changes],
            rows=((node.node, node.message or "fits") for node in self.nodes),
        )


class FindingRow(Row, frozen=True, kw_only=True):
    """A promise that is broken."""

    kind: str
    subject: str
    message: str


class Audit(Row, frozen=True, kw_only=True):
    """The proof that no device is promised beyond its capacity: it holds if there is no finding.

    `items` names the findings only if you may list the GPUJobs of all namespaces; `findings` counts them.
    """

    pods: int
    devices: int
    findings: int
    items: list[FindingRow]
