"""Quotas: limits and guarantees, who uses how much of them, and what a change of them would do. Types only."""

from dovetail.answers import Row
from dovetail.api import gpuquota
from dovetail.api.gpuquota import (
    AdvanceReservation,
    Forecast,
    GuaranteeWindow,
    Per,
    PreemptionPolicy,
    QuotaForecast,
    QuotaReserve,
    QuotaUse,
    Reserve,
)


class QuotaBorrower(Row, frozen=True, kw_only=True):
    """A quota that would be asked for GPUs that it borrows, and for how many at most."""

    name: str
    gpus: float


class QuotaGuarantee(gpuquota.QuotaGuarantee, frozen=True, kw_only=True):
    """What a quota and those below it are guaranteed, use, lend and borrow now, in GPUs.

    `wouldGive` names, while jobs wait within the guarantee, the quotas that would be asked for it: those that you may
    see.
    """

    would_give: list[QuotaBorrower]


class QuotaProblem(Row, frozen=True, kw_only=True):
    """A contradiction in the tree of quotas, or why less is guaranteed than a quota says."""

    reason: str
    message: str


class QuotaRow(Row, frozen=True, kw_only=True):
    """A quota that applies to a namespace you may list.

    `otherNamespaces` and `otherUsers` count those that you may not list. `projects` are those of jobs that you may
    list. A limit is null for none; `pools` is empty for all. `ready` says what is ready of the `reserve`, and `demand`
    what the `forecast` expects. Each change of the quota's spec raises its `generation`.
    """

    name: str
    generation: int
    per: Per
    parent: str | None
    projects: list[str]
    guaranteed: int | None
    guaranteed_memory_mib: int | None
    guarantee: QuotaGuarantee | None
    problems: list[QuotaProblem]
    gpus_limit: float | None
    memory_mib_limit: int | None
    models_limit: dict[str, int]
    running_jobs_limit: int | None
    queued_jobs_limit: int | None
    shares: int | None
    pools: list[str]
    max_priority: int | None
    preemption_policy: PreemptionPolicy
    advance_reservations: list[AdvanceReservation]
    guarantee_windows: list[GuaranteeWindow]
    reserve: Reserve | None
    ready: QuotaReserve | None
    forecast: Forecast | None
    demand: QuotaForecast | None
    gpus: float
    memory_mib: int
    running_jobs: int
    queued_jobs: int
    namespaces: list[str]
    users: list[str]
    other_namespaces: int
    other_users: int
    uses: list[QuotaUse]
    as_of: str | None


class QuotaList(Row, frozen=True, kw_only=True):
    """The quotas, by name. `mayChange` says whether you may change them; null where the API server was not asked."""

    items: list[QuotaRow]
    may_change: bool | None = None


class MemoryChange(Row, frozen=True, kw_only=True):
    """A quota's device memory in MiB: what is guaranteed now, what would be, and what is used."""

    before_mib: int | None
    after_mib: int | None
    used_mib: int


class QuotaChange(Row, frozen=True, kw_only=True):
    """The GPUs that a quota guarantees now and would guarantee, null outside a tree; and what it and those below use.

    `memory` is the same of device memory; null where no quota names memory.
    """

    name: str
    before: float | None
    after: float | None
    used: float
    memory: MemoryChange | None


class EndedJob(Row, frozen=True, kw_only=True):
    """A running job that would be ended, and the one that starts instead, each as `namespace/name`."""

    job: str
    by: str
    reason: str


class QuotaPlan(Row, frozen=True, kw_only=True):
    """What changed quotas would do.

    quotas          all quotas of the tree before or after
    contradictions  what is wrong with the tree, in sentences
    is_refused      whether the quotas contradict each other, and not only what the cluster has now
    starts          waiting jobs that would start at once, and do not now, as `namespace/name`
    waits           waiting jobs that would start at once now, and then do not
    ends            running jobs that would be ended, and are not now
    others_start    how many jobs of other tenants would start; the two below count in the same way
    """

    quotas: list[QuotaChange]
    contradictions: list[str]
    starts: list[str]
    waits: list[str]
    ends: list[EndedJob]
    is_refused: bool
    others_start: int = 0
    others_wait: int = 0
    others_end: int = 0
