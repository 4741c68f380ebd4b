"""All GPUQuotas and their use: limits of jobs, the gate of a cycle, fair shares, statuses.

Everything is derived from objects of the API server; earlier usage is recorded in the quotas' own status.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob, KeptOnNode
from dovetail.api.gpuquota import GPUQuota, GPUQuotaStatus, QuotaForecast, QuotaReserve
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.formats.timestamps import moment
from dovetail.gpu.models import Model
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.pods.options.annotations import priority_in
from dovetail.pods.tenancy import Child, child_of
from dovetail.queue.limits import (
    device_memory,
    fair_share,
    guarantee_status,
    guarantees,
    limits,
    priorities,
    subjects,
)
from dovetail.queue.limits.device_memory import memory_of_claim, model_of_claim
from dovetail.queue.limits.limits import CounterKey, Takes, Terms
from dovetail.queue.limits.pools import in_pools, pools_of
from dovetail.queue.limits.quota_usage import Counted, spell_of, status_of
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.gate import Refused
from dovetail.queue.quota_tree.guarantee_windows import has_windows, in_force
from dovetail.queue.quota_tree.loans import Loans
from dovetail.queue.quota_tree.tree import Capacity, Tree, counts_memory, models_of

DAY_SECONDS: Final = 86_400.0
DEFAULT_HALF_LIFE_SECONDS: Final = 7 * DAY_SECONDS
# Cache size for what binds a subject: thousands of jobs belong to few users.
_REMEMBERED: Final = 4096
# How much earlier than necessary the GPUs of a window are given back: cycles, writes and kubelet take their time.
_SLACK_SECONDS: Final = 15.0
# The longest end of a job's pods that a window waits for.
_LONGEST_END_SECONDS: Final = 3600.0


class Quotas:
    """The GPUQuotas that exist, and the pods that hold GPUs outside GPUJobs."""

    def __init__(self, *, half_life_seconds: float = DEFAULT_HALF_LIFE_SECONDS) -> None:
        self._half_life_seconds = half_life_seconds
        self._quotas: dict[str, GPUQuota] = {}
        # The same with the guarantees that hold at the time of the last look, which are higher in windows.
        self._in_force: dict[str, GPUQuota] = {}
        self._times: tuple[datetime, ...] = ()
        # The longest time that the pods of a running job take to end, at the last look.
        self._longest_end_seconds = 0.0
        self._pods: dict[str, Counted] = {}
        self._departed: list[Counted] = []
        # What advance reservations keep free now, by quota; the queue sets it.
        self.kept: Mapping[str, list[KeptOnNode]] = {}
        # What is ready of each reserve, by quota; the queue sets it.
        self.reserves: Mapping[str, QuotaReserve] = {}
        self._levels: Mapping[fair_share.Account, float] = {}
        # Goes up whenever the answers of `pools_of` or `level_of` may change.
        self.version = 0
        self._guarantees = guarantees.Guarantees()
        # Recent use by account, in GPU seconds, at the last computation.
        self._recent: Mapping[fair_share.Account, float] = {}
        self._binding = lru_cache(_REMEMBERED)(self._find_binding)
        self._quota_of = lru_cache(_REMEMBERED)(self._find_quota)
        self._pools_of = lru_cache(_REMEMBERED)(self._find_pools)
        self._account_of = lru_cache(_REMEMBERED)(self._find_account)
        self._bound_of = lru_cache(_REMEMBERED)(self._find_bound)
        self._terms_of = lru_cache(_REMEMBERED)(self._find_terms)
        # The terms of each job at the last look, and what they were computed from.
        self._known_terms: dict[str, tuple[Counted, Terms]] = {}
        # The shares of each quota that has some: in a tree, each one has.
        self._shares: dict[str, int] = {}
        # When each of them last recorded usage.
        self._as_of: dict[str, datetime] = {}
        self._models: list[str] = []
        self._counts_memory = False
        # The cluster's GPUs, by whose sizes whole GPUs count as memory; None before the first look at them.
        self._ledger: Ledger | None = None
        self._cards: frozenset[Model] = frozenset()

    # --- changes -----------------------------------------------------------------------------------------------

    def update(self, quota: GPUQuota) -> bool:
        """Add or replace a quota; returns whether its spec is new."""
        known = self._quotas.get(quota.metadata.name)
        self._quotas[quota.metadata.name] = quota
        self._quotas = dict(sorted(self._quotas.items()))
        is_news = known is None or known.spec != quota.spec
        if is_news:
            self._others_bind()
        elif quota.metadata.name in self._shares:
            self._note_as_of(quota)
        return is_news

    def drop(self, name: str) -> None:
        """Remove a quota that was deleted, and what was computed for it."""
        self._quotas.pop(name, None)
        self._levels, self._recent = (
            {account: amount for account, amount in amounts.items() if account[0] != name}
            for amounts in (self._levels, self._recent)
        )
        self._others_bind()
        self._forget_recorded()

    def _forget_recorded(self) -> None:
        """Drop the deleted jobs whose use no quota is yet to record."""
        self._departed = [
            each for each in self._departed if each.end is None or self.wants_use_until(each.end, subject=each.subject)
        ]

    def _note_as_of(self, quota: GPUQuota) -> None:
        if quota.status.as_of is None:
            self._as_of.pop(quota.metadata.name, None)
        else:
            self._as_of[quota.metadata.name] = moment(quota.status.as_of)

    def _others_bind(self) -> None:
        """Clear what is cached about whom the quotas bind."""
        self.version += 1
        self._in_force = self._with_windows(self._times)
        self._models = models_of(self._quotas.values())
        self._counts_memory = counts_memory(self._quotas.values())
        self._shares = fair_share.shares_of(self._quotas.values())
        self._as_of = {}
        for name in self._shares:
            self._note_as_of(self._quotas[name])
        self._binding.cache_clear()
        self._quota_of.cache_clear()
        self._pools_of.cache_clear()
        self._account_of.cache_clear()
        self._bound_of.cache_clear()
        self._terms_of.cache_clear()
        self._known_terms.clear()

    def observe(self, ledger: Ledger, *, now: datetime, grace_seconds: float = 0.0) -> None:
        """Note which GPUs the cluster has, and which guarantees hold.

        Call it before jobs are counted: memory counts by the sizes of the GPUs. The windows of a quota with a reserve
        count before they begin: jobs that end for it have `grace_seconds`, and their pods as long as they need.
        """
        if any(has_windows(quota.spec) for quota in self._quotas.values()):
            lead = grace_seconds + min(self._longest_end_seconds, _LONGEST_END_SECONDS) + _SLACK_SECONDS
            self._times = now, now + timedelta(seconds=lead)
            before, self._in_force = self._in_force, self._with_windows(self._times)
            # Statuses change with every job.
            self.version += any(quota.spec != before[name].spec for name, quota in self._in_force.items())
        if not self._counts_memory:
            return
        self._ledger, cards = ledger, ledger.models()
        if cards != self._cards:
            self._cards = cards
            self.version += 1

    def pod_changed(self, pod: Pod, *, ledger: Ledger) -> None:
        """Update the use of a pod.

        A pod that holds devices counts for its namespace, unless it belongs to a GPUJob.
        """
        claim = ledger.claim(pod.metadata.uid)
        milli = 0 if claim is None else claim.milli
        if claim is None or not milli or not pod.spec.node_name:
            self._pods.pop(pod.metadata.uid, None)
            return
        start = pod.status.start_time
        counted = Counted(
            uid=pod.metadata.uid,
            subject=Subject(namespace=pod.metadata.namespace, project=pod.metadata.labels.get(names.LABEL_PROJECT, "")),
            milli=milli,
            start=None if start is None else moment(start),
            owner=child_of(pod),
        )
        self._pods[pod.metadata.uid] = _with_devices(counted, claim=claim, ledger=ledger)

    def devices_changed(self, node: str, *, ledger: Ledger) -> None:
        """Update what the pods of a node hold: its report may come after them, or name other devices."""
        for claim in ledger.claims_on(node):
            known = self._pods.get(claim.key)
            if known is not None:
                self._pods[claim.key] = _with_devices(known, claim=claim, ledger=ledger)

    def departed(self, counted: Counted) -> None:
        """Keep a deleted job whose use no quota has recorded yet."""
        self._departed.append(counted)

    def pod_gone(self, uid: str) -> None:
        """Remove a pod that was deleted."""
        self._pods.pop(uid, None)

    # --- what binds a job --------------------------------------------------------------------------------------

    @property
    def all(self) -> list[GPUQuota]:
        """The quotas, by name."""
        return list(self._quotas.values())

    @property
    def keep_for_a_time(self) -> bool:
        """Whether time alone changes what a quota keeps."""
        return any(
            quota.spec.advance_reservations or has_windows(quota.spec) or quota.spec.reserve
            for quota in self._quotas.values()
        )

    @property
    def reserve(self) -> bool:
        """Whether a quota has a reserve, which jobs may use whose pods end in time."""
        return any(quota.spec.reserve for quota in self._quotas.values())

    def _with_windows(self, times: tuple[datetime, ...]) -> dict[str, GPUQuota]:
        """The quotas with their guarantees at the first of these times; those with a reserve, at all of them."""
        return {
            name: in_force(quota, at=times if quota.spec.reserve is not None else times[:1])
            for name, quota in self._quotas.items()
        }

    def _find_binding(self, subject: Subject) -> list[GPUQuota]:
        return subjects.binding(self._quotas.values(), subject=subject)

    def _find_quota(self, subject: Subject) -> str | None:
        return guarantees.quota_of(list(self._in_force.values()), subject=subject)

    def names_of(self, subject: Subject) -> frozenset[str]:
        """The names of the quotas that apply to a subject."""
        return frozenset(quota.metadata.name for quota in self._binding(subject))

    def capacity(self, ledger: Ledger) -> Capacity:
        """The GPUs of the ledger's nodes, all and by the models that quotas name, and their memory if one names it."""
        return guarantees.capacity_of(ledger, models=self._models, memory=self._counts_memory)

    def memory_of(self, ask: Ask | None, *, workers: int, nodes: Mapping[str, int] | None = None) -> int:
        """The device memory in MiB that the workers of a job count with, on `nodes` as far as they are planned.

        0 while no quota names memory.
        """
        if not self._counts_memory or self._ledger is None:
            return 0
        return device_memory.memory_of(ask, workers=workers, ledger=self._ledger, cards=self._cards, nodes=nodes)

    def memory_held(self, claims: Iterable[Claim]) -> int:
        """The device memory in MiB that these claims hold; 0 while no quota names memory."""
        if not self._counts_memory or self._ledger is None:
            return 0
        return sum(memory_of_claim(claim, ledger=self._ledger) for claim in claims)

    def tree(self, *, capacity: Capacity | None = None) -> Tree:
        """The tree of the quotas, with guarantees as far as the cluster has the GPUs."""
        return self._guarantees.tree(self._in_force.values(), version=self.version, capacity=capacity)

    def pools_of(self, job: GPUJob) -> tuple[str, ...] | Refused:
        """The pools that the job may use, empty for any node.

        Or why it may not use the one it requests.
        """
        return self._pools_of(subject_of(job), job.spec.pool)

    def _find_pools(self, subject: Subject, asked: str | None) -> tuple[str, ...] | Refused:
        return pools_of(self._binding(subject), subject=subject, asked=asked)

    def rank_of(self, job: GPUJob) -> priorities.Rank:
        """The job's effective priority, and whether it may preempt others."""
        bound, may_preempt = self._bound_of(subject_of(job))
        return priorities.Rank(priority=priorities.within(job.spec.priority, bound=bound), may_preempt=may_preempt)

    def refusal_of(self, job: GPUJob) -> Refused | None:
        """Why its quotas refuse the job regardless of free devices: its priority or its pool."""
        bound, _ = self._bound_of(subject_of(job))
        beyond = None if bound is None else bound.refusal(job.spec.priority, field="spec.priority")
        pools = self.pools_of(job)
        return beyond or (pools if isinstance(pools, Refused) else None)

    def _find_bound(self, subject: Subject) -> tuple[priorities.Bound | None, bool]:
        quotas = self._binding(subject)
        return priorities.bound_of(quotas, subject=subject), priorities.may_preempt(quotas, subject=subject)

    def level_of(self, job: GPUJob) -> float:
        """How much of its share the job's account had used recently, at the last computation."""
        return fair_share.level_of(self._account_of(subject_of(job)), known=self._levels)

    def _find_account(self, subject: Subject) -> fair_share.Account | None:
        return fair_share.account_of(self._binding(subject), subject=subject, lowest=self._quota_of(subject))

    def gate(
        self, counted: Sequence[Counted], *, children: Container[Child] = (), capacity: Capacity | None = None
    ) -> limits.LimitGate | None:
        """The gate of a scheduling cycle, over all jobs that run or wait.

        None where nothing is limited. Guarantees are scaled to `capacity`.

        `children` are the batch Jobs, by namespace and UID, whose pods count as those of their GPUJobs: an owner
        reference of a pod is not proof enough.
        """
        known = self._known_terms
        # Each look counts thousands of jobs, of which few have changed: those are other objects.
        self._known_terms = {
            each.uid: before
            if (before := known.get(each.uid)) is not None and before[0] is each
            else (each, self._terms(each))
            for each in counted
        }
        terms = {uid: found for uid, (_, found) in self._known_terms.items() if found}
        loans = self._loans(counted, children=children, capacity=capacity)
        if not terms and loans is None:
            return None
        # Jobs that have ended are included for their usage but take nothing any more.
        running = [each.uid for each in counted if each.uid in terms and not each.queued and each.end is None]
        return limits.LimitGate(terms, running=running, used=self._used_by_pods(children), loans=loans)

    def _loans(
        self, counted: Sequence[Counted], *, children: Container[Child], capacity: Capacity | None
    ) -> Loans | None:
        tree = self.tree(capacity=capacity)
        if not tree and all(each.preemptible for each in counted):
            return None
        self._longest_end_seconds = max((each.leave_seconds or 0.0 for each in counted if not each.queued), default=0.0)
        recent = guarantees.recent_shares(self._recent, tree=tree, half_life_seconds=self._half_life_seconds)
        pods = self._alone(children)
        return guarantees.loans_of(tree, counted=counted, pods=pods, quota_of=self._quota_of, recent=recent)

    def wants_use_until(self, end: datetime, *, subject: Subject) -> bool:
        """Whether a quota is yet to record the usage of a job of this subject that ended then."""
        account = self._account_of(subject)
        if account is None:
            return False
        as_of = self._as_of.get(account[0])
        return as_of is None or as_of < end

    def _terms(self, counted: Counted) -> Terms:
        least = counted.least if counted.queued else None
        group, most, refused = counted.group, counted.max_concurrent, counted.refused
        takes = counted.milli, counted.memory_mib, counted.model
        return self._terms_of(counted.subject, takes, counted.workers, least, group, most, refused)

    def _find_terms(
        self,
        subject: Subject,
        takes: tuple[int, int, str],
        workers: int,
        least: int | None,
        group: str,
        most: int | None,
        refused: Refused | None,
    ) -> Terms:
        jobs = int(subject.user is not None)
        taken = Takes(milli=takes[0], memory_mib=takes[1], model=takes[2])
        found = limits.limits_of(
            self._binding(subject), subject=subject, takes=taken, jobs=jobs, workers=workers, least=least
        )
        start = found.start
        if group:
            start = (*start, limits.group_limit(subject.namespace, group=group, most=most))
        return Terms(start=start, queue=found.queue, refused=refused)

    def _used_by_pods(self, children: Container[Child]) -> Counter[CounterKey]:
        used: Counter[CounterKey] = Counter()
        for pod in self._alone(children):
            takes = Takes(milli=pod.milli, memory_mib=pod.memory_mib, model=pod.model)
            for limit in limits.limits_of(self._binding(pod.subject), subject=pod.subject, takes=takes, jobs=0).start:
                used[limit.counter] += limit.need
        return used

    def _alone(self, children: Container[Child]) -> list[Counted]:
        """The pods that hold devices and belong to no GPUJob."""
        found = (pod for pod in self._pods.values() if pod.owner not in children)
        return list(found) if self._counts_memory else [replace(pod, memory_mib=0) for pod in found]

    # --- what was used -----------------------------------------------------------------------------------------

    def compute_statuses(
        self,
        counted: Sequence[Counted],
        *,
        now: datetime,
        children: Container[Child] = (),
        capacity: Capacity | None = None,
    ) -> dict[str, GPUQuotaStatus]:
        """Compute each quota's status, by name, and update the levels of accounts.

        Guarantees are scaled to `capacity`.
        """
        self._forget_recorded()
        everyone = [*counted, *self._alone(children), *self._departed]
        used = self._recent = self._usage(everyone, now=now)
        levels = fair_share.levels(used, shares=self._shares)
        if levels != self._levels:
            self._levels = levels
            self.version += 1
        self._models = models_of(self._quotas.values())
        whose: dict[str, list[Counted]] = {}
        for each in everyone:
            for quota in self._binding(each.subject):
                whose.setdefault(quota.metadata.name, []).append(each)
        statuses = {
            name: msgspec.structs.replace(
                status_of(quota, everyone=whose.get(name, ()), used=used, now=now, has_shares=name in self._shares),
                kept=self.kept.get(name, []),
                reserve=self.reserves.get(name),
                forecast=_forecast(quota, everyone=whose.get(name, ()), now=now),
            )
            for name, quota in self._quotas.items()
        }
        loans = self._loans(counted, children=children, capacity=capacity)
        return statuses if loans is None else self._with_guarantees(statuses, loans=loans, counted=counted, now=now)

    def _with_guarantees(
        self, statuses: Mapping[str, GPUQuotaStatus], *, loans: Loans, counted: Iterable[Counted], now: datetime
    ) -> dict[str, GPUQuotaStatus]:
        lent = guarantee_status.lent(loans)
        waiting = guarantee_status.waiting(loans, counted=counted)
        return {
            name: msgspec.structs.replace(
                status,
                guarantee=guarantee_status.guarantee_of(name, loans=loans, lent=lent, waiting=waiting),
                conditions=guarantee_status.conditions_of(self._quotas[name], tree=loans.tree, now=now),
            )
            for name, status in statuses.items()
        }

    def _usage(self, counted: Iterable[Counted], *, now: datetime) -> dict[fair_share.Account, float]:
        if not self._shares:
            return {}
        noted = {(name, use.who): use.gpu_seconds for name in self._as_of for use in self._quotas[name].status.uses}
        spells = [
            spell for each in counted if (spell := spell_of(each, account=self._account_of(each.subject))) is not None
        ]
        return fair_share.usage(
            noted, spells=spells, as_of=self._as_of, now=now, half_life_seconds=self._half_life_seconds
        )


