"""The settings that are grouped under one key, and the fields that settings consist of."""

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, field_validator
from pydantic.config import JsonDict

from dovetail.api.gpujob import POLICIES_BY_LETTERS, Policy
from dovetail.engine.model.settings import DEFAULT_WEIGHTS
from dovetail.gpu import memory_strategy
from dovetail.jobs.idle import IdleAction

_MAX_PRIORITY: Final = 255
_DIGITS: Final = 3
# Of a field's extra: whether operator, extender and gateway take a change of it while they run.
LIVE: Final = "live"


def refuse_bool(value: Any) -> Any:
    """Refuse a word that YAML reads as true or false where a number belongs.

    Raises `ValueError`.
    """
    # pydantic reads true as 1, and YAML reads `yes` as true.
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic reports ValueErrors only
    return value


def _by_priority(value: Any) -> Any:
    """A map by priority, whose keys YAML reads as numbers and JSON as texts. Raises `ValueError`."""
    if not isinstance(value, dict):
        return value
    texts = {str(refuse_bool(key)): entry for key, entry in value.items()}
    if not all(len(text) <= _DIGITS and text.isascii() and text.isdigit() for text in texts):
        raise ValueError("no priority")
    if any(int(text) > _MAX_PRIORITY for text in texts):
        raise ValueError("out of bounds")
    return texts


def _plain(limit: float) -> str:
    """A limit in plain decimal notation, with all its digits."""
    return str(int(limit)) if limit == int(limit) else f"{limit:g}"


def number(default: float, *, low: float, high: float, unit: str, description: str, live: bool = False) -> Any:
    """A number within bounds; whole where its default is. A `live` setting takes effect without a restart."""
    kind = "a whole number" if isinstance(default, int) else "a number"
    extra: JsonDict = {"unit": unit, "allowed": f"{kind} from {_plain(low)} to {_plain(high)} ({unit})", LIVE: live}
    return Field(default, ge=low, le=high, description=description, json_schema_extra=extra)


def choice(default: str, *choices: str, description: str, live: bool = False) -> Any:
    """One of a few words. A `live` setting takes effect without a restart."""
    extra: JsonDict = {"allowed": f"{', '.join(choices[:-1])} or {choices[-1]}", "choices": list(choices), LIVE: live}
    return Field(default, description=description, json_schema_extra=extra)


def _number_as_text(value: Any) -> Any:
    """A number as the text that names it: YAML reads 0.7 as a number. Raises `ValueError` for true and false."""
    number_or_text = refuse_bool(value)
    return f"{number_or_text:g}" if isinstance(number_or_text, int | float) else number_or_text


MemoryStrategy = Annotated[
    str,
    BeforeValidator(_number_as_text),
    Field(pattern=memory_strategy.PATTERN),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": memory_strategy.PATTERN},
                {"type": "number", "minimum": 0.05, "maximum": 1},
            ]
        }
    ),
]


def _policy(value: Any) -> Any:
    """A policy as its type has it, however its letters are written; any other value as it is."""
    return POLICIES_BY_LETTERS.get(value.lower(), value) if isinstance(value, str) else value


PolicyWord = Annotated[
    Policy,
    BeforeValidator(_policy),
    WithJsonSchema({"type": "string", "enum": [*get_args(Policy), *(word.upper() for word in get_args(Policy))]}),
]
WholeNumber = Annotated[int, BeforeValidator(refuse_bool)]
Number = Annotated[float, BeforeValidator(refuse_bool)]


_MAX_WEIGHT: Final = 100.0


def _weight(default: float, *, description: str) -> Any:
    return number(default, low=0.0, high=_MAX_WEIGHT, unit="weight", description=description)


