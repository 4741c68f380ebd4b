"""GPUQuota: what namespaces and users may use, their fair share, and what is kept for them. Cluster-scoped.

The platform's people write the spec, the operator writes the status.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from dovetail.api.gpujob import KeptOnNode
from dovetail.api.meta import Described, ObjectMeta, Timestamp
from dovetail.api.text_formats import TIME, in_order
from dovetail.names import API_VERSION

KIND: Final = "GPUQuota"
Per = Literal["Together", "Namespace", "User"]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Label = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
User = Annotated[str, Meta(min_length=1, max_length=253)]
Moment = Annotated[Timestamp, Meta(pattern=TIME)]


class Window(Described, frozen=True, kw_only=True):
    """GPUs that are kept for those whom the quota names, for a time."""

    name: Annotated[Label, Meta(description="Name of the reservation, for sentences.")]
    start: Annotated[Moment, Meta(description="From when on (RFC 3339), such as 2026-01-31T18:00:00Z.")]
    end: Annotated[Moment, Meta(description="Until when (RFC 3339); after `start`.")]
    gpus: Annotated[int, Meta(description="Number of whole GPUs.", ge=1, le=100_000)]
    pool: Annotated[
        Label | None, Meta(description="Only GPUs of nodes of this pool (label dovetail.dev/pool). Unset: of any.")
    ] = None


class GPUQuotaSpec(Described, frozen=True, kw_only=True):
    """Whom it binds, and to what. What is not said is not limited."""

    namespaces: Annotated[
        list[Label], Meta(description="It binds jobs and pods of these namespaces. Empty: of all.", max_length=256)
    ] = []
    users: Annotated[
        list[User],
        Meta(
            description="It binds jobs of these users (annotation dovetail.dev/user). Empty: of all. A pod that "
            "belongs to no GPUJob is nobody's and is bound by quotas without users alone.",
            max_length=256,
        ),
    ] = []
    per: Annotated[
        Per,
        Meta(
            description="Together: all whom it binds share one limit. Namespace, User: each namespace, each user has "
            "the limit for itself."
        ),
    ] = "Together"
    gpus: Annotated[Count | None, Meta(description="GPUs that may be in use at a time; a share counts as such.")] = None
    running_jobs: Annotated[Count | None, Meta(description="GPUJobs that may run at a time.")] = None
    queued_jobs: Annotated[
        Count | None, Meta(description="GPUJobs that may stand in the queue; further ones wait outside it.")
    ] = None
    shares: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Meta(
            description="Fair share: among jobs of equal priority those go first whose quota has used the least of "
            "late for its shares. Unset: it takes no part."
        ),
    ] = None
    max_priority: Annotated[
        Annotated[int, Meta(ge=0, le=255)] | None,
        Meta(
            description="The highest spec.priority that each job may have, and the highest weight in turns of each "
            "pod. A job beyond it is refused when it is created or changed; one that exists already waits. Unset: 255."
        ),
    ] = None
    may_preempt: Annotated[
        bool,
        Meta(
            description="Whether jobs whom it binds may take the place of running jobs, where preemption is on. If one "
            "quota says false, they may not."
        ),
    ] = True
    pools: Annotated[
        list[Label],
        Meta(description="Only nodes of these pools (label dovetail.dev/pool). Empty: any node.", max_length=64),
    ] = []
    reservations: Annotated[
        list[Window],
        Meta(
            description="GPUs that are kept for those whom it binds, for a time.",
            max_length=32,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = []


class QuotaUse(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What one whom the quota binds uses now, and has used of late."""

    who: Annotated[str, Meta(description="The namespace or the user; empty where all share one limit.", max_length=253)]
    gpus: Annotated[float, Meta(description="GPUs in use; a share counts as such.", ge=0)] = 0.0
    running_jobs: Annotated[int, Meta(description="GPUJobs that run or start.", ge=0)] = 0
    queued_jobs: Annotated[int, Meta(description="GPUJobs that stand in the queue.", ge=0)] = 0
    gpu_seconds: Annotated[
        float, Meta(description="GPU seconds used until `asOf`; each counts half after the configured half-life.", ge=0)
    ] = 0.0


class GPUQuotaStatus(Described, frozen=True, kw_only=True):
    """What is used of it. Every field is the operator's."""

    observed_generation: Annotated[int, Meta(description="metadata.generation that this status is about.")] = 0
    gpus: Annotated[float, Meta(description="GPUs in use by all whom it binds.", ge=0)] = 0.0
    running_jobs: Annotated[int, Meta(description="GPUJobs of theirs that run or start.", ge=0)] = 0
    queued_jobs: Annotated[int, Meta(description="GPUJobs of theirs that stand in the queue.", ge=0)] = 0
    kept: Annotated[
        list[KeptOnNode],
        Meta(description="What its reservations keep free now, from pods that are no GPUJob's too.", max_length=1024),
    ] = []
    as_of: Annotated[Timestamp | None, Meta(description="Until when `gpuSeconds` counts (RFC 3339).")] = None
    uses: Annotated[
        list[QuotaUse],
        Meta(
            description="The same by namespace or by user, the largest first.",
            max_length=1024,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["who"]},
        ),
    ] = []


class GPUQuota(Described, frozen=True, kw_only=True):
    """What namespaces and users may use of the cluster's GPUs."""

    metadata: ObjectMeta
    spec: GPUQuotaSpec = GPUQuotaSpec()
    api_version: str = API_VERSION
    kind: str = KIND
    status: GPUQuotaStatus = GPUQuotaStatus()


SPEC_RULES: Final = [
    {
        "rule": "!has(self.reservations) || !has(self.per) || self.per == 'Together' || self.reservations.size() == 0",
        "message": "reservations are kept for all whom the quota binds: per must be Together",
    },
    {
        "rule": "!has(self.reservations) || self.reservations.size() == 0 || (has(self.namespaces) && "
        "self.namespaces.size() > 0) || (has(self.users) && self.users.size() > 0)",
        "message": "reservations keep GPUs for those whom the quota names: namespaces or users must name somebody",
    },
]
WINDOW_RULES: Final = [{"rule": in_order("self.start", "self.end"), "message": "end must be after start"}]
COLUMNS: Final = [
    ("Per", "string", ".spec.per", "Whether its limits are for all together, for each namespace or for each user."),
    ("GPUs", "number", ".status.gpus", "GPUs in use by all whom it binds."),
    ("Max-GPUs", "integer", ".spec.gpus", "GPUs that may be in use."),
    ("Running", "integer", ".status.runningJobs", "Jobs that run or start."),
    ("Max-Running", "integer", ".spec.runningJobs", "Jobs that may run."),
    ("Queued", "integer", ".status.queuedJobs", "Jobs that stand in the queue."),
    ("Max-Queued", "integer", ".spec.queuedJobs", "Jobs that may stand in the queue."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the object was made."),
]
