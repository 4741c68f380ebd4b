"""GPUQuotas as rows of numbers: limits, and who uses how much of them. Pure."""

from collections.abc import Collection, Iterable

import msgspec

from dovetail.api.gpuquota import AdvanceReservation, GPUQuota, Per, PreemptionPolicy, QuotaUse
from dovetail.query.borrowers import Borrower, borrowers_from
from dovetail.query.errors import NotFoundError


class QuotaAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """Limits, or the use of them; None is what is not limited.

    gpus          the number of GPUs; a share counts as a fraction
    memory_mib    device memory in MiB
    running_jobs  the number of jobs that run
    queued_jobs   the number of jobs that wait
    """

    gpus: float | None
    memory_mib: int | None
    running_jobs: int | None
    queued_jobs: int | None


class QuotaUseRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one namespace or user uses.

    who           the namespace or user; empty if the quota counts all of them together
    gpus          the number of GPUs
    memory_mib    device memory in MiB
    running_jobs  the number of jobs that run
    queued_jobs   the number of jobs that wait
    gpu_seconds   the recent use that fair share counts, in GPUs times seconds
    """

    who: str
    gpus: float
    memory_mib: int
    running_jobs: int
    queued_jobs: int
    gpu_seconds: float


class QuotaReservationRow(msgspec.Struct, frozen=True, kw_only=True):
    """An advance reservation.

    name        its name
    start_time  when it begins (RFC 3339)
    end_time    when it ends (RFC 3339)
    gpus        the number of GPUs
    pool        the pool that it is in; None for any
    """

    name: str
    start_time: str
    end_time: str
    gpus: int
    pool: str | None


class QuotaMemoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a quota guarantees, lends and borrows of device memory, in MiB.

    guaranteed_mib  what is guaranteed now
    used_mib        what it and the quotas below it use
    lent_mib        what others use of it
    borrowed_mib    what it uses beyond it
    waiting_mib     what its waiting jobs request within it
    """

    guaranteed_mib: int
    used_mib: int
    lent_mib: int
    borrowed_mib: int
    waiting_mib: int


class QuotaGuaranteeRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a quota guarantees, lends and borrows; all are numbers of GPUs.

    says         what its spec guarantees; None if it is the sum of its children's
    gpus         what is guaranteed now
    used         what it and the quotas below it use
    lent         what others use of it
    borrowed     what it uses beyond it
    waiting      what its waiting jobs request within it
    memory       the same of device memory; None where no quota of the tree names memory
    would_give   while jobs wait within it: the quotas that would be asked, and for how much at most
    """

    says: int | None
    gpus: float
    used: float
    lent: float
    borrowed: float
    waiting: float
    memory: QuotaMemoryRow | None
    would_give: list[Borrower]


class QuotaRow(msgspec.Struct, frozen=True, kw_only=True):
    """A GPUQuota.

    name                  its name
    namespaces            the namespaces that it concerns
    users                 the users that it concerns
    projects              the projects that it concerns
    parent                the quota above it; None at the top
    guarantee             its guarantee; None outside a tree
    problems              contradictions in the tree, and why less is guaranteed than it says
    per                   whether it counts each namespace or user, or all of them together
    shares                the shares of its namespaces or users in the cluster; None for no fair share
    pools                 the pools that it allows; empty for all
    max_priority          the highest priority that it allows; None for no limit
    preemption_policy     whether its jobs may preempt others: PreemptLowerPriority or Never
    limits                its limits
    models                its limits by model, in GPUs
    used                  what is used of them by all together
    uses                  what each namespace or user uses
    advance_reservations  its advance reservations
    """

    name: str
    namespaces: list[str]
    users: list[str]
    projects: list[str]
    parent: str | None
    guarantee: QuotaGuaranteeRow | None
    problems: list[str]
    per: Per
    shares: int | None
    pools: list[str]
    max_priority: int | None
    preemption_policy: PreemptionPolicy
    limits: QuotaAmounts
    models: dict[str, int]
    used: QuotaAmounts
    uses: list[QuotaUseRow]
    advance_reservations: list[QuotaReservationRow]


def choose(quotas: Iterable[GPUQuota], *, names: Collection[str]) -> list[GPUQuota]:
    """The quotas of these names, or all without names, by name. Raises `NotFoundError`."""
    found = sorted(quotas, key=lambda quota: quota.metadata.name)
    missing = sorted(set(names) - {quota.metadata.name for quota in found})
    if missing:
        raise NotFoundError(f"no GPUQuota {', '.join(missing)}")
    return [quota for quota in found if not names or quota.metadata.name in names]


def quota_row(quota: GPUQuota, *, quotas: Iterable[GPUQuota] = ()) -> QuotaRow:
    """The quota for programs; `quotas` are all that exist."""
    spec, status = quota.spec, quota.status
    return QuotaRow(
        name=quota.metadata.name,
        namespaces=spec.namespaces,
        users=spec.users,
        projects=spec.projects,
        parent=spec.parent,
        guarantee=guarantee_row(quota, quotas=quotas),
        problems=[each.message for each in status.conditions if each.message],
        per=spec.per,
        shares=spec.shares,
        pools=spec.pools,
        max_priority=spec.max_priority,
        preemption_policy=spec.preemption_policy,
        limits=QuotaAmounts(
            gpus=spec.limits.gpus,
            memory_mib=spec.limits.memory_mib,
            running_jobs=spec.limits.running_jobs,
            queued_jobs=spec.limits.queued_jobs,
        ),
        models=spec.limits.models,
        used=QuotaAmounts(
            gpus=status.gpus,
            memory_mib=status.memory_mib,
            running_jobs=status.running_jobs,
            queued_jobs=status.queued_jobs,
        ),
        uses=[_use(use) for use in status.uses],
        advance_reservations=[_reservation(each) for each in spec.advance_reservations],
    )


def guarantee_row(quota: GPUQuota, *, quotas: Iterable[GPUQuota]) -> QuotaGuaranteeRow | None:
    """The guarantee of a quota; `quotas` are all that exist."""
    now, said = quota.status.guarantee, quota.spec.guaranteed
    if now is None:
        return None
    known = {each.metadata.name: each for each in (*quotas, quota)}
    return QuotaGuaranteeRow(
        says=None if said is None else said.gpus,
        gpus=now.gpus,
        used=now.used,
        lent=now.lent,
        borrowed=now.borrowed,
        waiting=now.waiting,
        memory=None if now.memory is None else QuotaMemoryRow(**msgspec.structs.asdict(now.memory)),
        would_give=borrowers_from(quota.metadata.name, quotas=known) if now.waiting else [],
    )


def _use(use: QuotaUse) -> QuotaUseRow:
    return QuotaUseRow(
        who=use.who,
        gpus=use.gpus,
        memory_mib=use.memory_mib,
        running_jobs=use.running_jobs,
        queued_jobs=use.queued_jobs,
        gpu_seconds=use.gpu_seconds,
    )


def _reservation(each: AdvanceReservation) -> QuotaReservationRow:
    return QuotaReservationRow(
        name=each.name, start_time=each.start_time, end_time=each.end_time, gpus=each.gpus, pool=each.pool
    )