class ScoreWeights(BaseModel):
    """How much each term counts when nodes are ranked; the weights need not sum to one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    utilization: Number = _weight(
        DEFAULT_WEIGHTS.utilization, description="How busy or idle the devices are measured to be."
    )
    memory: Number = _weight(DEFAULT_WEIGHTS.memory, description="How much device memory is free.")
    cpu: Number = _weight(DEFAULT_WEIGHTS.cpu, description="How much CPU the node has free.")
    fragmentation: Number = _weight(
        DEFAULT_WEIGHTS.fragmentation, description="What the placement costs later requests."
    )


def _same_weight(value: Any) -> Any:
    """A weight alone leaves no choice. Raises `ValueError` for true and false, and for a weight out of bounds."""
    weight = refuse_bool(value)
    if not isinstance(weight, int | float):
        return weight
    if not 0 <= weight <= _MAX_WEIGHT:
        raise ValueError("out of bounds")
    return {"default": weight, "min": weight, "max": weight}


class WeightRange(BaseModel):
    """A term's weight in a namespace, and what its jobs and pods may choose."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min: Number = _weight(0.0, description="The lowest weight that a job or pod may choose.")
    max: Number = _weight(_MAX_WEIGHT, description="The highest weight that a job or pod may choose.")
    default: Annotated[Number, Field(ge=0, le=_MAX_WEIGHT)] | None = Field(
        default=None,
        description="The weight of jobs and pods that choose none; by default that of score_weights, moved into the "
        "range.",
        json_schema_extra={"allowed": "a number from 0 to 100 (weight)"},
    )

    def default_or(self, weight: float) -> float:
        """The weight of jobs and pods that choose none, where `weight` is the cluster's."""
        return min(max(weight, self.min), self.max) if self.default is None else self.default

    @field_validator("max")
    @classmethod
    def _not_below_min(cls, high: float, info: ValidationInfo) -> float:
        if high < (low := info.data.get("min", 0)):
            raise ValueError(f"at least min, which is {low:g}")
        return high

    @field_validator("default")
    @classmethod
    def _within(cls, weight: float | None, info: ValidationInfo) -> float | None:
        low, high = info.data.get("min", 0), info.data.get("max", 100)
        if weight is not None and not low <= weight <= high:
            raise ValueError(f"within its range, which is {low:g} to {high:g}")
        return weight


_TermWeight = Annotated[
    WeightRange,
    BeforeValidator(_same_weight),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 100},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        name: {"type": "number", "minimum": 0, "maximum": 100} for name in ("min", "max", "default")
                    },
                },
            ]
        }
    ),
]
# Of a term's weight: what the errors of all four say.
_TERM_EXTRA: Final[JsonDict] = {"allowed": "a number from 0 to 100, or a map with min, max and default"}


class NamespaceWeights(BaseModel):
    """The weights of a namespace by term; the cluster's for a term that is left out, which jobs may then change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    utilization: _TermWeight = Field(default=WeightRange(), json_schema_extra=_TERM_EXTRA)
    memory: _TermWeight = Field(default=WeightRange(), json_schema_extra=_TERM_EXTRA)
    cpu: _TermWeight = Field(default=WeightRange(), json_schema_extra=_TERM_EXTRA)
    fragmentation: _TermWeight = Field(default=WeightRange(), json_schema_extra=_TERM_EXTRA)


class IdlePolicy(BaseModel):
    """What happens to jobs that hold GPUs and do nothing with them; nothing while after is 0."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: WholeNumber = number(
        0,
        low=0,
        high=2592000,
        unit="seconds",
        description="How long a job may do no GPU work until it gets a warning; 0: never.",
    )
    below: Number = number(
        0.05, low=0.0, high=1.0, unit="ratio", description="The utilization below which a GPU counts as idle."
    )
    action: IdleAction = choice(
        "Warn",
        "Warn",
        "Suspend",
        "End",
        description="What follows: only the warning (Warn), or the job is held (Suspend) or ended (End).",
    )
    grace: WholeNumber = number(
        600, low=0, high=2592000, unit="seconds", description="The time from the warning to the action."
    )


