"""How a GPUJob's workers run: together, again after a failure, many times over, or as a lease alone. Data only."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from dovetail.api.gpujob.enums import MAX_SECONDS
from dovetail.api.meta import Described, Timestamp
from dovetail.api.text_formats import TIME

Framework = Literal["PyTorch", "TensorFlow", "MPI", "None"]
FailureAction = Literal["FailJob", "Ignore", "Count"]

DEFAULT_PORT: Final = 29500
# Held while nothing of its own is to run: it sleeps, and needs next to nothing.
PAUSE_IMAGE: Final = "registry.k8s.io/pause:3.10"
MAX_TASKS: Final = 1000
_RANGE: Final = r"[0-9]{1,5}(-[0-9]{1,5}(:[1-9][0-9]{0,4})?)?"
INDEXES_PATTERN: Final = rf"^{_RANGE}(,{_RANGE})*(%[1-9][0-9]{{0,3}})?$"

Parallelism = Annotated[
    Annotated[int, Meta(ge=1, le=MAX_TASKS)] | None,
    Meta(description="At most this many tasks at a time. Unset: as many as fit."),
]


class Distributed(Described, frozen=True, kw_only=True):
    """How the workers of a gang find each other."""

    framework: Annotated[
        Framework,
        Meta(
            description="PyTorch: MASTER_ADDR and related variables, and those of torchrun. TensorFlow: TF_CONFIG too. "
            "MPI: a hostfile too. None: no variables and no Service."
        ),
    ] = "PyTorch"
    port: Annotated[int, Meta(description="Port on which the workers meet, MASTER_PORT.", ge=1, le=65535)] = (
        DEFAULT_PORT
    )


class RetryPolicy(Described, frozen=True, kw_only=True):
    """Which ends of a run are retried, up to backoffLimit times."""

    exit_codes: Annotated[
        list[Annotated[int, Meta(ge=1, le=255)]],
        Meta(
            description="Exit codes that are retried; any other fails the job at once. Empty: all are retried.",
            max_length=64,
        ),
    ] = []
    on_timeout: Annotated[bool, Meta(description="Whether a run that exceeded activeDeadlineSeconds is retried.")] = (
        False
    )


class ExitCodes(Described, frozen=True, kw_only=True):
    """The exit codes of a rule."""

    operator: Annotated[Literal["In", "NotIn"], Meta(description="In: one of the values. NotIn: none of them.")]
    values: Annotated[
        list[Annotated[int, Meta(ge=0, le=255)]], Meta(description="Exit codes.", min_length=1, max_length=255)
    ]
    container_name: Annotated[
        Annotated[str, Meta(max_length=63)] | None, Meta(description="Only of this container; unset: of any.")
    ] = None


class PodCondition(Described, frozen=True, kw_only=True):
    """The pod condition of a rule."""

    type: Annotated[str, Meta(description="Type of the condition, such as ConfigIssue.", min_length=1, max_length=316)]
    status: Annotated[Literal["True", "False", "Unknown"], Meta(description="Status of the condition.")] = "True"


class FailureRule(Described, frozen=True, kw_only=True):
    """The action for a failure, selected by exit codes or by a condition of the pod."""

    action: Annotated[
        FailureAction,
        Meta(description="FailJob: no retry. Ignore: a retry that does not count. Count: a retry that counts."),
    ]
    on_exit_codes: Annotated[ExitCodes | None, Meta(description="By a container's exit code.")] = None
    on_pod_conditions: Annotated[
        list[PodCondition], Meta(description="By any of these conditions of the pod.", max_length=20)
    ] = []


class PodFailurePolicy(Described, frozen=True, kw_only=True):
    """Rules that classify failures, as in a batch Job; the first that matches decides."""

    rules: Annotated[list[FailureRule], Meta(description="The rules in their order.", min_length=1, max_length=16)]


class ArraySpec(Described, frozen=True, kw_only=True):
    """The same job for each of many indexes, each a separate GPUJob."""

    indexes: Annotated[
        str,
        Meta(
            description="Indexes of the tasks such as 0-15, 0-15:2 (every second), 1,3,7-9, or 0-15%4 (four at a "
            f"time); at most {MAX_TASKS} of them.",
            pattern=INDEXES_PATTERN,
            max_length=128,
        ),
    ]
    parallelism: Parallelism = None


class SweepParameter(Described, frozen=True, kw_only=True):
    """A parameter and its values."""

    name: Annotated[
        str,
        Meta(
            description="Name of the parameter: an environment variable of the tasks, and {name} in their commands.",
            pattern="^[A-Za-z_][A-Za-z0-9_]*$",
            max_length=63,
        ),
    ]
    values: Annotated[
        list[Annotated[str, Meta(max_length=256)]],
        Meta(description="Its values, as text.", min_length=1, max_length=MAX_TASKS),
    ]


class SweepSpec(Described, frozen=True, kw_only=True):
    """The same job for each combination of parameters, each a separate GPUJob."""

    parameters: Annotated[
        list[SweepParameter],
        Meta(
            description="The parameters; their combinations are the tasks, the last parameter changing first.",
            min_length=1,
            max_length=16,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ]
    combine: Annotated[
        Literal["Product", "Zip"],
        Meta(description="Product: every combination. Zip: the first values together, then the second ones."),
    ] = "Product"
    parallelism: Parallelism = None
    name_template: Annotated[
        str,
        Meta(
            description="The part of a task's name after the job's, such as lr{lr}-{index}. Empty: their index.",
            max_length=128,
        ),
    ] = ""


class ReservationSpec(Described, frozen=True, kw_only=True):
    """Devices that are held for a period without a template, by an idle container."""

    duration_seconds: Annotated[
        int,
        Meta(
            description="The devices are held this long in seconds, from the start or from the last renewal.",
            ge=1,
            le=MAX_SECONDS,
        ),
    ]
    renew_time: Annotated[
        Annotated[Timestamp, Meta(pattern=TIME)] | None,
        Meta(description="When the lease was last renewed (RFC 3339); set it to now to extend the lease."),
    ] = None
    image: Annotated[
        str, Meta(description="Image of the container that holds the devices; with a shell you can work in it.",
                  max_length=512)
    ] = PAUSE_IMAGE  # fmt: skip
    command: Annotated[
        list[str], Meta(description="Command of that container; empty: the image's own.", max_length=64)
    ] = []
