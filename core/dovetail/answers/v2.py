"""The answers of REST v2. Data only; memory in GiB, utilization in percent, null is a value that is not reported."""

from typing import Literal

from dovetail.api.meta import Record

Kind = Literal["training", "inference"]
State = Literal["pending", "running", "completed", "failed", "cancelled"]


class Started(Record, frozen=True, kw_only=True):
    """A task that was created. `device` is what it has, or asks for while it waits; `message` says what to know."""

    task_id: str
    status: State
    device: str
    message: str


class Task(Record, frozen=True, kw_only=True):
    """A task. `device` counts over the cluster, `node` is where it runs; times in RFC 3339."""

    task_id: str
    type: Kind
    status: State
    device: str
    node: str | None
    message: str
    created_at: str
    started_at: str | None
    finished_at: str | None


class TaskList(Record, frozen=True, kw_only=True):
    """A page of tasks by id; `next` is the cursor of the next page."""

    tasks: list[Task]
    total: int
    next: str | None


class Counts(Record, frozen=True, kw_only=True):
    """How many tasks of each kind."""

    training: int
    inference: int


class ActiveTask(Record, frozen=True, kw_only=True):
    """A task that you may see."""

    id: str
    type: Kind


class Resources(Record, frozen=True, kw_only=True):
    """The use of each device, its tasks that you may see, and its limits."""

    device_usage: dict[str, Counts]
    active_tasks: dict[str, list[ActiveTask]]
    limits: dict[str, Counts]


class GPU(Record, frozen=True, kw_only=True):
    """A device. `allocated_memory_gb` is what is promised to its tenants.

    Where `stale`, its measurements are too old to count. `message` says why the device takes no new work, in one
    sentence; empty when it does.
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
    stale: bool
    message: str
    current_tasks: Counts


class GPUs(Record, frozen=True, kw_only=True):
    """All devices of the cluster. `available` says whether one of them takes work."""

    available: bool
    count: int
    cuda_version: str | None
    pytorch_version: str | None
    devices: list[GPU]


class Configured(Record, frozen=True, kw_only=True):
    """The limits of the devices that were named."""

    success: bool
    limits: dict[str, Counts]
