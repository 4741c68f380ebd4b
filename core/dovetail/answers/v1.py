"""The answers of REST v1. Data only; GB are nominal, utilizations are ratios, null is a value that is not known."""

from dovetail.api.meta import Record


class NodeRow(Record, frozen=True, kw_only=True):
    """A node with GPUs.

    `gpu_type` is the model without brand and form, `memory_per_gpu` is in GB as sold, `utilization` is the mean of its
    devices.
    """

    node_name: str
    gpu_type: str
    available_gpus: int
    memory_per_gpu: float
    utilization: float


class Utilization(Record, frozen=True, kw_only=True):
    """Means over all devices of the cluster."""

    gpu_utilization: float
    gpu_memory_usage: float


class Status(Record, frozen=True, kw_only=True):
    """The cluster in numbers; `available_nodes` are those with a free GPU."""

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
    """What was allocated."""

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
    """An allocation that holds its devices."""

    success: bool
    node_name: str
    gpu_config: GPUConfig
    allocation_id: str


class Released(Record, frozen=True, kw_only=True):
    """An allocation that holds nothing any more; `released` is false if it was gone already."""

    success: bool
    allocation_id: str
    released: bool


class Validity(Record, frozen=True, kw_only=True):
    """Whether the request would get its GPUs now; otherwise why not, and what would fit."""

    valid: bool
    reason: str
    message: str
    suggestion: str

    def __bool__(self) -> bool:
        return self.valid


class Distribution(Record, frozen=True, kw_only=True):
    """How the processes find each other."""

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

    success: bool
    framework: str
    visible_devices: str
    memory_limit_mib: int | None
    memory_fraction: float | None
    mixed_precision: bool
    precision: str
    distribution: Distribution
    environment: dict[str, str]


class Checks(Record, frozen=True, kw_only=True):
    """What the health rests on."""

    api_server: bool
    cache_age_seconds: float | None
    nodes_reporting: int


class Health(Record, frozen=True, kw_only=True):
    """Whether the gateway answers about the cluster as it is now."""

    status: str
    checks: Checks


class DeviceAllocation(Record, frozen=True, kw_only=True):
    """Who holds a device; null names belong to another tenant."""

    namespace: str | None
    pod: str | None
    share: float
    memory_mib: int


class DeviceData(Record, frozen=True, kw_only=True):
    """The measurements of a device; null is a value that the driver does not report. `name` is the driver's.

    Where `stale`, they are too old to count. `message` says why the device takes no new work, in one sentence; empty
    when it does.
    """

    index: int
    uuid: str
    gpu_type: str
    name: str
    utilization: float | None
    memory_used_mib: int | None
    memory_total_mib: int
    temperature_celsius: int | None
    power_watts: int | None
    stale: bool
    health: str
    message: str
    allocations: list[DeviceAllocation]


class NodeData(Record, frozen=True, kw_only=True):
    """A node's devices."""

    node_name: str
    devices: list[DeviceData]


class Monitoring(Record, frozen=True, kw_only=True):
    """All nodes with GPUs, and the same means as in the status."""

    utilization: Utilization
    nodes: list[NodeData]
    timestamp: str
