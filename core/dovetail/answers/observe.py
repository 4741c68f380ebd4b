"""A look at a cluster of any scheduler: waiting GPU pods and why, who holds what, what is lost, how a node moves.

Types only.
"""

from typing import Literal

from dovetail.answers import Row
from dovetail.answers.questions import ExplainedCause

# Who hands out the devices of a node.
DeviceSystem = Literal["DevicePlugin", "HAMi", "KAI", "Volcano", "Dovetail"]
# Why a pod waits. Of `Room` and `NotSeen`, nodes have room: its own scheduler says what it waits for, or no scheduler
# has reported on it.
WaitReason = Literal[
    "Unreadable", "Gated", "NoNodes", "NotAllowed", "NodesClosed", "TooLarge", "Devices", "Scattered", "Host",
    "Room", "NotSeen", "Unknown",
]  # fmt: skip


class WaitCause(ExplainedCause, frozen=True, kw_only=True):
    """How many nodes refuse a pod for one cause; `first` names some of them."""

    first: list[str]


class WaitingPod(Row, frozen=True, kw_only=True):
    """A pod that asks for GPUs and has no node.

    - `owner`: the kind and name of its controller, such as `Job/train`; empty for none
    - `scheduler`: the scheduler that it names
    - `request`: what it asks for, in the words of its manifest
    - `waitsSeconds`: since it was created
    - `message`: why it waits, with numbers
    - `causes`: the refusals of the nodes that have such devices, the most frequent first
    - `changes`: what alone would give it a node
    - `fitsOn`: the first nodes that have room for it
    - `schedulerSays`: what its scheduler says; empty if no scheduler has reported on it
    """

    namespace: str
    name: str
    owner: str
    scheduler: str
    request: str
    created: str
    waits_seconds: float
    reason: WaitReason
    message: str
    causes: list[WaitCause]
    changes: list[str]
    fits_on: list[str]
    scheduler_says: str


class WaitingWorkload(Row, frozen=True, kw_only=True):
    """A Workload of Kueue that asks for GPUs and is not admitted: its pods do not exist yet, or have a gate.

    `request` sums up its pods; `message` has Kueue's own words.
    """

    namespace: str
    name: str
    owner: str
    queue: str
    request: str
    created: str
    waits_seconds: float
    message: str


class RefusedCreation(Row, frozen=True, kw_only=True):
    """Pods that do not exist because a ResourceQuota of GPUs refuses them, as the API server's event says."""

    namespace: str
    owner: str
    message: str
    last: str
    count: int


class NamespaceQuota(Row, frozen=True, kw_only=True):
    """A limit of GPUs in a ResourceQuota. `full` says that it refuses further pods with GPUs."""

    namespace: str
    name: str
    resource: str
    used: int
    hard: int
    full: bool


class DeviceHolder(Row, frozen=True, kw_only=True):
    """A pod on a node and how many devices it is promised there, with parts as fractions."""

    namespace: str
    name: str
    owner: str
    scheduler: str
    devices: float


class NodeMap(Row, frozen=True, kw_only=True):
    """A node's devices of one resource, and who is promised them.

    `promised` and `free` are null where the pods of the node may not be listed. `closed` says why the node takes no
    pods; empty if it does. `stranded` says why no pod like this cluster's can use what is free; empty if one can.
    `utilization`, from 0 to 1, is the mean of its devices as an agent measures it; null without one.
    """

    node: str
    system: DeviceSystem
    resource: str
    model: str
    devices: int
    promised: float | None
    free: float | None
    closed: str
    stranded: str
    utilization: float | None
    holders: list[DeviceHolder]


class ResourceSum(Row, frozen=True, kw_only=True):
    """A resource over all nodes. `asked` is what waiting pods ask of it, `stranded` what is free and of no use now."""

    resource: str
    nodes: int
    devices: int
    promised: float | None
    free: float | None
    stranded: float | None
    asked: float


class Fragments(Row, frozen=True, kw_only=True):
    """How many pods of each size the free devices of a resource have room for, each on one node.

    `whole` is the number of free whole devices on nodes that take pods; `pods` maps devices of one pod to pods.
    """

    resource: str
    whole: int
    pods: dict[int, int]


class IdleHolder(Row, frozen=True, kw_only=True):
    """A device that pods hold and that an agent measures as idle: `node/index`, and its utilization from 0 to 1."""

    device: str
    model: str
    utilization: float
    pods: list[str]


class Unread(Row, frozen=True, kw_only=True):
    """A right that the reader lacks, and what the answer misses without it."""

    verb: str
    resource: str
    group: str
    missing: str


class Observation(Row, frozen=True, kw_only=True):
    """A look at a cluster: nothing in it depends on Dovetail, and nothing is written for it.

    `measured` says whether any agent measures devices; without it, `idle` is empty for want of measurements.
    """

    as_of: str
    pods: list[WaitingPod]
    workloads: list[WaitingWorkload]
    refused: list[RefusedCreation]
    quotas: list[NamespaceQuota]
    resources: list[ResourceSum]
    nodes: list[NodeMap]
    fragments: list[Fragments]
    measured: bool
    idle: list[IdleHolder]
    unread: list[Unread]
    notes: list[str]


class ForecastPod(Row, frozen=True, kw_only=True):
    """A pod's waits in seconds: its own, up to now if it still waits, and those of the two replays.

    `started` says whether it has a node. A replayed wait is null if the pod does not start in that replay.
    """

    namespace: str
    name: str
    owner: str
    devices: int
    resource: str
    created: str
    started: bool
    waited: float
    replayed: float | None
    under_dovetail: float | None


class ReplaySums(Row, frozen=True, kw_only=True):
    """The waits of a run in seconds, over the pods of the report, and its idle devices.

    `idleDeviceHours` sums up devices that are free while a pod waits.
    """

    started: int
    mean_wait: float
    idle_device_hours: float


class Forecast(Row, frozen=True, kw_only=True):
    """What would have started sooner under Dovetail's queue and engine, by a replay of the cluster's pods.

    First the pods are replayed in the order and on the nodes of their own scheduler: `reproduced` is the part of the
    pods whose start this meets within `withinSeconds`. The forecast is worth as much as that; `trusted` says whether
    it is enough. `sooner` and `later` count pods that start by more than `withinSeconds` sooner or later under Dovetail
    than in that replay.
    """

    as_of: str
    since: str
    within_seconds: float
    reproduced: float
    trusted: bool
    own_order: ReplaySums
    dovetail: ReplaySums
    observed_mean_wait: float
    sooner: int
    later: int
    items: list[ForecastPod]
    notes: list[str]


# Whether a step is done; `waits` is one that happens by itself once those before it are done.
StepState = Literal["done", "todo", "waits"]


class AdoptionStep(Row, frozen=True, kw_only=True):
    """One step: a command, and what it changes. `command` is empty where there is nothing to type."""

    title: str
    state: StepState
    command: str
    effect: str


class Adoption(Row, frozen=True, kw_only=True):
    """What changes when a node moves to Dovetail.

    - `system`: who hands out its devices now
    - `adopted`: whether all steps are done
    - `holders`: pods that hold devices of the other system there, and have to leave
    - `leftElsewhere`: devices of the resource that the other system keeps on other nodes
    - `askedElsewhere`: devices of the resource that pods ask for that have no node
    - `steps`: in their order
    - `back`: the commands that give the node back, in their order
    """

    node: str
    system: DeviceSystem
    resource: str
    model: str
    devices: int
    adopted: bool
    holders: list[DeviceHolder]
    left_elsewhere: int
    asked_elsewhere: float
    steps: list[AdoptionStep]
    back: list[str]
