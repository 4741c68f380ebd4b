"""The settings of pools that grow: the key `growing`, and the shape of a pool's nodes below it."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from dovetail.config.groups import WholeNumber, number
from dovetail.formats.quantities import QuantityError, mebibytes, milli

POOL_NAME: Final = r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"
_LABEL: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
_CLASS: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_ATOMIC: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
_RESOURCE: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
# YAML reads `96` as a number.
_WRITTEN: Final = WithJsonSchema({"type": ["string", "number"]})


def _cpu(value: Any) -> Any:
    text = str(value)
    try:
        amount = milli(text, rounding="down")
    except QuantityError as error:
        raise ValueError("must be a quantity") from error
    if amount <= 0:
        raise ValueError("must be above 0")
    return text


def _memory(value: Any) -> Any:
    text = str(value)
    try:
        amount = mebibytes(text, rounding="down")
    except QuantityError as error:
        raise ValueError("must be a quantity") from error
    if amount <= 0:
        raise ValueError("must be at least 1Mi")
    return text


def _text(*, default: str, pattern: str, allowed: str, description: str) -> Any:
    return Field(default, pattern=pattern, description=description, json_schema_extra={"allowed": allowed})


class PoolTaint(BaseModel):
    """A taint of every node of a pool."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(pattern=_LABEL, description="Its key.", json_schema_extra={"allowed": "a label's name"})
    value: str = _text(default="", pattern=_VALUE, allowed="a label's value", description="Its value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule",
        description="Its effect.",
        json_schema_extra={"allowed": "NoSchedule, PreferNoSchedule or NoExecute"},
    )


class NodeShape(BaseModel):
    """A pool to which an autoscaler adds nodes: the shape of one node, and how many there may be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gpus: WholeNumber = Field(
        ge=1,
        le=128,
        description="GPUs of one node.",
        json_schema_extra={"allowed": "a whole number from 1 to 128 (GPUs)"},
    )
    model: str = Field(
        pattern=r"^[A-Za-z0-9][-A-Za-z0-9_. ]{0,62}$",
        description="Model of the GPUs, as nodes report it.",
        json_schema_extra={"allowed": "a model's name, such as A100-SXM4-80GB"},
    )
    gpu_memory_mib: WholeNumber = number(
        0,
        low=0,
        high=4194304,
        unit="MiB",
        description="Memory of one GPU; 0: that of gpu_memory_specs or of the table of models.",
    )
    cpu: Annotated[str, BeforeValidator(_cpu), _WRITTEN] = Field(
        description="CPU that one node has for jobs: what is allocatable without the requests of DaemonSets.",
        json_schema_extra={"allowed": "a quantity above 0, such as 96 or 95500m"},
    )
    memory: Annotated[str, BeforeValidator(_memory), _WRITTEN] = Field(
        description="Memory that one node has for jobs.",
        json_schema_extra={"allowed": "a quantity of at least 1Mi, such as 1000Gi"},
    )
    pods: WholeNumber = number(110, low=1, high=1024, unit="pods", description="Pods that one node takes.")
    labels: dict[Annotated[str, Field(pattern=_LABEL)], Annotated[str, Field(pattern=_VALUE)]] = Field(
        default_factory=dict,
        description="Labels of every node of the pool, by which its nodes are known and requested; those of a "
        "Karpenter NodePool of the same name are added.",
        json_schema_extra={"allowed": "a map of labels", "entry": "a label's value"},
    )
    taints: list[PoolTaint] = Field(
        default_factory=list,
        description="Taints of every node; only jobs that tolerate them are planned there.",
        json_schema_extra={"allowed": "a list of taints", "entry": "a map with key, value and effect"},
    )
    max_nodes: WholeNumber = Field(
        ge=1,
        le=10000,
        description="The most nodes of the pool, including those that exist.",
        json_schema_extra={"allowed": "a whole number from 1 to 10000 (nodes)"},
    )
    resource: str = _text(
        default="",
        pattern=_RESOURCE,
        allowed="a device plugin's resource such as nvidia.com/gpu, or empty for managed nodes",
        description="The resource of the device plugin that serves the GPUs; empty: Dovetail manages them.",
    )
    provisioning: Literal["Placeholders", "ProvisioningRequest"] = Field(
        default="Placeholders",
        description="How nodes are requested: by placeholder pods, or by a ProvisioningRequest of the cluster "
        "autoscaler.",
        json_schema_extra={"allowed": "Placeholders or ProvisioningRequest"},
    )
    class_name: str = Field(
        default=_ATOMIC,
        pattern=_CLASS,
        max_length=253,
        description="The provisioning class of its ProvisioningRequests.",
        json_schema_extra={"allowed": f"a provisioning class, such as {_ATOMIC}"},
    )


class Growing(BaseModel):
    """Pools to which an autoscaler adds nodes, and when waiting jobs request them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: WholeNumber = number(
        60,
        low=0,
        high=86400,
        unit="seconds",
        description="How long a job that existing nodes could serve waits for them before new nodes are requested.",
    )
    give_up: WholeNumber = number(
        900, low=10, high=86400, unit="seconds", description="How long a request waits for its nodes."
    )
    back_off: WholeNumber = number(
        600,
        low=10,
        high=86400,
        unit="seconds",
        description="The time from a request that was given up to the next one; doubled each time, up to 6 hours.",
    )
    pools: dict[Annotated[str, Field(pattern=POOL_NAME)], NodeShape] = Field(
        default_factory=dict,
        description="The pools by name, the preferred first.",
        json_schema_extra={
            "allowed": "a map of pool names to maps with gpus, model, cpu, memory and max_nodes",
            "entry": "a map with gpus, model, cpu, memory, max_nodes, and if needed gpu_memory_mib, pods, labels, "
            "taints, resource, provisioning and class_name",
        },
    )
