"""What v2 takes and answers. Data only; memory in GiB, utilization in percent, null is a value that is not reported."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from dovetail.api.gpujob import MAX_PARAMETERS
from dovetail_gateway.routing.problems import ErrorShape
from dovetail_gateway.routing.table import Nothing
from dovetail_gateway.v3.types.common import Cursor, Limit

Kind = Literal["training", "inference"]
State = Literal["pending", "running", "completed", "failed", "cancelled"]
KINDS: Final[tuple[Kind, ...]] = ("training", "inference")
MOST_TENANTS: Final = 48


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The common shape of answers: every field is there, null where it is not known."""


class TaskRefused(Row, frozen=True, kw_only=True):
    """An error of v2."""

    detail: str
    reason: str


DETAIL: Final = ErrorShape(
    as_type=TaskRefused,
    content_type="application/json",
    write=lambda error: TaskRefused(detail=error.message, reason=error.reason),
)


ParameterCount = Annotated[
    Annotated[int, Meta(ge=1, le=MAX_PARAMETERS)] | None,
    Meta(
        description="The model's number of parameters. With batch_size (1 if absent) it says how much memory the task "
        "is promised, instead of the template's."
    ),
]


class TrainingFields(msgspec.Struct, frozen=True, kw_only=True):
    """The known fields of a training task."""

    model: str
    num_classes: Annotated[int, Meta(ge=1)]
    train_path: str
    val_path: str
    save_path: str
    device: str = "cuda"
    parameter_count: ParameterCount = None


class InferenceFields(msgspec.Struct, frozen=True, kw_only=True):
    """The known fields of an inference task."""

    cfg_path: str
    weight_path: str
    source_path: str
    device: str = "cuda"
    parameter_count: ParameterCount = None


def _body(fields: type[msgspec.Struct]) -> Any:
    """An object with these fields and any others, for decoding and for the document."""
    _, components = msgspec.json.schema_components([fields])
    schema = components[fields.__name__]
    described = {"properties": schema["properties"], "required": schema["required"]}
    further = "Further fields pass through as environment and arguments."
    return Annotated[dict[str, Any], Meta(description=further, max_length=64, extra_json_schema=described)]


TRAINING_BODY: Final = _body(TrainingFields)
INFERENCE_BODY: Final = _body(InferenceFields)


class Started(Row, frozen=True, kw_only=True):
    """A task that was created. `device` is what it has, or asks for while it waits; `message` says what to know."""

    task_id: str
    status: State
    device: str
    message: str


class Task(Row, frozen=True, kw_only=True):
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


class TaskList(Row, frozen=True, kw_only=True):
    """A page of tasks by id; `next` is the cursor of the next page."""

    tasks: list[Task]
    total: int
    next: str | None


class TaskFilter(Nothing, frozen=True, kw_only=True):
    """Which tasks, and which page of them."""

    status: Annotated[State | None, Meta(description="Only tasks in this state.")] = None
    type: Annotated[Kind | None, Meta(description="Only tasks of this kind.")] = None
    limit: Limit = 100
    cursor: Cursor = ""


class TaskPath(Nothing, frozen=True, kw_only=True):
    """A task."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)]


class Counts(Row, frozen=True, kw_only=True):
    """How many tasks of each kind."""

    training: int
    inference: int


class ActiveTask(Row, frozen=True, kw_only=True):
    """A task that you may see."""

    id: str
    type: Kind


class Resources(Row, frozen=True, kw_only=True):
    """The use of each device, its tasks that you may see, and its limits."""

    device_usage: dict[str, Counts]
    active_tasks: dict[str, list[ActiveTask]]
    limits: dict[str, Counts]


class DeviceRow(Row, frozen=True, kw_only=True):
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


class GPUs(Row, frozen=True, kw_only=True):
    """All devices of the cluster. `available` says whether one of them takes work."""

    available: bool
    count: int
    cuda_version: str | None
    pytorch_version: str | None
    devices: list[DeviceRow]


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks of each kind may share a device; what is absent stays as it is."""

    training: int | None = None
    inference: int | None = None


class NewLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits by device, such as `cuda:0`."""

    max_concurrent: Annotated[dict[str, TaskLimits], Meta(min_length=1, max_length=1024)]


class Configured(Row, frozen=True, kw_only=True):
    """The limits of the devices that were named."""

    success: bool
    limits: dict[str, Counts]
