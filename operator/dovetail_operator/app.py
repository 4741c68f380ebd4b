"""The operator as a whole: every part, and what it is built from."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from prometheus_client import CollectorRegistry

from dovetail.api.builtin import Pod, is_terminated
from dovetail.cluster.view import build_view
from dovetail.engine.score.mix_record import QUEUE_CONFIGMAP
from dovetail.jobs.guests.registry import KINDS
from dovetail.jobs.memory_use import Learning
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership
from dovetail.kube.queries.node_pools import watch_node_pools
from dovetail.kube.retry import JITTER
from dovetail.kube.workqueue import WorkQueue
from dovetail.process import heap
from dovetail.process.mix_learning import MixLearning
from dovetail.queue.limits.quotas import Quotas
from dovetail_operator.controller.controller import RUSH, Controller, build_controller
from dovetail_operator.controller.informers import Informers
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.events.recorder import JobEvents
from dovetail_operator.metrics import make_counters, register_collectors
from dovetail_operator.optional import OptionalNotifications, OptionalReshaping, load_history
from dovetail_operator.options import Options
from dovetail_operator.queue.quota_status import QuotaStatusWriter
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.state import State, build_state
from dovetail_operator.watchers.audit import AuditWatch
from dovetail_operator.watchers.build import build_watchers
from dovetail_operator.watchers.guests.keeper import GuestKeeper
from dovetail_operator.watchers.node_tenants import NodeTenants
from dovetail_operator.watchers.vendor_quotas import VendorQuotas
from dovetail_operator.watchers.waiting_pods import WaitingPods
from dovetail_operator.writes.device_indexes import DeviceIndexes
from dovetail_operator.writes.estimate_store import LastingMisses, LastingMoves
from dovetail_operator.writes.job_numbers import Numbers
from dovetail_operator.writes.unreadable_jobs import UnreadableJobs


class Part(Protocol):
    """A part of the operator that runs next to the others."""

    async def run(self) -> None:
        """Run until cancelled."""


class Operator:
    """The informers, the parts that need no complete caches, and the parts that do."""

    def __init__(
        self,
        informers: Informers,
        *,
        early: Sequence[Part],
        parts: Sequence[Part],
        listed: Callable[[], Awaitable[None]],
        configure: Callable[[Options], None],
    ) -> None:
        """`listed` returns once the early parts have listed what the others need.

        `configure` applies the values of changed options that count at once.
        """
        self.informers = informers
        self.configure = configure
        self._early = early
        self._parts = parts
        self._listed = listed

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for part in (self.informers, *self._early):
                tasks.create_task(part.run())
            await self.informers.synced()
            await self._listed()
            heap.keep_for_good()
            for part in self._parts:
                tasks.create_task(part.run())


def build_operator(client: Client, *, options: Options, office: Leadership, registry: CollectorRegistry) -> Operator:
    """Build an operator. `client` is open as long as it runs, and `office` is its own candidacy.

    Raises `ConfigError` for a database that it cannot use.
    """
    rng = JITTER
    dues, queue = Dues(), WorkQueue()
    state = _build_state(options, records=dues if options.keeps_history else None)
    informers = Informers(client, transform=state.store.lean)
    events = JobEvents(
        client,
        is_busy=lambda: queue.load >= RUSH or state.decisions.is_rush,
        registry=registry,
        now=_now,
        rng=rng,
    )
    guests = GuestKeeper(client, state=state, kinds=KINDS, post=events.post, pods=informers.pods, rng=rng, now=_now)
    controller = build_controller(
        client,
        state=state,
        queue=queue,
        numbers=Numbers(client, namespace=options.namespace),
        counters=make_counters(registry),
        post=events.post,
        now=_now,
        rng=rng,
        term=lambda: office.term,
        mps_directory=options.mps_directory,
        delivery=options.delivery,
        endings=options.endings,
        pods=informers.pods,
        guests=guests,
    )
    unreadable = UnreadableJobs(
        client,
        jobs=state.store.jobs,
        child=state.store.child_named,
        found=controller.changes.job_unreadable,
        post=events.post,
        rng=rng,
    )
    # Early: the first cycle continues the requests of an earlier operator on these pools.
    node_pools = watch_node_pools(client, on_event=state.growing.node_pool_event)
    state.growing.on_change(controller.pools_changed)
    tenants = _build_tenants(client, options=options, state=state, informers=informers, rng=rng)
    waiting = WaitingPods(client, state=state, nodes=informers.nodes, post=events.post, rng=rng)
    informers.connect(
        controller.changes, on_unreadable_job=unreadable.report, tenants=tenants, guests=guests, waiting=waiting
    )
    register_collectors(registry, state=state, tenants=tenants, office=office, now=_now)
    parts: list[Part] = [
        controller,
        guests,
        events,
        *_build_watchers(client, options=options, state=state, changed=queue.add, post=events.post, rng=rng),
        *_build_records(client, options=options, state=state, dues=dues, post=events.post, registry=registry),
        *_build_learning(client, options=options, state=state, pods=informers.pods.values),
        DeviceIndexes(client, gpunodes=informers.gpunodes.values, namespace=options.namespace),
        _build_audits(client, options=options, state=state, informers=informers, registry=registry),
        waiting,
    ]
    if tenants is not None:
        parts.append(tenants)
    return Operator(
        informers,
        early=[unreadable, node_pools, guests.watches],
        listed=guests.watches.settled,
        parts=parts,
        configure=partial(_configure, state=state, controller=controller),
    )


def _build_watchers(
    client: Client,
    *,
    options: Options,
    state: State,
    changed: Callable[[str], None],
    post: Callable[[Announcement], None],
    rng: random.Random,
) -> list[Part]:
    """What follows jobs, devices and quotas, and writes what that means for them."""
    return [
        *build_watchers(client, state=state, idle=options.idle, changed=changed, post=post, now=_now, rng=rng),
        OptionalReshaping(client, options=options, state=state, changed=changed, post=post, now=_now),
        QuotaStatusWriter(client, state=state, now=_now),
        VendorQuotas(client, vendors=options.vendors, post=post, rng=rng),
    ]


def _build_records(
    client: Client,
    *,
    options: Options,
    state: State,
    dues: Dues,
    post: Callable[[Announcement], None],
    registry: CollectorRegistry,
) -> list[Part]:
    """What outlives a job: its record in the history, and the notifications of it."""
    history = load_history(client, options=options, state=state, dues=dues, registry=registry, now=_now, rng=JITTER)
    notifications = OptionalNotifications(client, options=options, post=post, registry=registry, rng=JITTER)
    state.store.follow(notifications)
    return [history, notifications]


def _build_learning(client: Client, *, options: Options, state: State, pods: Callable[[], Iterable[Pod]]) -> list[Part]:
    """What is kept beyond a restart: errors of estimates, moves of deleted jobs, the mix of jobs and other pods."""
    moves = LastingMoves(client, moves=state.moves_of_deleted, namespace=options.namespace, now=_now)
    misses = LastingMisses(client, misses=state.store.expectations.misses, namespace=options.namespace)
    mix = MixLearning(
        client,
        term=state.mix.term,
        name=QUEUE_CONFIGMAP,
        namespace=options.namespace,
        count_present=partial(_count_present, state, pods=pods),
        clock=time.monotonic,
    )
    return [misses, moves, mix]


def _build_audits(
    client: Client, *, options: Options, state: State, informers: Informers, registry: CollectorRegistry
) -> AuditWatch:
    return AuditWatch(
        client,
        nodes=informers.nodes.values,
        gpunodes=informers.gpunodes.values,
        pods=informers.pods.values,
        jobs=state.store.jobs.values,
        rules=options.audit_rules,
        registry=registry,
        now=_now,
    )


def _configure(options: Options, *, state: State, controller: Controller) -> None:
    state.configure(
        rankings=options.rankings,
        limits=options.limits,
        run_times=options.run_times,
        preemption=options.preemption,
        cpu_fallback=options.cpu_fallback,
        growing=options.growing,
        drain=options.drain,
        moves=options.moves,
        reshape=options.reshape,
        levels=options.levels,
    )
    controller.rules_changed()


def _build_state(options: Options, *, records: Dues | None) -> State:
    view = build_view(
        limits=options.limits,
        smoothing_seconds=options.smoothing_seconds,
        max_age_seconds=options.measurement_max_age_seconds,
        vendors=options.vendors,
        absent_seconds=options.slices_absent_seconds,
        clock=time.monotonic,
    )
    return build_state(
        view,
        rankings=options.rankings,
        learning=Learning(default=options.memory_strategy, look_seconds=options.look_seconds),
        run_times=options.run_times,
        quotas=Quotas(half_life_seconds=options.half_life_seconds),
        preemption=options.preemption,
        endings=options.endings,
        job_limits=options.job_limits,
        records=records,
        leaves_bad_cards=options.leaves_bad_cards,
        fragmentation=options.fragmentation,
        cpu_fallback=options.cpu_fallback,
        growing=options.growing,
        drain=options.drain,
        moves=options.moves,
        reshape=options.reshape,
        levels=options.levels,
    )


def _build_tenants(
    client: Client, *, options: Options, state: State, informers: Informers, rng: random.Random
) -> NodeTenants | None:
    """The writer of GPUNodeTenants; None if agents read pods themselves."""
    if not options.writes_tenants:
        return None
    return NodeTenants(
        client,
        pods=informers.pods.values,
        vendors=options.vendors,
        rng=rng,
        is_rush=lambda: state.decisions.is_rush,
    )


async def _count_present(state: State, *, pods: Callable[[], Iterable[Pod]]) -> None:
    """Count the jobs that are there as submitted, and the pods of no job, each the oldest first."""
    for job in sorted(state.store.jobs.values(), key=lambda job: job.metadata.creation_timestamp):
        state.count_submitted(job)
        await asyncio.sleep(0)
    living = [pod for pod in pods() if not is_terminated(pod)]
    for pod in sorted(living, key=lambda pod: pod.metadata.creation_timestamp):
        state.count_created(pod)
        await asyncio.sleep(0)


def _now() -> datetime:
    return datetime.now(UTC)
