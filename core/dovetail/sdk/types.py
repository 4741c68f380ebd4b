"""The answers of REST v1 and v2 as values. Data only; a field that a later gateway adds is ignored.

Those of v3 are in `dovetail.answers`.

Each value shows its fields as attributes and, as in the JSON of v1 and v2, by key: `node.node_name` and
`node["node_name"]`. Units are in the names; null is None.
"""

from dovetail.answers import Record

# v1


class NodeRow(Record, frozen=True, kw_only=True):
    """A node with GPUs; `memory_per_gpu` in GB as sold, `utilization` a ratio."""

    node_name: str
    gpu_type: str
    available_gpus: int
    memory_per_gpu: float
    utilization: float


class Utilization(Record, frozen=True, kw_only=True):
    """Means over all devices of the cluster, as ratios."""

    gpu_utilization: float
    gpu_memory_usage: float


class Status(Record, frozen=True, kw_only=True):
    """The cluster in numbers."""

    utilization: Utilization
    available_nodes: list[NodeRow]
    total_nodes: int
    timestamp: str


class AllocatedDevice(Record, frozen=True, kw_only=True):
    """A device of an allocation."""

    node: str
    index: int
    uuid: str
    gpu_type: str
    memory_mib: int


class GPUConfig(Record, frozen=True, kw_only=True):
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


class Allocated(Record, frozen=True, kw_only=True):
    """An allocation of v1."""

    node_name: str
    gpu_config: GPUConfig
    allocation_id: str


class Released(Record, frozen=True, kw_only=True):
    """`released` is false if the allocation was gone already."""

    allocation_id: str
    released: bool


class Validity(Record, frozen=True, kw_only=True):
    """Whether a request would get its GPUs now; it is true where it would."""

    valid: bool
    reason: str
    message: str
    suggestion: str

    def __bool__(self) -> bool:
        return self.valid


class Distribution(Record, frozen=True, kw_only=True):
    """How the processes of a distributed training find each other."""

    enabled: bool
    strategy: str
    world_size: int
    nodes: list[str]
    processes_per_node: int
    master_address: str
    master_port: int
    backend: str


class Setup(Record, frozen=True, kw_only=True):
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


class Started(Record, frozen=True, kw_only=True):
    """A task that was created; `message` says what to know, such as why it waits."""

    task_id: str
    status: str
    device: str
    message: str


class Task(Record, frozen=True, kw_only=True):
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


class TaskList(Record, frozen=True, kw_only=True):
    """A page of tasks."""

    tasks: list[Task]
    total: int
    next: str | None


class Counts(Record, frozen=True, kw_only=True):
    """How many tasks of each kind."""

    training: int
    inference: int


class ActiveTask(Record, frozen=True, kw_only=True):
    """A task on a device."""

    id: str
    type: str


class Resources(Record, frozen=True, kw_only=True):
    """Use, tasks and limits by device."""

    device_usage: dict[str, Counts]
    active_tasks: dict[str, list[ActiveTask]]
    limits: dict[str, Counts]


class GPU(Record, frozen=True, kw_only=True):
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


class GPUs(Record, frozen=True, kw_only=True):
    """All devices of the cluster."""

    available: bool
    count: int
    cuda_version: str | None
    pytorch_version: str | None
    devices: list[GPU]


class Configured(Record, frozen=True, kw_only=True):
    """The limits of the devices that were named."""

    success: bool
    limits: dict[str, Counts]
