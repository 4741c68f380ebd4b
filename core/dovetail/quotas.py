"""GPUQuotas over what jobs and pods take: the terms of jobs, the gate of a look, fair shares, and each quota's status.

All of it is derived from objects of the API server; what was used before is noted in the quotas' own status.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.gpujob import GPUJob, KeptOnNode
from dovetail.api.gpuquota import GPUQuota, GPUQuotaStatus, QuotaUse
from dovetail.engine.ledger import Ledger
from dovetail.kube.objects import Pod
from dovetail.moments import moment, timestamp
from dovetail.queue import fairshare, limits
from dovetail.queue.gate import Refused
from dovetail.queue.limits import CounterKey, Subject, Terms
from dovetail.queue.pools import in_pools, pools_of
from dovetail.requests import WHOLE_MILLI

DAY_SECONDS: Final = 86_400.0
DEFAULT_HALF_LIFE_SECONDS: Final = 7 * DAY_SECONDS
_MOST_USES: Final = 1024
# Whoever asked last is remembered with what binds them: thousands of jobs are a few users'.
_REMEMBERED: Final = 4096


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
    # Of a pod: the batch Job that it says it is of.
    owner: str = ""

    @property
    def is_job(self) -> bool:
        """Whether it is a GPUJob."""
        return self.subject.user is not None


class Quotas:
    """The GPUQuotas that there are, and the pods that hold GPUs without a GPUJob."""

    def __init__(self, *, half_life_seconds: float = DEFAULT_HALF_LIFE_SECONDS) -> None:
        self._half_life_seconds = half_life_seconds
        self._quotas: dict[str, GPUQuota] = {}
        self._pods: dict[str, Counted] = {}
        self._departed: list[Counted] = []
        # What is kept for a time and free now, by quota: the queue's finding.
        self.kept: dict[str, list[KeptOnNode]] = {}
        self._levels: Mapping[fairshare.Account, float] = {}
        # Goes up whenever `pools_of` or `level_of` may answer anew.
        self.version = 0
        self._pools_of = lru_cache(_REMEMBERED)(self._find_pools)
        self._account_of = lru_cache(_REMEMBERED)(self._find_account)
        self._terms_of = lru_cache(_REMEMBERED)(self._find_terms)
        # Until when each quota with shares has noted what was used; None where it has noted nothing yet.
        self._as_of: list[datetime | None] = []

    # --- changes -----------------------------------------------------------------------------------------------

    def put(self, quota: GPUQuota) -> bool:
        """A quota is there; whether its spec is news."""
        known = self._quotas.get(quota.metadata.name)
        self._quotas[quota.metadata.name] = quota
        self._quotas = dict(sorted(self._quotas.items()))
        self._note_as_of()
        is_news = known is None or known.spec != quota.spec
        if is_news:
            self._others_bind()
        return is_news

    def drop(self, name: str) -> None:
        """A quota is gone."""
        self._quotas.pop(name, None)
        self._note_as_of()
        self._others_bind()

    def _note_as_of(self) -> None:
        sharing = [quota.status for quota in self._quotas.values() if quota.spec.shares is not None]
        self._as_of = [None if status.as_of is None else moment(status.as_of) for status in sharing]

    def _others_bind(self) -> None:
        """What is remembered of whom the quotas bind does not hold any more."""
        self.version += 1
        self._pools_of.cache_clear()
        self._account_of.cache_clear()
        self._terms_of.cache_clear()

    def pod_changed(self, pod: Pod, *, ledger: Ledger) -> None:
        """A pod has changed: one that holds devices counts for its namespace, unless it is a GPUJob's."""
        claim = ledger.claim(pod.metadata.uid)
        milli = 0
        if claim is not None:
            milli = sum(device.share_milli for device in claim.devices) + claim.unnamed * WHOLE_MILLI
        if not milli or not pod.spec.node_name:
            self._pods.pop(pod.metadata.uid, None)
            return
        start = pod.status.start_time
        self._pods[pod.metadata.uid] = Counted(
            uid=pod.metadata.uid,
            subject=Subject(namespace=pod.metadata.namespace),
            milli=milli,
            start=None if start is None else moment(start),
            owner=next((owner.uid for owner in pod.metadata.owner_references if owner.controller), ""),
        )

    def departed(self, counted: Counted) -> None:
        """A job is deleted whose use nobody has noted yet."""
        self._departed.append(counted)

    def pod_gone(self, uid: str) -> None:
        """A pod is no more."""
        self._pods.pop(uid, None)

    # --- what binds a job --------------------------------------------------------------------------------------

    @property
    def all(self) -> list[GPUQuota]:
        """The quotas by name."""
        return list(self._quotas.values())

    @property
    def keep_for_a_time(self) -> bool:
        """Whether time alone changes what a quota keeps."""
        return any(quota.spec.reservations for quota in self._quotas.values())

    def pools_of(self, job: GPUJob) -> tuple[str, ...] | Refused:
        """The pools whose nodes the job may use, none for any node; or why it may not use the one it asks for."""
        return self._pools_of(subject_of(job), job.spec.pool)

    def _find_pools(self, subject: Subject, asked: str | None) -> tuple[str, ...] | Refused:
        return pools_of(self._quotas.values(), subject, asked=asked)

    def level_of(self, job: GPUJob) -> float:
        """How much of its due the job's account has used of late, as far as was last reckoned."""
        return fairshare.level_of(self._account_of(subject_of(job)), known=self._levels)

    def _find_account(self, subject: Subject) -> fairshare.Account | None:
        return fairshare.account_of(self._quotas.values(), subject)

    def gate(self, counted: Sequence[Counted], *, children: Container[str] = ()) -> limits.LimitGate | None:
        """The gate of a look at the queue, over all jobs that run or wait; None where nothing is limited.

        `children` are the UIDs of the batch Jobs whose pods count as their GPUJobs: what a pod says is not enough.
        """
        terms = {each.uid: found for each in counted if (found := self._terms(each))}
        if not terms:
            return None
        # One that has ended is among them for what it used, and takes nothing any more.
        running = [each.uid for each in counted if each.uid in terms and not each.queued and each.end is None]
        return limits.LimitGate(terms, running=running, used=self._used_by_pods(children))

    def wants_use_until(self, end: datetime) -> bool:
        """Whether what ended then is still to be added to what a quota notes as used."""
        return any(as_of is None or as_of < end for as_of in self._as_of)

    def _terms(self, counted: Counted) -> Terms:
        least = counted.least if counted.queued else None
        group, most, refused = counted.group, counted.max_concurrent, counted.refused
        return self._terms_of(counted.subject, counted.milli, counted.workers, least, group, most, refused)

    def _find_terms(
        self,
        subject: Subject,
        milli: int,
        workers: int,
        least: int | None,
        group: str,
        most: int | None,
        refused: Refused | None,
    ) -> Terms:
        jobs = int(subject.user is not None)
        found = limits.limits_of(self._quotas.values(), subject, milli=milli, jobs=jobs, workers=workers, least=least)
        start = found.start
        if group:
            start = (*start, limits.group_limit(subject.namespace, group, most=most))
        return Terms(start=start, queue=found.queue, refused=refused)

    def _used_by_pods(self, children: Container[str]) -> Counter[CounterKey]:
        used: Counter[CounterKey] = Counter()
        for pod in self._alone(children):
            for limit in limits.limits_of(self._quotas.values(), pod.subject, milli=pod.milli, jobs=0).start:
                used[limit.counter] += limit.need
        return used

    def _alone(self, children: Container[str]) -> list[Counted]:
        """The pods that hold devices and are no GPUJob's."""
        return [pod for pod in self._pods.values() if pod.owner not in children]

    # --- what was used -----------------------------------------------------------------------------------------

    def reckon(
        self, counted: Iterable[Counted], *, now: datetime, children: Container[str] = ()
    ) -> dict[str, GPUQuotaStatus]:
        """What each quota's status should say, by name; the levels of accounts follow what was used."""
        self._departed = [each for each in self._departed if each.end is None or self.wants_use_until(each.end)]
        everyone = [*counted, *self._alone(children), *self._departed]
        used = self._usage(everyone, now=now)
        shares = {name: quota.spec.shares for name, quota in self._quotas.items() if quota.spec.shares}
        levels = fairshare.levels(used, shares=shares)
        if levels != self._levels:
            self._levels = levels
            self.version += 1
        return {
            name: msgspec.structs.replace(_status(quota, everyone, used=used, now=now), kept=self.kept.get(name, []))
            for name, quota in self._quotas.items()
        }

    def _usage(self, counted: Iterable[Counted], *, now: datetime) -> dict[fairshare.Account, float]:
        sharing = [quota for quota in self._quotas.values() if quota.spec.shares is not None]
        if not sharing:
            return {}
        noted = {(each.metadata.name, use.who): use.gpu_seconds for each in sharing for use in each.status.uses}
        as_of = {each.metadata.name: moment(each.status.as_of) for each in sharing if each.status.as_of}
        noted = {account: amount for account, amount in noted.items() if account[0] in as_of}
        spells = [spell for each in counted if (spell := _spell(each, sharing)) is not None]
        return fairshare.usage(noted, spells, as_of=as_of, now=now, half_life_seconds=self._half_life_seconds)


def subject_of(job: GPUJob) -> Subject:
    """Who asks for the job's GPUs."""
    return _subject(job.metadata.namespace, job.metadata.annotations.get(names.USER, ""))


@lru_cache(_REMEMBERED)
def _subject(namespace: str, user: str) -> Subject:
    return Subject(namespace=namespace, user=user)


def spec_in_pools(spec: Mapping[str, Any], pools: tuple[str, ...] | Refused) -> Mapping[str, Any]:
    """The pod's spec for nodes of these pools; as it is where the job may not use the one it asks for."""
    return spec if isinstance(pools, Refused) else in_pools(spec, pools)


def _spell(counted: Counted, quotas: Iterable[GPUQuota]) -> fairshare.Spell | None:
    if counted.start is None or counted.queued or not counted.milli:
        return None
    account = fairshare.account_of(quotas, counted.subject)
    if account is None:
        return None
    return fairshare.Spell(account=account, gpus=counted.milli / WHOLE_MILLI, start=counted.start, end=counted.end)


def _status(
    quota: GPUQuota, everyone: Iterable[Counted], *, used: Mapping[fairshare.Account, float], now: datetime
) -> GPUQuotaStatus:
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
