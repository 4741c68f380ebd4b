"""The gateway's answers as values. Data only; a field that a later gateway adds is ignored.

Each value shows its fields as attributes and, as in the JSON of v1 and v2, by key: `node.node_name` and
`node["node_name"]`. Units are in the names; null is None.
"""

from typing import Any

import msgspec

from dovetail.api.meta import wire_name
from dovetail.sdk import notebook


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The common shape of v1's and v2's answers."""

    def __getitem__(self, field: str) -> Any:
        """The field by its name. Raises `KeyError`."""
        if field not in self.__struct_fields__:
            raise KeyError(field)
        return getattr(self, field)

    def _repr_html_(self) -> str:
        fields = msgspec.structs.asdict(self)
        return notebook.view(type(self).__name__, rows=((name, str(value)) for name, value in fields.items()))


class CamelRow(Row, frozen=True, kw_only=True, rename=wire_name):
    """The common shape of v3's answers, whose names on the wire are camelCase."""


# v1


class NodeRow(Row, frozen=True, kw_only=True):
    """A node with GPUs; `memory_per_gpu` in GB as sold, `utilization` a ratio."""

    node_name: str
    gpu_type: str
    available_gpus: int
    memory_per_gpu: float
    utilization: float


class Utilization(Row, frozen=True, kw_only=True):
    """Means over all devices of the cluster, as ratios."""

    gpu_utilization: float
    gpu_memory_usage: float


class Status(Row, frozen=True, kw_only=True):
    """The cluster in numbers."""

    utilization: Utilization
    available_nodes: list[NodeRow]
    total_nodes: int
    timestamp: str


class AllocatedDevice(Row, frozen=True, kw_only=True):
    """A device of an allocation."""

    node: str
    index: int
    uuid: str
    gpu_type: str
    memory_mib: int


class GPUConfig(Row, frozen=True, kw_only=True):
    """What was allocated by v1."""

    gpu_count: int
    gpu_type: str
    memory_gb: float
    nodes: list[str]
    devices: list[AllocatedDevice]
    visible_devices: str
    distributed_training: bool
    mixed_precision: bool
    gpu_memory_fraction: float | None
    namespace: str
    expires_at: str | None


class Allocated(Row, frozen=True, kw_only=True):
    """An allocation of v1."""

    node_name: str
    gpu_config: GPUConfig
    allocation_id: str


class Released(Row, frozen=True, kw_only=True):
    """`released` is false if the allocation was gone already."""

    allocation_id: str
    released: bool


class Validity(Row, frozen=True, kw_only=True):
    """Whether a request would get its GPUs now; it is true where it would."""

    valid: bool
    reason: str
    message: str
    suggestion: str

    def __bool__(self) -> bool:
        return self.valid


class Distribution(Row, frozen=True, kw_only=True):
    """How the processes of a distributed training find each other."""

    enabled: bool
    strategy: str
    world_size: int
    nodes: list[str]
    processes_per_node: int
    master_address: str
    master_port: int
    backend: str


class Setup(Row, frozen=True, kw_only=True):
    """The settings of a framework; `precision` is TensorFlow's policy, or the dtype of PyTorch's autocast."""

    framework: str
    visible_devices: str
    memory_limit_mib: int | None
    memory_fraction: float | None
    mixed_precision: bool
    precision: str
    distribution: Distribution
    environment: dict[str, str]


# v2


class Started(Row, frozen=True, kw_only=True):
    """A task that was created; `message` says what to know, such as why it waits."""

    task_id: str
    status: str
    device: str
    message: str


class Task(Row, frozen=True, kw_only=True):
    """A task: `pending`, `running`, `completed`, `failed` or `cancelled`."""

    task_id: str
    type: str
    status: str
    device: str
    node: str | None
    message: str
    created_at: str
    started_at: str | None
    finished_at: str | None


class TaskList(Row, frozen=True, kw_only=True):
    """A page of tasks."""

    tasks: list[Task]
    total: int
    next: str | None


class Counts(Row, frozen=True, kw_only=True):
    """How many tasks of each kind."""

    training: int
    inference: int


class ActiveTask(Row, frozen=True, kw_only=True):
    """A task on a device."""

    id: str
    type: str


class Resources(Row, frozen=True, kw_only=True):
    """Use, tasks and limits by device."""

    device_usage: dict[str, Counts]
    active_tasks: dict[str, list[ActiveTask]]
    limits: dict[str, Counts]


class GPU(Row, frozen=True, kw_only=True):
    """A device with its measurements; memory in GiB, utilization in percent, None is not reported.

    `message` says why it takes no new work; empty when it does.
    """

    id: int
    device_name: str
    node: str
    index: int
    name: str
    compute_capability: str | None
    total_memory_gb: float
    allocated_memory_gb: float
    cached_memory_gb: float | None
    free_memory_gb: float | None
    utilization: float | None
    temperature: int | None
    power: int | None
    message: str
    current_tasks: Counts


class GPUs(Row, frozen=True, kw_only=True):
    """All devices of the cluster."""

    available: bool
    count: int
    cuda_version: str | None
    pytorch_version: str | None
    devices: list[GPU]


class Configured(Row, frozen=True, kw_only=True):
    """The limits of the devices that were named."""

    success: bool
    limits: dict[str, Counts]


# v3


