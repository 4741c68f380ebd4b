"""Assemble the operator: informers, state, controller, watchers and history."""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from prometheus_client import CollectorRegistry

from dovetail import names
from dovetail.api.builtin import Job, Node, Pod
from dovetail.api.gpujob import GPUJob, MemoryStrategy, Policy
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, GPUNODES, GPUQUOTAS, JOBS, NODES, PODS
from dovetail.cluster.dra_drivers import ABSENT_SECONDS, NodeDrivers
from dovetail.cluster.staleness import Freshness
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.settings import DEFAULT_WEIGHTS, Limits, Weights
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors
from dovetail.jobs.idle import IdleRules
from dovetail.jobs.memory_use import Learning
from dovetail.jobs.size_limits import JobLimits
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership
from dovetail.kube.reflector import Reflector
from dovetail.kube.resource_slices import SliceWatch
from dovetail.kube.unreadable_objects import UnreadableCollector
from dovetail.pods.assumed_allocation import assumed_pod
from dovetail.process import serving
from dovetail.queue.inputs.run_ends import RunTimes
from dovetail.queue.limits.quotas import DEFAULT_HALF_LIFE_SECONDS, Quotas
from dovetail.queue.preemption.policy import Rules
from dovetail_operator.controller.controller import Controller
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.events.recorder import JobEvents
from dovetail_operator.history.answers import Answers
from dovetail_operator.history.recorder import History
from dovetail_operator.history.store import HistoryStore
from dovetail_operator.metrics import JobsCollector, TenantsCollector, make_counters
from dovetail_operator.notifications.mail_limits import MailRules
from dovetail_operator.notifications.notifier import Notifier
from dovetail_operator.notifications.transports import sender_of
from dovetail_operator.queue.quota_status import QuotaNotes
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.state import State, build_state
from dovetail_operator.watchers.idle import IdleWatch
from dovetail_operator.watchers.kueue import KueueWatch
from dovetail_operator.watchers.node_tenants import NodeTenants
from dovetail_operator.watchers.services import ServiceKeeper
from dovetail_operator.writes.estimate_store import LastingMisses
from dovetail_operator.writes.job_numbers import Numbers
from dovetail_operator.writes.unreadable_jobs import UnreadableJobs

# With this many jobs to reconcile, statuses come before events.
_RUSH: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the configuration and the environment decide."""

    namespace: str
    """The operator's own namespace."""
    policy: Policy = "Balanced"
    """The default placement policy."""
    namespace_policies: Mapping[str, Policy] = field(default_factory=dict)
    """The default placement policy of some namespaces, by namespace."""
    memory_strategy: MemoryStrategy = "Conservative"
    """The memory strategy of jobs that name none."""
    look_seconds: float = 30.0
    """How often agents measure, in seconds."""
    limits: Limits = field(default_factory=Limits)
    """How many tenants share a device, and how much of its memory is promised."""
    weights: Weights = DEFAULT_WEIGHTS
    """The weights of the placement score."""
    smoothing_seconds: float = 120.0
    """The time over which measured utilization is smoothed, in seconds."""
    measurement_max_age_seconds: float = 660.0
    """The age from which a measurement no longer counts, in seconds."""
    vendors: Vendors = DEFAULT_VENDORS
    """The GPU vendors' resources and device plugins."""
    run_times: RunTimes = field(default_factory=RunTimes)
    """Default and maximum run times."""
    leaves_bad_cards: bool = False
    """Whether jobs on unhealthy devices restart on other nodes."""
    idle: IdleRules = field(default_factory=IdleRules)
    """When a job counts as idle, and what happens to it."""
    history_url: str = "sqlite://"
    """The database of the history."""
    history_days: int = 400
    """How many days a record is kept."""
    notify_url: str = ""
    """The SMTP server or webhook of notifications; empty without one."""
    notify_from: str = "dovetail@localhost"
    """The sender address of mails."""
    mail_rules: MailRules = field(default_factory=MailRules)
    """Allowed mail domains, and mails per namespace and hour."""
    mps_directory: str = ""
    """Where pods find MPS on their node; empty if they use none."""
    half_life_seconds: float = DEFAULT_HALF_LIFE_SECONDS
    """The half-life of past use in fair share, in seconds."""
    preemption: Rules = field(default_factory=Rules)
    """The rules of preemption."""
    endings: EndingRules = field(default_factory=EndingRules)
    """Whether memory overuse ends pods, and in which namespaces it does not."""
    slices_absent_seconds: float = ABSENT_SECONDS
    """For how long a missing DRA driver counts as present, in seconds."""
    job_limits: JobLimits = field(default_factory=JobLimits)
    """The limits on the size of a GPUJob."""
    writes_tenants: bool = True
    """Whether the operator writes GPUNodeTenants. False if agents read pods themselves."""


