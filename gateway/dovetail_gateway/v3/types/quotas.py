"""GPUQuotas and their use."""

from dovetail_gateway.v3.types.common import Row


class QuotaUse(Row, frozen=True, kw_only=True):
    """What a namespace or user uses of a quota."""

    who: str
    gpus: float
    memory_mib: int
    running_jobs: int
    queued_jobs: int
    gpu_seconds: float


class QuotaMemory(Row, frozen=True, kw_only=True):
    """What a quota guarantees, lends and borrows of device memory, in MiB."""

    guaranteed_mib: int
    used_mib: int
    lent_mib: int
    borrowed_mib: int
    waiting_mib: int


class QuotaBorrower(Row, frozen=True, kw_only=True):
    """A quota that would be asked for GPUs that it borrows, and for how many at most."""

    name: str
    gpus: float


class QuotaGuarantee(Row, frozen=True, kw_only=True):
    """What a quota guarantees, lends and borrows, in GPUs.

    `waiting` is what its waiting jobs request within the guarantee. `memory` is null where no quota names memory.
    `would_give` names, while jobs wait within the guarantee, the quotas that would be asked for it: those that you may
    see.
    """

    gpus: float
    used: float
    lent: float
    borrowed: float
    waiting: float
    memory: QuotaMemory | None
    would_give: list[QuotaBorrower]


class QuotaProblem(Row, frozen=True, kw_only=True):
    """A contradiction in the tree of quotas, or why less is guaranteed than a quota says."""

    reason: str
    message: str


class QuotaRow(Row, frozen=True, kw_only=True):
    """A quota that applies to a namespace you may list.

    `otherNamespaces` and `otherUsers` count those that you may not list. `projects` are those of jobs that you may
    list.
    """

    name: str
    per: str
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
    max_priority: int | None
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
    """The quotas."""

    items: list[QuotaRow]