def _with_devices(pod: Counted, *, claim: Claim, ledger: Ledger) -> Counted:
    """The pod with the memory and the model of what it holds."""
    return replace(pod, memory_mib=memory_of_claim(claim, ledger=ledger), model=model_of_claim(claim, ledger=ledger))


def subject_of(job: GPUJob) -> Subject:
    """The requester of the job's GPUs."""
    meta = job.metadata
    return _subject(meta.namespace, meta.annotations.get(names.USER, ""), meta.labels.get(names.LABEL_PROJECT, ""))


@lru_cache(_REMEMBERED)
def _subject(namespace: str, user: str, project: str) -> Subject:
    return Subject(namespace=namespace, user=user, project=project)


def weight_refusal(annotations: Mapping[str, str], *, ask: Ask, bound: priorities.Bound | None) -> Refused | None:
    """Why a pod outside GPUJobs may not have the time-slice weight of its annotation.

    None without the annotation: it gets the weight that it may have. Raises `RequestError`.
    """
    if bound is None or ask.gpu is None or ask.resource:
        return None
    weight = priority_in(annotations)
    return None if weight is None else bound.refusal(weight, field=f"annotation {names.PRIORITY}")


def spec_in_pools(spec: Mapping[str, Any], *, pools: tuple[str, ...] | Refused) -> Mapping[str, Any]:
    """The pod's spec for nodes of these pools.

    Unchanged where the job may not use the pool it requests.
    """
    return spec if isinstance(pools, Refused) else in_pools(spec, pools=pools)


def _forecast(quota: GPUQuota, *, everyone: Iterable[Counted], now: datetime) -> QuotaForecast | None:
    """The forecast of what the jobs of a quota request, with what they use and wait for now; None without one."""
    if quota.spec.forecast is None:
        return None
    from dovetail.queue.quota_tree import demand_forecast  # noqa: PLC0415 - most clusters have no forecast

    milli = sum(each.milli for each in everyone if each.end is None)
    return demand_forecast.observed(
        quota.status.forecast, said=quota.spec.forecast, demand_gpus=milli / WHOLE_MILLI, now=now
    )
