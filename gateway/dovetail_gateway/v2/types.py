"""What v2 takes, and the shape of its errors. Data only."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from dovetail.answers.v2 import Kind, State
from dovetail.api.gpujob import MAX_PARAMETERS
from dovetail_gateway.routing.problems import ErrorShape
from dovetail_gateway.routing.table import Nothing
from dovetail_gateway.v3.types.common import Cursor, Limit

KINDS: Final[tuple[Kind, ...]] = ("training", "inference")
MOST_TENANTS: Final = 48


class TaskRefused(msgspec.Struct, frozen=True, kw_only=True):
    """An error of v2."""

    detail: str
    reason: str


DETAIL: Final = ErrorShape(
    as_type=TaskRefused,
    content_type="application/json",
    write=lambda error: TaskRefused(detail=error.sentence.message, reason=error.reason),
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


class TaskFilter(Nothing, frozen=True, kw_only=True):
    """Which tasks, and which page of them."""

    status: Annotated[State | None, Meta(description="Only tasks in this state.")] = None
    type: Annotated[Kind | None, Meta(description="Only tasks of this kind.")] = None
    limit: Limit = 100
    cursor: Cursor = ""


class TaskPath(Nothing, frozen=True, kw_only=True):
    """A task."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)]


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks of each kind may share a device; what is absent stays as it is."""

    training: int | None = None
    inference: int | None = None


class NewLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits by device, such as `cuda:0`."""

    max_concurrent: Annotated[dict[str, TaskLimits], Meta(min_length=1, max_length=1024)]
