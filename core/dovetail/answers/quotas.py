"""Quotas: limits and guarantees, who uses how much of them, who would give back what one is owed. Types only."""

from dovetail.answers import Row
from dovetail.api import gpuquota
from dovetail.api.gpuquota import (
    AdvanceReservation,
    GuaranteeWindow,
    Per,
    PreemptionPolicy,
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
    list. A limit is null for none; `pools` is empty for all. `ready` says what is ready of the `reserve`.
    """

    name: str
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
    """The quotas, by name."""

    items: list[QuotaRow]
