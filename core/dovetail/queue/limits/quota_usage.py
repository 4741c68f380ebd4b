"""What jobs and pods take of GPUQuotas, and what a quota's status says of it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from dovetail.api.gpuquota import GPUQuota, GPUQuotaStatus, QuotaUse
from dovetail.formats.timestamps import timestamp
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.pods.tenancy import Child
from dovetail.queue.limits import fair_share, limits
from dovetail.queue.limits.limits import Subject
from dovetail.queue.model.gate import Refused

_MOST_USES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What one job or pod takes: `milli` thousandths of GPUs from `start` on. It is `queued` while it waits.

    One that waits and may start with no more than `least` of its `workers` would take less then.
    """

    uid: str
    subject: Subject
    milli: int
    start: datetime | None = None
    end: datetime | None = None
    queued: bool = False
    group: str = ""
    max_concurrent: int | None = None
    refused: Refused | None = None
    workers: int = 1
    least: int | None = None
    # Of a pod: the batch Job of a GPUJob that it proves to be of.
    owner: Child | None = None

    @property
    def is_job(self) -> bool:
        """Whether it is a GPUJob."""
        return self.subject.user is not None


def spell_of(counted: Counted, quotas: Iterable[GPUQuota]) -> fair_share.Spell | None:
    """For how long it has held what, on whose account; None where no quota with shares counts it."""
    if counted.start is None or counted.queued or not counted.milli:
        return None
    account = fair_share.account_of(quotas, counted.subject)
    if account is None:
        return None
    return fair_share.Spell(account=account, gpus=counted.milli / WHOLE_MILLI, start=counted.start, end=counted.end)


def status_of(
    quota: GPUQuota, everyone: Iterable[Counted], *, used: Mapping[fair_share.Account, float], now: datetime
) -> GPUQuotaStatus:
    """What the quota\'s status should say, of `everyone` whom quotas may bind."""
    uses = {who: QuotaUse(who=who, gpu_seconds=round(amount, 3)) for (name, who), amount in used.items()
            if name == quota.metadata.name}  # fmt: skip
    total = QuotaUse(who="")
    for each in everyone:
        if each.end is not None or not limits.binds(quota.spec, each.subject):
            continue
        total = _added(total, each)
        who = limits.whom(quota.spec, each.subject)
        if who is not None:
            uses[who] = _added(uses.get(who, QuotaUse(who=who)), each)
    listed = sorted(uses.values(), key=lambda use: (-use.gpus, -use.gpu_seconds, -use.queued_jobs, use.who))
    return GPUQuotaStatus(
        observed_generation=quota.metadata.generation,
        gpus=total.gpus,
        running_jobs=total.running_jobs,
        queued_jobs=total.queued_jobs,
        as_of=timestamp(now) if quota.spec.shares is not None else None,
        uses=listed[:_MOST_USES],
    )


def _added(use: QuotaUse, counted: Counted) -> QuotaUse:
    queued = int(counted.queued)
    running = int(counted.is_job and not queued)
    return msgspec.structs.replace(
        use,
        gpus=use.gpus + (0 if queued else counted.milli / WHOLE_MILLI),
        running_jobs=use.running_jobs + running,
        queued_jobs=use.queued_jobs + queued,
    )
