"""What jobs and pods take of GPUQuotas, and the status of a quota. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from dovetail.api.gpuquota import GPUQuota, GPUQuotaStatus, QuotaUse
from dovetail.formats.timestamps import timestamp
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.pods.tenancy import Child
from dovetail.queue.limits import fair_share, subjects
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.gate import Refused

_MOST_USES: Final = 1024


class Kind:
    """The key of jobs that take the same of the same quotas. Equal kinds are one object."""

    __slots__ = ("__weakref__",)


_KINDS: Final[WeakValueDictionary[object, Kind]] = WeakValueDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What one job or pod takes of quotas.

    - `uid`: UID of the GPUJob or pod
    - `subject`: the namespace and user it counts for
    - `milli`: thousandths of GPUs that it requests or holds
    - `memory_mib`: device memory that it requests or holds, in MiB; 0 while no quota names memory
    - `start`: when it started; None before
    - `end`: when it ended; None before
    - `queued`: whether it waits
    - `group`: name of its group; empty without one
    - `max_concurrent`: the most jobs of the group that may run with it; None for no limit
    - `refused`: why it may not start regardless of numbers
    - `workers`: number of workers
    - `least`: smallest number of workers that it may start with; None for all of them
    - `model`: the one model that it requests, or that a pod holds; empty for several or any
    - `preemptible`: whether it may be ended for others
    - `leave_seconds`: how long its pods take to end; None if it may not be preempted, or while no quota has a reserve
    - `owner`: for a pod, the batch Job of a GPUJob that it claims to belong to
    """

    uid: str
    subject: Subject
    milli: int
    memory_mib: int = 0
    start: datetime | None = None
    end: datetime | None = None
    queued: bool = False
    group: str = ""
    max_concurrent: int | None = None
    refused: Refused | None = None
    workers: int = 1
    least: int | None = None
    model: str = ""
    preemptible: bool = True
    leave_seconds: float | None = None
    owner: Child | None = None
    _kind: Kind | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def kind(self) -> Kind:
        """What it takes, and of which quotas: each look compares thousands of jobs, of which most stay the same."""
        if self._kind is None:
            takes = self.milli, self.memory_mib, self.model, self.workers, self.least
            ends = self.preemptible, self.leave_seconds
            object.__setattr__(self, "_kind", _KINDS.setdefault((self.subject, *takes, *ends), Kind()))
        assert self._kind is not None, "it was just set"
        return self._kind

    @property
    def is_job(self) -> bool:
        """Whether it is a GPUJob rather than a pod."""
        return self.subject.user is not None


def spell_of(counted: Counted, *, account: fair_share.Account | None) -> fair_share.Spell | None:
    """What it has held, from when until when, on its account.

    None where no quota with shares counts it.
    """
    if account is None or counted.start is None or counted.queued or not counted.milli:
        return None
    return fair_share.Spell(account=account, gpus=counted.milli / WHOLE_MILLI, start=counted.start, end=counted.end)


def status_of(
    quota: GPUQuota,
    *,
    everyone: Iterable[Counted],
    used: Mapping[fair_share.Account, float],
    now: datetime,
    has_shares: bool,
) -> GPUQuotaStatus:
    """The quota's status, from `everyone`: all jobs and pods that it applies to."""
    uses = {who: QuotaUse(who=who, gpu_seconds=round(amount, 3)) for (name, who), amount in used.items()
            if name == quota.metadata.name}  # fmt: skip
    total = QuotaUse(who="")
    for each in everyone:
        if each.end is not None:
            continue
        total = _added(total, counted=each)
        who = subjects.subject_name(quota.spec, subject=each.subject)
        if who is not None:
            uses[who] = _added(uses.get(who, QuotaUse(who=who)), counted=each)
    listed = sorted(uses.values(), key=lambda use: (-use.gpus, -use.gpu_seconds, -use.queued_jobs, use.who))
    return GPUQuotaStatus(
        observed_generation=quota.metadata.generation,
        gpus=total.gpus,
        memory_mib=total.memory_mib,
        running_jobs=total.running_jobs,
        queued_jobs=total.queued_jobs,
        as_of=timestamp(now) if has_shares else None,
        uses=listed[:_MOST_USES],
    )


def _added(use: QuotaUse, *, counted: Counted) -> QuotaUse:
    queued = int(counted.queued)
    running = int(counted.is_job and not queued)
    return msgspec.structs.replace(
        use,
        gpus=use.gpus + (0 if queued else counted.milli / WHOLE_MILLI),
        memory_mib=use.memory_mib + (0 if queued else counted.memory_mib),
        running_jobs=use.running_jobs + running,
        queued_jobs=use.queued_jobs + queued,
    )