def _state_of(options: Options, *, records: Dues) -> State:
    ledger = Ledger(limits=options.limits, smoothing_seconds=options.smoothing_seconds, weights=options.weights)
    freshness = Freshness(max_age_seconds=options.measurement_max_age_seconds, clock=time.monotonic)
    return build_state(
        ClusterView(
            ledger=ledger,
            freshness=freshness,
            vendors=options.vendors,
            drivers=NodeDrivers(clock=time.monotonic, absent_seconds=options.slices_absent_seconds),
        ),
        default_policy=options.policy,
        namespace_policies=options.namespace_policies,
        learning=Learning(default=options.memory_strategy, look_seconds=options.look_seconds),
        run_times=options.run_times,
        quotas=Quotas(half_life_seconds=options.half_life_seconds),
        preemption=options.preemption,
        endings=options.endings,
        job_limits=options.job_limits,
        records=records,
        leaves_bad_cards=options.leaves_bad_cards,
    )


class Operator:
    """One operator. `client` is open as long as it runs, and `office` is its own candidacy."""

    def __init__(
        self,
        client: Client,
        options: Options,
        *,
        office: Leadership,
        registry: CollectorRegistry,
    ) -> None:
        rng = random.Random()  # noqa: S311 - spreads retries, guards nothing
        dues = Dues()
        state = _state_of(options, records=dues)
        self._events = JobEvents(client, is_busy=self._is_busy, registry=registry, now=_now, rng=rng)
        self._controller = Controller(
            client,
            state,
            numbers=Numbers(client, namespace=options.namespace),
            counters=make_counters(registry),
            post=self._events.post,
            now=_now,
            rng=rng,
            term=lambda: office.term,
            mps_directory=options.mps_directory,
            endings=options.endings,
            pod=self._pod,
        )
        registry.register(JobsCollector(state))
        registry.register(UnreadableCollector())
        store = HistoryStore(options.history_url)
        self._history = History(
            client, state, store, dues=dues, keep_days=options.history_days, registry=registry, now=_now, rng=rng
        )
        self._answers = Answers(client, store)
        self._idle = IdleWatch(
            client,
            state,
            options.idle,
            changed=self._controller.queue.add,
            post=self._events.post,
            now=_now,
        )
        self._kueue = KueueWatch(client, state, changed=self._controller.queue.add)
        self._services = ServiceKeeper(client, state, post=self._events.post, rng=rng)
        self._notifier = Notifier(
            client,
            sender_of(options.notify_url, sender=options.notify_from),
            post=self._events.post,
            registry=registry,
            rng=rng,
            rules=options.mail_rules,
        )
        state.store.follow(self._notifier)
        self._lasting = LastingMisses(client, state.store.expectations.misses, namespace=options.namespace)
        self._notes = QuotaNotes(client, state, now=_now)
        self._tenants = _tenants_of(client, options, pods=self._all_pods, rng=rng, registry=registry)
        self._pods = Reflector(client, PODS, Pod, on_event=self._pod_event, stand_in=assumed_pod)
        changes = self._controller.changes
        self._unreadable = UnreadableJobs(
            client, jobs=state.store.jobs, found=changes.job_unreadable, post=self._events.post, rng=rng
        )
        self._reflectors: list[Reflector[Any]] = [
            Reflector(
                client,
                GPUJOBS,
                GPUJob,
                on_event=changes.job_event,
                on_unreadable=self._unreadable.report,
                transform=state.store.lean,
            ),
            self._pods,
            Reflector(client, NODES, Node, on_event=self._node_event),
            Reflector(client, GPUNODES, GPUNode, on_event=self._gpunode_event),
            Reflector(client, JOBS, Job, on_event=changes.child_event, label_selector=names.LABEL_JOB),
            Reflector(client, GPUQUOTAS, GPUQuota, on_event=changes.quota_event),
            *([self._tenants.reflector] if self._tenants else []),
        ]
        self._slices = SliceWatch(client, drivers=names.GPU_DRIVERS, on_event=self._controller.changes.slice_event)

    def ready(self) -> Mapping[str, Callable[[], str | None]]:
        """The caches that must be complete before the operator decides, as checks for /readyz."""
        checks = {
            reflector.resource.plural: _check(reflector.resource.plural, reflector.synced)
            for reflector in self._reflectors
        }
        return {**checks, "resourceslices": _check("resourceslices", self._slices.settled)}

    def ages_seconds(self) -> dict[str, float]:
        """Seconds since the API server last reported each kind of object; infinite before its list."""
        return {reflector.resource.plural: reflector.age_seconds for reflector in self._reflectors}

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run())
            tasks.create_task(self._unreadable.run())
            tasks.create_task(self._slices.run())
            await self._slices.settled.wait()
            for reflector in self._reflectors:
                await reflector.synced.wait()
            serving.keep_for_good()
            tasks.create_task(self._controller.run())
            tasks.create_task(self._events.run())
            tasks.create_task(self._keep_history())
            tasks.create_task(self._idle.run())
            tasks.create_task(self._notes.run())
            tasks.create_task(self._lasting.run())
            tasks.create_task(self._notifier.run())
            tasks.create_task(self._kueue.run())
            tasks.create_task(self._services.run())
            if self._tenants is not None:
                tasks.create_task(self._tenants.run())

    def _pod(self, namespace: str, name: str) -> Pod | None:
        return self._pods.store.get(f"{namespace}/{name}")

    def _all_pods(self) -> Iterable[Pod]:
        return self._pods.store.values()

    def _pod_event(self, type_: EventType, pod: Pod) -> None:
        self._controller.changes.pod_event(type_, pod)
        if self._tenants is not None:
            self._tenants.pod_event(type_, pod)

    def _node_event(self, type_: EventType, node: Node) -> None:
        self._controller.changes.node_event(type_, node)
        if self._tenants is not None:
            self._tenants.node_event(type_, node)

    def _gpunode_event(self, type_: EventType, gpunode: GPUNode) -> None:
        self._controller.changes.gpunode_event(type_, gpunode)
        if self._tenants is not None:
            self._tenants.gpunode_event(type_, gpunode)

    def _is_busy(self) -> bool:
        return self._controller.queue.load >= _RUSH

    async def _keep_history(self) -> None:
        """Keep the history in parallel to the queue, which does not wait for the database."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._history.run())
            await self._history.synced.wait()
            tasks.create_task(self._answers.run())


def _tenants_of(
    client: Client,
    options: Options,
    *,
    pods: Callable[[], Iterable[Pod]],
    rng: random.Random,
    registry: CollectorRegistry,
) -> NodeTenants | None:
    """The writer of GPUNodeTenants, registered for metrics; None if agents read pods themselves."""
    if not options.writes_tenants:
        return None
    tenants = NodeTenants(client, pods=pods, vendors=options.vendors, rng=rng)
    registry.register(TenantsCollector(tenants))
    return tenants


def _check(what: str, synced: asyncio.Event) -> Callable[[], str | None]:
    return lambda: None if synced.is_set() else f"{what} are not listed yet"


def _now() -> datetime:
    return datetime.now(UTC)
