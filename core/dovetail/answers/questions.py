"""The answers to questions about the queue: dry run, explanation, audit. Types only."""

from typing import Literal

from dovetail.answers import Row
from dovetail.answers.jobs import JobReference
from dovetail.api.devices import DeviceShare
from dovetail.api.gpujob import Mode, Policy
from dovetail.api.meta import MessageDetail
from dovetail.formats.notebook import view

# How far the subject of an explanation is.
State = Literal["asked", "waiting", "placed", "ended", "held", "invalid", "not ours"]


class NodeShare(Row, frozen=True, kw_only=True):
    """A number of GPUs on a node."""

    node: str
    gpus: int


class DryRunStart(Row, frozen=True, kw_only=True):
    """The estimated start, in seconds from now, once other jobs have ended.

    Nine of ten jobs start between `earliest` and `latest`, as far as earlier estimates tell; null where only the
    likeliest start is simulated.
    `basis` says what the estimate assumes, and `basisDetails` are its clauses as codes and parameters.
    """

    seconds: float
    earliest: float | None
    latest: float | None
    basis: str
    basis_details: list[MessageDetail] = []


class Victim(JobReference, frozen=True, kw_only=True):
    """A job that would be preempted."""

    priority: int


class DryRunPreemption(Row, frozen=True, kw_only=True):
    """The preemption that starts the job sooner than ends of other jobs do; times are in seconds from now.

    It may begin `inSeconds` from now, 0 for now. The victims are warned `graceSeconds` before their end, and the job
    starts at the latest at `startsInSeconds`. `otherVictims` counts those that you may not list.
    """

    in_seconds: float
    grace_seconds: float
    starts_in_seconds: float
    victims: list[Victim]
    other_victims: int


class DryRun(Row, frozen=True, kw_only=True):
    """What the queue would decide now; of an array, on its first task.

    The job Starts now; Waits in the queue; Never can start here; NotBefore its begin time; is Blocked by its
    dependencies; or the request is Invalid. `reason` and `message` say why it does not start now, as its status would;
    `details` are the clauses of the message as codes and parameters. Of a job that starts, the message says that it
    runs on the CPU, or is empty. `nodes` is null unless the job starts,
    and where kube-scheduler alone chooses, as for a job without GPUs. `position` counts from 1. Of a job that waits,
    `start` is null if no known end makes room for it. `cpuInSeconds` is when a job that waits for busy GPUs would run
    on the CPU; null if it would wait for them. `limitsCounted` is false where GPUQuotas could not be read. `text` is
    the answer in words.
    """

    outcome: Literal["Starts", "Waits", "Never", "NotBefore", "Blocked", "Invalid"]
    reason: str
    message: str
    details: list[MessageDetail]
    nodes: list[NodeShare] | None
    position: int | None
    start: DryRunStart | None
    preemption: DryRunPreemption | None
    cpu_in_seconds: float | None
    array: bool
    limits_counted: bool
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def starts_in_seconds(self) -> float | None:
        """In how many seconds the job starts at the soonest, 0 for now; None where nothing tells."""
        if self.outcome == "Starts":
            return 0.0
        starts = [] if self.start is None else [self.start.seconds]
        starts += [] if self.preemption is None else [self.preemption.starts_in_seconds]
        return min(starts, default=None)


class ExplainedNode(Row, frozen=True, kw_only=True):
    """A node's answer. `reason` is empty where it fits; `text` is the reason in words that all nodes of a cause share.

    `details` are the clauses of `message` as codes and parameters. Where it fits, `score` is from 0 to 1 and consists
    of `terms`, and `devices` are what the pod would get. `note` says why the node's measurements do not count; empty if
    they do.
    """

    node: str
    fits: bool
    reason: str = ""
    message: str = ""
    text: str = ""
    score: float | None = None
    terms: dict[str, float] = {}
    devices: list[DeviceShare] = []
    note: str = ""
    details: list[MessageDetail] = []


class ExplainedChange(Row, frozen=True, kw_only=True):
    """A change that would make the job fit.

    `node` is where the change happens, `request` what to request instead, if that is the change. `details` are the
    clauses of `text` as codes and parameters.
    """

    kind: str
    text: str
    node: str = ""
    request: str = ""
    details: list[MessageDetail] = []


class ExplainedCause(Row, frozen=True, kw_only=True):
    """How many nodes refuse for one cause; `details` are the clauses of `text`."""

    reason: str
    text: str
    nodes: int
    details: list[MessageDetail] = []


class ExplainedDevice(DeviceShare, frozen=True, kw_only=True):
    """A device, or a share of one, that a pod holds."""

    pod: str


class NeighbourDevice(Row, frozen=True, kw_only=True):
    """A device of a node that the subject is on; `status` says in words who holds it, or why it takes no work.

    `usedMiB` is null for a device that cannot report. `stale` is the age of a figure that is too old to count.
    """

    node: str
    index: int
    uuid: str
    model: str
    status: str
    used_mib: int | None
    memory_mib: int
    stale: str


class Asked(Row, frozen=True, kw_only=True):
    """What a subject requests for each of its workers: GPUs as compact text, null for none, and CPU and memory."""

    gpu: str | None
    workers: int
    mode: Mode
    policy: Policy
    cpu_milli: int
    memory_mib: int


class Explanation(Row, frozen=True, kw_only=True):
    """Why a job or a pod waits, or where it is, or where a request would go.

    `name` of a request is its text. `details` are the clauses of the summary as codes and parameters. `fits` says
    whether every worker has a place now; null if that is not the question. `asked` is null for a subject without
    GPUs, and for an unreadable request. `noteDetails` are the clauses of each note. `basis` says how nodes and devices
    are compared, if any fit, and `basisDetails` are its clauses. `around` are all
    devices of the subject's nodes, if you may list the GPUJobs of all namespaces. What belongs to tenants that you
    may not see is called `another tenant`.
    """

    kind: Literal["Pod", "GPUJob", "Request"]
    name: str
    namespace: str
    number: int | None
    state: State
    summary: str
    details: list[MessageDetail]
    fits: bool | None
    reason: str
    asked: Asked | None
    notes: list[str]
    note_details: list[list[MessageDetail]]
    basis: str
    basis_details: list[MessageDetail]
    changes: list[ExplainedChange]
    causes: list[ExplainedCause]
    nodes: list[ExplainedNode]
    held: list[ExplainedDevice]
    around: list[NeighbourDevice]

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


FindingKind = Literal[
    "ShareOverpromised", "MemoryOverpromised", "TooManyTurns", "ModeConflict", "NotSole",
    "UnknownNode", "UnknownDevice", "WrongNode", "DeviceTwice",
    "NotAsked", "NotBound", "NotAllocated", "BrokenAllocation", "Mismatch", "AllocationWithoutPod",
    "HoldsMoreThanAsked", "AboveQuota", "CapacityWithheld", "WaitsThoughItFits", "PreemptionUnused",
    "CountOverpromised", "GivenTwice", "BothKinds", "Unreadable",
]  # fmt: skip


class Finding(Row, frozen=True, kw_only=True, order=True):
    """A promise that is broken, or capacity that is lost.

    `subject` is `node/index` for a device, `namespace/name` for a pod or a job.
    """

    kind: FindingKind
    subject: str
    message: str


class Audit(Row, frozen=True, kw_only=True):
    """The proof that no device is promised beyond its capacity: it holds if there is no finding.

    `items` are the findings by kind and subject, if you may list the GPUJobs of all namespaces; `findings` counts them.
    `notes` are facts worth knowing that break no promise.
    """

    pods: int
    devices: int
    findings: int
    items: list[Finding]
    notes: list[str]