class DrainRules(BaseModel):
    """What happens to the jobs on a node that is cordoned."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["Leave", "Restart"] = choice(
        "Leave",
        "Leave",
        "Restart",
        description="Jobs go on until their pods are evicted (Leave), or restart on other nodes once there is room for "
        "them (Restart).",
    )
    grace: WholeNumber = number(
        60,
        low=0,
        high=86400,
        unit="seconds",
        description="The time between the notice and the end; then the pods get SIGTERM and their own grace period.",
    )


class MoveRules(BaseModel):
    """Which running jobs restart on other nodes so that waiting ones start, and when."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["Off", "Plan", "Apply"] = choice(
        "Off",
        "Off",
        "Plan",
        "Apply",
        description="What the operator does for a job that waits and that moves would start: nothing (Off), it says so "
        "in the job's status and in a metric (Plan), or it moves jobs (Apply). A request by `dovetail move apply` "
        "counts in each mode.",
    )
    default: Literal["Never", "Restart"] = choice(
        "Never",
        "Never",
        "Restart",
        description="Whether jobs may move that do not set spec.moves, in namespaces that the next key does not name.",
    )
    namespaces: dict[str, Literal["Never", "Restart"]] = Field(
        default_factory=dict,
        description="The same by namespace.",
        json_schema_extra={"allowed": "a map of namespaces to Never or Restart", "entry": "Never or Restart"},
    )
    after: WholeNumber = number(
        300,
        low=0,
        high=86400,
        unit="seconds",
        description="How long a job waits before jobs move for it without a request.",
    )
    patience: Annotated[dict[str, Annotated[WholeNumber, Field(ge=0, le=86400)]], BeforeValidator(_by_priority)] = (
        Field(
            default_factory=dict,
            description="The same by class of priority: a job of at least this priority waits so long instead. Of "
            "several that apply, the highest counts.",
            json_schema_extra={
                "unit": "seconds",
                "allowed": "a map of priorities (0 to 255) to seconds",
                "entry": "a whole number from 0 to 86400 (seconds)",
            },
        )
    )
    rest: WholeNumber = number(
        3600, low=0, high=2592000, unit="seconds", description="The least time between two moves of one job."
    )
    per_hour: WholeNumber = number(
        20, low=1, high=10000, unit="moves", description="How many moves there are within an hour at most."
    )


class MigReshape(BaseModel):
    """When idle GPUs in MIG mode are partitioned again for waiting requests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(
        default=False,
        strict=True,
        description="Partition idle GPUs again. The agents need the chart's agent.reshape.enabled too.",
        json_schema_extra={"allowed": "true or false"},
    )
    node_labels: dict[str, str] = Field(
        default_factory=dict,
        description="The labels that a node must have; empty: all nodes.",
        json_schema_extra={"allowed": "a map of labels to values", "entry": "a label's value"},
    )
    after: WholeNumber = number(
        60, low=0, high=86400, unit="seconds", description="How long a request must have waited."
    )
    idle_for: WholeNumber = number(
        60, low=0, high=86400, unit="seconds", description="For how long a GPU must have had no tenant."
    )
    cooldown: WholeNumber = number(
        1800, low=0, high=604800, unit="seconds", description="The shortest time between two changes of a GPU."
    )


class JobSizes(BaseModel):
    """The size limits of GPUJobs: larger ones are refused, or not planned if they exist."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_spec_bytes: WholeNumber = number(
        256 << 10, low=4096, high=1 << 20, unit="bytes", description="The maximum size of the spec of one GPUJob."
    )
    max_array_bytes: WholeNumber = number(
        64 << 20,
        low=1 << 20,
        high=1 << 30,
        unit="bytes",
        description="The maximum size of the specs of all tasks of an array or a sweep together.",
    )


class PreemptionRules(BaseModel):
    """When a waiting job may preempt running ones; never while priority_gap is 0."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    priority_gap: WholeNumber = number(
        0,
        low=0,
        high=255,
        unit="priority",
        description="How much lower a victim's priority must be than the preempting job's; 0: no preemption.",
    )
    min_run: WholeNumber = number(
        300, low=0, high=604800, unit="seconds", description="The minimum run time of a victim."
    )
    grace: WholeNumber = number(
        30,
        low=1,
        high=86400,
        unit="seconds",
        description="The time between the notice and the end; then the pods get SIGTERM and their own grace period.",
    )
    per_job: WholeNumber = number(
        3, low=0, high=1000, unit="times", description="The maximum number of preemptions of one job."
    )
    per_hour: WholeNumber = number(
        20, low=0, high=100000, unit="jobs", description="The maximum number of preemptions in the cluster in an hour."
    )
    reclaim_grace: WholeNumber = number(
        30,
        low=0,
        high=86400,
        unit="seconds",
        description="The same time for a job that is ended because a GPUQuota gets its guarantee back.",
    )
    between_quotas: Literal["Never", "Borrowers"] = choice(
        "Never",
        "Never",
        "Borrowers",
        description="Whether priority preempts jobs of other quotas of a tree too: Never, or those beyond a guarantee.",
    )
