"""GPUQuota as `dovetail.dev/v1beta1` has it: the fields whose names differ from v1alpha1. Data only.

`dovetail.api.versions` converts between the two. The reasons for each name are in docs/decisions/0023-v1beta1.md.
"""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from dovetail.api.gpuquota import (
    COLUMNS as V1ALPHA1_COLUMNS,
)
from dovetail.api.gpuquota import (
    KIND,
    TREE_RULE,
    Count,
    GPUAmounts,
    GPUQuotaStatus,
    Moment,
    QuotaSubjects,
    ReservedGPUs,
    reservation_rules,
)
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.text_formats import in_order
from dovetail.names import GROUP, V1BETA1

PreemptionPolicy = Literal["PreemptLowerPriority", "Never"]


class QuotaLimit(GPUAmounts, frozen=True, kw_only=True):
    """How much may be in use at a time. An absent field sets no limit."""

    running_jobs: Annotated[Count | None, Meta(description="GPUJobs that may run at a time.")] = None
    queued_jobs: Annotated[
        Count | None, Meta(description="GPUJobs that may be in the queue; the rest wait outside it.")
    ] = None


class AdvanceReservation(ReservedGPUs, frozen=True, kw_only=True):
    """GPUs that are kept for a period for those whom the quota names."""

    start_time: Annotated[Moment, Meta(description="The start (RFC 3339), such as 2026-01-31T18:00:00Z.")]
    end_time: Annotated[Moment, Meta(description="The end (RFC 3339); after `startTime`.")]


class GPUQuotaSpec(QuotaSubjects, frozen=True, kw_only=True):
    """Whom the quota applies to, and its limits. An absent field sets no limit."""

    limit: Annotated[
        QuotaLimit | None,
        Meta(description="How much may be in use at a time; a share of a GPU counts as its fraction."),
    ] = None
    preemption_policy: Annotated[
        PreemptionPolicy,
        Meta(
            description="PreemptLowerPriority: its jobs may preempt running jobs, if preemption is on. Never: they may "
            "not. One quota with Never is enough to forbid it."
        ),
    ] = "PreemptLowerPriority"
    advance_reservations: Annotated[
        list[AdvanceReservation],
        Meta(
            description="GPUs that are kept for a period.",
            max_length=32,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = []


class GPUQuota(Described, frozen=True, kw_only=True):
    """What namespaces and users may use of the cluster's GPUs."""

    metadata: ObjectMeta
    spec: GPUQuotaSpec = GPUQuotaSpec()
    api_version: str = f"{GROUP}/{V1BETA1}"
    kind: str = KIND
    status: GPUQuotaStatus = GPUQuotaStatus()


SPEC_RULES: Final[list[dict[str, Any]]] = [
    *reservation_rules("advanceReservations"),
    TREE_RULE,
    {
        "rule": "!has(self.guaranteed) || !has(self.guaranteed.gpus) || !has(self.limit) || !has(self.limit.gpus) || "
        "self.guaranteed.gpus <= self.limit.gpus",
        "message": "guaranteed.gpus must not be above limit.gpus: raise the limit or lower the guarantee",
    },
]
WINDOW_RULES: Final = [
    {"rule": in_order("self.startTime", later="self.endTime"), "message": "endTime must be after startTime"}
]
# By the path that v1alpha1 has.
_COLUMN_PATHS: Final = {
    ".spec.gpus": ".spec.limit.gpus",
    ".spec.runningJobs": ".spec.limit.runningJobs",
    ".spec.queuedJobs": ".spec.limit.queuedJobs",
}
COLUMNS: Final = [
    (name, type_, _COLUMN_PATHS.get(path, path), description)
    for name, type_, path, description in V1ALPHA1_COLUMNS
    if path != ".spec.limit.gpus"
]
