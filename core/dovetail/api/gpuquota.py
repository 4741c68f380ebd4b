"""GPUQuota: the limits of namespaces and users, their fair share, and their advance reservations. Cluster-scoped.

The platform's people write the spec, the operator writes the status.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from dovetail.api.gpujob import KeptOnNode
from dovetail.api.meta import Condition, Described, ObjectMeta, Timestamp
from dovetail.api.text_formats import DEVICE_MEMORY, MODEL_NAME, TIME, TIME_OF_DAY, TIME_ZONE, in_order
from dovetail.formats.quantities import mebibytes
from dovetail.names import API_VERSION

KIND: Final = "GPUQuota"
Per = Literal["Together", "Namespace", "User"]
PreemptionPolicy = Literal["PreemptLowerPriority", "Never"]
Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Label = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
User = Annotated[str, Meta(min_length=1, max_length=253)]
Moment = Annotated[Timestamp, Meta(pattern=TIME)]
DeviceMemory = Annotated[str, Meta(pattern=DEVICE_MEMORY, max_length=12)]


class AdvanceReservation(Described, frozen=True, kw_only=True, omit_defaults=False):
    """GPUs that are kept for a period for those whom the quota names."""

    name: Annotated[Label, Meta(description="Name of the advance reservation, for messages.")]
    gpus: Annotated[int, Meta(description="Number of whole GPUs.", ge=1, le=100_000)]
    pool: Annotated[
        Label | None, Meta(description="Only GPUs of nodes of this pool (label dovetail.dev/pool). Unset: of any.")
    ] = None
    start_time: Annotated[Moment, Meta(description="The start (RFC 3339), such as 2026-01-31T18:00:00Z.")]
    end_time: Annotated[Moment, Meta(description="The end (RFC 3339); after `startTime`.")]


class GuaranteeWindow(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A time of the week with a higher guarantee."""

    name: Annotated[Label, Meta(description="Name of the window, for messages.")]
    days: Annotated[
        list[Day],
        Meta(
            description="The days on which it begins. Empty: every day.",
            max_length=7,
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ] = []
    start: Annotated[
        str, Meta(description="When it begins, by the clock of its time zone.", pattern=TIME_OF_DAY, max_length=5)
    ]
    end: Annotated[
        str,
        Meta(
            description="When it ends, by the same clock. At or before `start`: on the next day.",
            pattern=TIME_OF_DAY,
            max_length=5,
        ),
    ]
    time_zone: Annotated[
        str, Meta(description="Name of the time zone, such as Europe/Berlin.", pattern=TIME_ZONE, max_length=64)
    ] = "UTC"
    gpus: Annotated[Count, Meta(description="GPUs that are guaranteed meanwhile; of several windows, the most.")]


class Reserve(Described, frozen=True, kw_only=True, omit_defaults=False):
    """GPUs of the guarantee that are ready for the next replicas: free, or used by jobs that leave in time."""

    gpus: Annotated[
        int,
        Meta(description="Whole GPUs beyond those in use; at most what the guarantee leaves.", ge=1, le=100_000),
    ]
    gpus_per_replica: Annotated[int, Meta(description="GPUs that one replica needs on one node.", ge=1, le=64)] = 1
    leave_within_seconds: Annotated[
        int,
        Meta(
            description="Other jobs may use these GPUs if they may be preempted and their pods end within so many "
            "seconds: their terminationGracePeriodSeconds must not be longer. What is left of it is the notice. 0: no "
            "other job may use them.",
            ge=0,
            le=3600,
        ),
    ] = 60


class Forecast(Described, frozen=True, kw_only=True, omit_defaults=False):
    """Guarantees what the jobs of the quota are expected to request, by what they requested in earlier weeks."""

    gpus: Annotated[int, Meta(description="The most GPUs that the forecast guarantees.", ge=1, le=100_000)]
    margin_percent: Annotated[
        int, Meta(description="How much is guaranteed beyond the forecast, in percent of it.", ge=0, le=100)
    ] = 10
    time_zone: Annotated[
        str,
        Meta(
            description="Name of the time zone by whose clock hours of the week are the same, such as Europe/Berlin.",
            pattern=TIME_ZONE,
            max_length=64,
        ),
    ] = "UTC"


class GPUAmounts(Described, frozen=True, kw_only=True):
    """A number of GPUs, and an amount of their memory. A share counts as its fraction."""

    gpus: Annotated[Count | None, Meta(description="GPUs of any model.")] = None
    models: Annotated[
        dict[str, Count],
        Meta(
            description="GPUs by model, such as A100: 4. It counts the jobs whose request names that model alone.",
            max_length=32,
            extra_json_schema={"propertyNames": {"pattern": MODEL_NAME}},
        ),
    ] = {}
    memory: Annotated[
        DeviceMemory | None,
        Meta(
            description="Device memory, such as 640Gi. A whole GPU counts with all its memory by its nominal size, a "
            "share with what it is promised, a MIG instance with its own."
        ),
    ] = None

    @property
    def memory_mib(self) -> int | None:
        """The device memory in MiB; None where nothing is said."""
        return None if self.memory is None else mebibytes(self.memory, rounding="down")


class QuotaLimit(GPUAmounts, frozen=True, kw_only=True):
    """How much may be in use at a time. An absent field sets no limit."""

    running_jobs: Annotated[Count | None, Meta(description="GPUJobs that may run at a time.")] = None
    queued_jobs: Annotated[
        Count | None, Meta(description="GPUJobs that may be in the queue; the rest wait outside it.")
    ] = None


class GPUQuotaSpec(Described, frozen=True, kw_only=True):
    """Whom the quota applies to, and its limits. An absent field sets no limit."""

    namespaces: Annotated[
        list[Label], Meta(description="It applies to jobs and pods of these namespaces. Empty: all.", max_length=256)
    ] = []
    users: Annotated[
        list[User],
        Meta(
            description="It applies to jobs of these users (annotation dovetail.dev/user). Empty: all. A pod without "
            "a GPUJob has no user: only quotas without users apply to it.",
            max_length=256,
        ),
    ] = []
    projects: Annotated[
        list[Label],
        Meta(
            description="It applies to jobs and pods with one of these values of the label dovetail.dev/project. "
            "Empty: all. Users choose the label, so name the namespaces too.",
            max_length=256,
        ),
    ] = []
    parent: Annotated[
        Annotated[str, Meta(max_length=253)] | None,
        Meta(
            description="The GPUQuota above this one in the tree. What this quota uses counts for it, its limits apply "
            "here too, and guarantees are lent among its children first."
        ),
    ] = None
    guaranteed: Annotated[
        GPUAmounts | None,
        Meta(
            description="GPUs that those whom the quota applies to can have at any time. While they are idle, others "
            "may use them; they come back by the end of such jobs. With memory alone, the number of GPUs does not "
            "matter. Unset: the sum of its children's, at most the limit."
        ),
    ] = None
    guarantee_windows: Annotated[
        list[GuaranteeWindow],
        Meta(
            description="Times of the week at which more GPUs are guaranteed than `guaranteed.gpus`.",
            max_length=32,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = []
    forecast: Annotated[
        Forecast | None,
        Meta(
            description="More windows, which the operator adds by a forecast of what the jobs of the quota request. "
            "Unset: none."
        ),
    ] = None
    reserve: Annotated[
        Reserve | None,
        Meta(
            description="GPUs of the guarantee that are ready at any time. Unset: all that is idle is lent, and comes "
            "back when a job of the quota waits."
        ),
    ] = None
    per: Annotated[
        Per,
        Meta(
            description="Together: all whom it applies to share one limit. Namespace, User: each namespace, each user "
            "has its own limit."
        ),
    ] = "Together"
    shares: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Meta(
            description="Fair share: among jobs of equal priority, those start first whose quota has the lowest recent "
            "usage for its shares. Unset: no fair share; in a tree of quotas, 1."
        ),
    ] = None
    max_priority: Annotated[
        Annotated[int, Meta(ge=0, le=255)] | None,
        Meta(
            description="The highest spec.priority that each job may have, and the highest weight in turns of each "
            "pod. A job beyond it is refused when it is created or changed; an existing one waits. Unset: 255."
        ),
    ] = None
    pools: Annotated[
        list[Label],
        Meta(description="Only nodes of these pools (label dovetail.dev/pool). Empty: any node.", max_length=64),
    ] = []
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

    @property
    def limits(self) -> QuotaLimit:
        """The limits; all are None where `limit` is absent."""
        return self.limit or QuotaLimit()

    @property
    def names_anyone(self) -> bool:
        """Whether it names namespaces, users or projects."""
        return bool(self.namespaces or self.users or self.projects)


class QuotaUse(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The current and the recent usage of one namespace or user."""

    who: Annotated[str, Meta(description="The namespace or the user; empty if all share one limit.", max_length=253)]
    gpus: Annotated[float, Meta(description="GPUs in use; a share counts as its fraction.", ge=0)] = 0.0
    memory_mib: Annotated[
        int, Meta(description="Device memory in use in MiB; counted while a quota names memory.", ge=0)
    ] = 0
    running_jobs: Annotated[int, Meta(description="GPUJobs that run or start.", ge=0)] = 0
    queued_jobs: Annotated[int, Meta(description="GPUJobs in the queue.", ge=0)] = 0
    gpu_seconds: Annotated[
        float, Meta(description="GPU seconds used until `asOf`; each counts half after the configured half-life.", ge=0)
    ] = 0.0


class QuotaMemoryGuarantee(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A quota's guarantee of device memory: what holds now, what of it is lent, and who borrows, in MiB."""

    guaranteed_mib: Annotated[int, Meta(description="MiB that are guaranteed now.", ge=0)] = 0
    used_mib: Annotated[int, Meta(description="MiB in use by it and by all quotas below it.", ge=0)] = 0
    lent_mib: Annotated[int, Meta(description="Guaranteed MiB that it does not use and others do.", ge=0)] = 0
    borrowed_mib: Annotated[int, Meta(description="MiB that it uses beyond its guarantee.", ge=0)] = 0
    waiting_mib: Annotated[int, Meta(description="MiB that its waiting jobs request within its guarantee.", ge=0)] = 0


class QuotaGuarantee(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The quota's guarantee: what holds now, what of it is lent, and who borrows."""

    gpus: Annotated[float, Meta(description="GPUs that are guaranteed now.", ge=0)] = 0.0
    used: Annotated[float, Meta(description="GPUs in use by it and by all quotas below it.", ge=0)] = 0.0
    lent: Annotated[float, Meta(description="Guaranteed GPUs that it does not use and others do.", ge=0)] = 0.0
    borrowed: Annotated[float, Meta(description="GPUs that it uses beyond its guarantee.", ge=0)] = 0.0
    waiting: Annotated[float, Meta(description="GPUs that its waiting jobs request within its guarantee.", ge=0)] = 0.0
    memory: Annotated[
        QuotaMemoryGuarantee | None,
        Meta(description="Its guarantee of device memory; unset where no quota of the tree names memory."),
    ] = None


class QuotaReserve(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What is ready for the next replicas of the quota, in GPUs."""

    gpus: Annotated[int, Meta(description="GPUs that are to be ready now.", ge=0)] = 0
    ready: Annotated[int, Meta(description="Of these, those that are ready.", ge=0)] = 0
    lent: Annotated[int, Meta(description="Of those that are ready, those in use by jobs that leave.", ge=0)] = 0


class QuotaForecast(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What the jobs of the quota are expected to request, and how far such forecasts were from what they did."""

    time_zone: Annotated[str, Meta(description="The time zone of the hours.", max_length=64)] = "UTC"
    since: Annotated[Timestamp, Meta(description="The hour since which it is observed (RFC 3339).")]
    hour: Annotated[Timestamp, Meta(description="The hour that is observed now (RFC 3339).")]
    peak: Annotated[float, Meta(description="The most GPUs in use or requested at a time of that hour.", ge=0)] = 0.0
    expected: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="The forecast of that peak in GPUs; unset if no such hour was observed yet."),
    ] = None
    error: Annotated[
        float, Meta(description="Mean absolute error of the forecasts of past hours in GPUs; late hours count most.")
    ] = 0.0
    hours: Annotated[int, Meta(description="Number of past hours that had a forecast.", ge=0)] = 0
    windows: Annotated[
        list[GuaranteeWindow], Meta(description="What is guaranteed by it in the next 24 hours.", max_length=24)
    ] = []
    profile: Annotated[
        list[float],
        Meta(
            description="The expected peak in GPUs of each hour of the week, from Monday 00:00 on; -1 for an hour that "
            "was not observed yet.",
            max_length=168,
        ),
    ] = []


class GPUQuotaStatus(Described, frozen=True, kw_only=True):
    """The usage of the quota. Only the operator writes it."""

    observed_generation: Annotated[int, Meta(description="The metadata.generation that this status describes.")] = 0
    gpus: Annotated[float, Meta(description="GPUs in use by all whom it applies to.", ge=0)] = 0.0
    memory_mib: Annotated[
        int, Meta(description="Device memory in use by them in MiB; counted while a quota names memory.", ge=0)
    ] = 0
    running_jobs: Annotated[int, Meta(description="Their GPUJobs that run or start.", ge=0)] = 0
    queued_jobs: Annotated[int, Meta(description="Their GPUJobs in the queue.", ge=0)] = 0
    kept: Annotated[
        list[KeptOnNode],
        Meta(
            description="What its advance reservations keep free now, also from pods without a GPUJob.", max_length=1024
        ),
    ] = []
    guarantee: Annotated[
        QuotaGuarantee | None, Meta(description="What its guarantee holds, lends and borrows; unset outside a tree.")
    ] = None
    reserve: Annotated[QuotaReserve | None, Meta(description="What is ready of its reserve; unset without one.")] = None
    forecast: Annotated[
        QuotaForecast | None, Meta(description="The forecast of its demand; unset without spec.forecast.")
    ] = None
    conditions: Annotated[
        list[Condition],
        Meta(
            description="Valid: whether the quota agrees with its tree. Scaled: whether less is guaranteed than the "
            "spec says.",
            max_length=8,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = []
    as_of: Annotated[Timestamp | None, Meta(description="The time up to which `gpuSeconds` counts (RFC 3339).")] = None
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


_NO_RESERVATIONS: Final = "!has(self.advanceReservations) || self.advanceReservations.size() == 0"
_NO_WINDOWS: Final = "!has(self.guaranteeWindows) || self.guaranteeWindows.size() == 0"
_NAMES_SOMEONE: Final = " || ".join(
    f"(has(self.{each}) && self.{each}.size() > 0)" for each in ("namespaces", "users", "projects")
)
WHOLE_RULES: Final = [
    # Longer circles need a look at other objects: the operator names them in the condition Valid.
    {
        "rule": "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
        "message": "spec.parent must be another GPUQuota",
    },
]
SPEC_RULES: Final = [
    {
        "rule": f"{_NO_RESERVATIONS} || !has(self.per) || self.per == 'Together'",
        "message": "advanceReservations are kept for all whom the quota binds: per must be Together",
    },
    {
        "rule": f"{_NO_RESERVATIONS} || {_NAMES_SOMEONE}",
        "message": "advanceReservations keep GPUs for those whom the quota names: namespaces, users and projects must "
        "not all be empty",
    },
    {
        "rule": "!has(self.per) || self.per == 'Together' || (!has(self.parent) && !has(self.guaranteed))",
        "message": "guaranteed and parent are for all whom the quota applies to: per must be Together",
    },
    {
        "rule": f"!has(self.per) || self.per == 'Together' || (({_NO_WINDOWS}) && !has(self.reserve))",
        "message": "guaranteeWindows and reserve are for all whom the quota applies to: per must be Together",
    },
    {
        "rule": "!has(self.forecast) || !has(self.per) || self.per == 'Together'",
        "message": "forecast is for all whom the quota applies to: per must be Together",
    },
    {
        "rule": "!has(self.forecast) || !has(self.limit) || !has(self.limit.gpus) || "
        "self.forecast.gpus <= self.limit.gpus",
        "message": "forecast.gpus must not be above limit.gpus: raise the limit or lower the forecast",
    },
    {
        "rule": f"{_NO_WINDOWS} || !has(self.limit) || !has(self.limit.gpus) || "
        "self.guaranteeWindows.all(each, each.gpus <= self.limit.gpus)",
        "message": "gpus of each of guaranteeWindows must not be above limit.gpus: raise the limit or lower the window",
    },
    {
        "rule": f"!has(self.reserve) || !({_NO_WINDOWS}) || (has(self.guaranteed) && has(self.guaranteed.gpus))",
        "message": "reserve is a part of the guarantee: set guaranteed.gpus or guaranteeWindows",
    },
    {
        "rule": "!has(self.guaranteed) || !has(self.guaranteed.gpus) || !has(self.limit) || !has(self.limit.gpus) || "
        "self.guaranteed.gpus <= self.limit.gpus",
        # No messageExpression: the API server refuses a CRD that builds a text from numbers as too expensive.
        "message": "guaranteed.gpus must not be above limit.gpus: raise the limit or lower the guarantee",
    },
]
ADVANCE_RESERVATION_RULES: Final = [
    {"rule": in_order("self.startTime", later="self.endTime"), "message": "endTime must be after startTime"}
]
RESERVE_RULES: Final = [
    {
        "rule": "self.gpus % self.gpusPerReplica == 0",
        "message": "gpus must be a multiple of gpusPerReplica: it is for whole replicas",
    }
]
COLUMNS: Final = [
    ("Per", "string", ".spec.per", "Whether its limits are for all together, for each namespace or for each user."),
    ("GPUs", "number", ".status.gpus", "GPUs in use by all whom it applies to."),
    ("Max-GPUs", "integer", ".spec.limit.gpus", "GPUs that may be in use."),
    ("Guaranteed", "number", ".status.guarantee.gpus", "GPUs that are guaranteed now."),
    ("Borrowed", "number", ".status.guarantee.borrowed", "GPUs in use beyond the guarantee."),
    ("Running", "integer", ".status.runningJobs", "Jobs that run or start."),
    ("Max-Running", "integer", ".spec.limit.runningJobs", "Jobs that may run."),
    ("Queued", "integer", ".status.queuedJobs", "Jobs that stand in the queue."),
    ("Max-Queued", "integer", ".spec.limit.queuedJobs", "Jobs that may stand in the queue."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the object was made."),
]
