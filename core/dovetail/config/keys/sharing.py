"""Shared devices: their memory, their tenants and turns, and tenants that exceed their promise."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field

from dovetail.config.groups import MemoryStrategy, Number, WholeNumber, choice, number
from dovetail.gpu import memory_strategy

OverusePolicy = Literal["Warn", "Evict", "Kill"]
_NAMESPACE: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"


class SharingKeys(BaseModel):
    """The keys about shared devices."""

    memory_guard: MemoryStrategy = Field(
        default=memory_strategy.CONSERVATIVE,
        description="How much of a shared device's memory is promised: 0.8 (Conservative) or 0.95 (Aggressive) of it, "
        "a fraction of your own, or for a GPUJob what earlier runs of its name used (Dynamic; 0.8 without earlier "
        "runs).",
        json_schema_extra={"allowed": memory_strategy.ALLOWED, "choices": list(memory_strategy.NAMES)},
    )
    tenants_per_device: WholeNumber = number(
        4, low=1, high=48, unit="tenants", description="How many TimeShared tenants take turns on one device."
    )
    turn_seconds: Number = number(
        2.0, low=0.1, high=60.0, unit="seconds", description="How long a turn of a TimeShared tenant lasts."
    )
    suspend_turn_seconds: Number = number(
        30.0,
        low=1.0,
        high=3600.0,
        unit="seconds",
        description="The minimum duration of a turn while a tenant's device memory is on the host.",
    )
    mps_directory: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_.-]+)*$")] = Field(
        default="",
        description="The folder of MPS's daemon on each node (with pipe and shm); empty: pods do not use MPS.",
        json_schema_extra={"unit": "path", "allowed": "an absolute path, or empty"},
    )
    training_per_device: WholeNumber = number(
        1,
        low=0,
        high=48,
        unit="tenants",
        description="How many tenants with workload Training may share one device.",
        live=True,
    )
    inference_per_device: WholeNumber = number(
        3,
        low=0,
        high=48,
        unit="tenants",
        description="How many tenants with workload Inference may share one device.",
        live=True,
    )
    memory_overuse: OverusePolicy = choice(
        "Warn",
        "Warn",
        "Evict",
        "Kill",
        description="What happens to a pod that uses more of a shared device's memory than promised: it gets a warning "
        "(Warn), the operator ends it (Evict), or the agent kills its processes there (Kill).",
    )
    memory_overuse_grace: WholeNumber = number(
        60,
        low=0,
        high=86400,
        unit="seconds",
        description="How long a pod may do so while its neighbors have their memory.",
    )
    exempt_namespaces: list[Annotated[str, Field(pattern=_NAMESPACE)]] = Field(
        default_factory=list,
        description="Namespaces of the platform, in addition to kube-system and the operator's own: no pod there is "
        "ended because of its memory. The chart adds its namespaces and policies.exemptNamespaces.",
        json_schema_extra={
            "unit": "namespace",
            "allowed": "a list of namespaces",
            "entry": "a namespace's name, such as gpu-operator",
        },
    )

    @property
    def guard_fraction(self) -> float:
        """The default part of a shared device's memory that may be promised, 0 to 1."""
        return memory_strategy.fraction_of(self.memory_guard)