class JobDevice(CamelRow, frozen=True, kw_only=True):
    """A device that a worker holds or held."""

    worker: int
    node: str
    index: int
    uuid: str
    share_milli: int
    memory_mib: int


class JobRow(CamelRow, frozen=True, kw_only=True):
    """A job in one row; times in RFC 3339."""

    namespace: str
    name: str
    uid: str
    number: int | None
    user: str
    project: str
    phase: str
    reason: str
    message: str
    request: str
    gpus: int
    workers: int
    priority: int
    reservation: bool
    position: int | None
    estimated_start: str | None
    nodes: list[str]
    devices: list[JobDevice]
    submitted_at: str
    started_at: str | None
    completed_at: str | None
    lease_ends_at: str | None

    def _repr_html_(self) -> str:
        number = "" if self.number is None else f" {self.number}"
        shown = {
            "phase": self.phase,
            "GPUs": f"{self.gpus} ({self.request})" if self.request else str(self.gpus),
            "nodes": ", ".join(self.nodes),
            "message": self.message,
            "position": "" if self.position is None else str(self.position),
            "estimated start": self.estimated_start,
            "submitted": self.submitted_at,
            "started": self.started_at,
            "completed": self.completed_at,
        }
        rows = ((name, text) for name, text in shown.items() if text)
        return notebook.view(f"Job{number}: {self.namespace}/{self.name}", rows=rows)


class JobList(CamelRow, frozen=True, kw_only=True):
    """A page of jobs; `next` is the cursor of the next page."""

    items: list[JobRow]
    next: str | None
    total: int


class JobDetails(CamelRow, frozen=True, kw_only=True):
    """A job: its row, and the spec and status of the API object."""

    row: JobRow
    spec: dict[str, Any]
    status: dict[str, Any]


class Removed(CamelRow, frozen=True, kw_only=True):
    """A job that is deleted; `found` is false if it was gone already."""

    namespace: str
    name: str
    found: bool


class EventRow(CamelRow, frozen=True, kw_only=True):
    """Something that happened to a job."""

    type: str
    reason: str
    message: str
    count: int
    at: str | None


class EventList(CamelRow, frozen=True, kw_only=True):
    """The events of a job, the oldest first."""

    items: list[EventRow]


class NodeShare(CamelRow, frozen=True, kw_only=True):
    """A number of GPUs on a node."""

    node: str
    gpus: int


class DryRun(CamelRow, frozen=True, kw_only=True):
    """What the queue would decide now: `Starts`, `Waits`, `Never`, `NotBefore`, `Blocked` or `Invalid`."""

    outcome: str
    reason: str
    message: str
    nodes: list[NodeShare]
    position: int | None
    starts_in_seconds: float | None
    earliest_in_seconds: float | None
    latest_in_seconds: float | None
    basis: str
    victims: int


class ExplainedNode(CamelRow, frozen=True, kw_only=True):
    """A node's answer to a job; `reason` is empty where it fits."""

    node: str
    reason: str
    message: str
    score: float | None


class ExplainedChange(CamelRow, frozen=True, kw_only=True):
    """A change that would make the job fit."""

    kind: str
    text: str
    node: str
    request: str


class ExplainedCause(CamelRow, frozen=True, kw_only=True):
    """How many nodes refuse for one cause."""

    reason: str
    text: str
    nodes: int


class ExplainedDevice(CamelRow, frozen=True, kw_only=True):
    """A device that the job holds."""

    pod: str
    node: str
    index: int
    uuid: str
    share_milli: int
    memory_mib: int


class Explanation(CamelRow, frozen=True, kw_only=True):
    """Why a job waits, or where it is."""

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
        return notebook.view(
            self.summary,
            notes=self.notes,
            items=[change.text for change in self.changes],
            rows=((node.node, node.message or "fits") for node in self.nodes),
        )


class PlannedJob(CamelRow, frozen=True, kw_only=True):
    """A job that a change would affect."""

    namespace: str
    name: str
    number: int | None


class ShiftedJob(CamelRow, frozen=True, kw_only=True):
    """A waiting job that would start at another time, in seconds from now; None where no start is known."""

    job: PlannedJob
    before_seconds: float | None
    after_seconds: float | None


class CancelledJob(CamelRow, frozen=True, kw_only=True):
    """A job that would be cancelled in turn, because of its dependency on `after`."""

    job: PlannedJob
    after: str


class Effects(CamelRow, frozen=True, kw_only=True):
    """What a change to a job would do.

    `own` is the queue's decision on the changed job; None for one that runs, ends or is held. `sooner` and `later`
    count all jobs that would start at another time; `others_sooner`, `others_later` and `others_preempted` those of
    other tenants, which are not named. `tasks` counts the tasks of an array that change with it. The `released`
    would no longer wait for their dependencies; the `held_up` would wait for as long as the job is held. Starts are
    compared for the next `simulated_seconds`; None for as long as ends of jobs are known.
    """

    own: DryRun | None
    sooner: int
    later: int
    others_sooner: int
    others_later: int
    shifted: list[ShiftedJob]
    tasks: int
    cancelled: list[CancelledJob]
    released: list[PlannedJob]
    held_up: list[PlannedJob]
    preempted: list[PlannedJob]
    others_preempted: int
    simulated_seconds: float | None


class Me(CamelRow, frozen=True, kw_only=True):
    """Who the API server says you are."""

    username: str
    groups: list[str]
    everywhere: bool
    namespaces: list[str]
    expires_at: str | None
