"""Everything that the operator knows of one GPUJob: the store and the decisions together.

No I/O.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from dovetail.api.builtin import Job, Pod, is_terminated
from dovetail.api.gpujob import FINISHED, GPUJob, MemoryUse
from dovetail.api.meta import key_of
from dovetail.api.reasons import start as says
from dovetail.api.reasons.codes import INVALID
from dovetail.api.reasons.start import UNREADABLE
from dovetail.cluster.view import ClusterView
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.ranking import DEFAULT_RANKINGS, Ranking, Rankings
from dovetail.engine.model.settings import FragmentationPolicy, Limits
from dovetail.engine.model.topology import DEFAULT_LEVELS, Level
from dovetail.formats.quantities import QuantityError
from dovetail.gpu.device_plugins import Vendors
from dovetail.gpu.memory_strategy import AGGRESSIVE, FRACTIONS
from dovetail.gpu.request import RequestError
from dovetail.jobs.batch_job import is_going, is_guests, is_managed, is_parent, true_condition, wants_admission
from dovetail.jobs.cpu_fallback import cpu_after_seconds
from dovetail.jobs.memory_use import Learning
from dovetail.jobs.moves import MoveRules, MovesOfDeleted
from dovetail.jobs.obstacle import Obstacle
from dovetail.jobs.runs import wants_more
from dovetail.jobs.size_limits import JobLimits
from dovetail.jobs.start_times import resting, too_early
from dovetail.pods.demand import as_started, ask_of_job, ask_of_pod
from dovetail.pods.device_plugin import asks_by_kind
from dovetail.pods.disruption_budgets import refusing_budget
from dovetail.pods.errors import sentence_of
from dovetail.pods.options.annotations import check_job
from dovetail.pods.tenancy import is_submitted_as_job, run_of
from dovetail.queue.growing.pools import GrowingRules
from dovetail.queue.inputs.candidates import chosen_way, sized
from dovetail.queue.inputs.run_ends import RunTimes
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.preemption.policy import Rules
from dovetail.queue.reshaping.decision import ReshapeRules
from dovetail.queue.verdicts import Admitted
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.job.drain import DrainRules
from dovetail_operator.job.observation import Observed, bound_pods
from dovetail_operator.state.decisions import Decisions
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.growing_pools import GrowingPools
from dovetail_operator.state.job_mix import JobMix
from dovetail_operator.state.store import Store

# Different specs whose reading is kept for other jobs.
_SPECS: Final = 1024


class Reading(NamedTuple):
    """The alternatives of a request, the preferred one first, and what is wrong with the spec.

    `digest` is that of the spec (`spec_digest`) where jobs with an equal one share this reading; else empty.
    """

    asks: tuple[Ask, ...] = ()
    obstacle: Obstacle | None = None
    digest: bytes = b""


_UNREAD: Final = Reading()


class Requests:
    """What each worker requests: from the spec, learned memory and the chosen alternative.

    Reading a spec takes longer than a lookup, so each generation of a job is read once.
    """

    def __init__(
        self,
        store: Store,
        *,
        decisions: Decisions,
        rankings: Rankings,
        levels: tuple[Level, ...] = DEFAULT_LEVELS,
    ) -> None:
        self._store = store
        self._decisions = decisions
        self._rankings = rankings
        self._levels = levels
        # By UID, with the generation that was read.
        self._readings: dict[str, tuple[int, Reading]] = {}
        # By namespace and digest of the spec; the oldest leave.
        self._of_specs: dict[tuple[str, bytes], Reading] = {}

    @property
    def levels(self) -> dict[str, str]:
        """The names of the configured levels of the network, by their node labels."""
        return {level.label: level.name for level in self._levels}

    def configure(self, *, rankings: Rankings, levels: tuple[Level, ...]) -> None:
        """Apply other rankings and levels of the network: all requests are read again."""
        self._rankings, self._levels = rankings, levels
        self._readings.clear()
        self._of_specs.clear()

    def ask_of(self, job: GPUJob) -> Ask | None:
        """What each worker requests: a started job's chosen alternative, else the preferred one.

        None if the request cannot be read.
        """
        verdict = self._decisions.verdicts.get(job.metadata.uid)
        admitted = verdict.ask if isinstance(verdict, Admitted) else None
        return chosen_way(self.ways_of(job), child=self._store.child_of(job), admitted=admitted)

    def ways_of(self, job: GPUJob) -> list[Ask]:
        """All alternatives of what each worker requests, of its right size and with the estimated memory."""
        use = self.memory_of(job)
        return [as_started(ask, job=job, use=use) for ask in self.read(job).asks]

    def memory_of(self, job: GPUJob) -> MemoryUse | None:
        """What the job uses and what was learned for it; None if neither is known."""
        return self._store.learning.use_of(
            job,
            ask=next(iter(self.read(job).asks), None),
            child=self._store.child_of(job),
            most_mib=self._largest_promise_mib,
        )

    def estimate_of(self, job: GPUJob) -> int | None:
        """The learned memory in MiB; None if the job uses no estimate or nothing is known."""
        use = self.memory_of(job) if self._store.learning.estimates(job) else None
        return None if use is None else use.estimate_mib

    def read(self, job: GPUJob) -> Reading:
        """Read the job's request, once per generation.

        An exception in our own code is recorded as a failure, and the request is read again when its retry is due.
        """
        generation, reading = self._readings.get(job.metadata.uid, (-1, _UNREAD))
        failed = reading == _UNREAD and self._decisions.failures.is_tried(job)
        if generation == job.metadata.generation and not failed:
            return reading
        try:
            reading = self._reading_of(job)
        except Exception as error:  # noqa: BLE001 - one job must not stop the others
            self._decisions.record_failure(job, error=error)
            reading = _UNREAD
        self._readings[job.metadata.uid] = (job.metadata.generation, reading)
        return reading

    def _reading_of(self, job: GPUJob) -> Reading:
        refusal, vendors = self._store.footprint.refusal_of(job), self._store.view.vendors
        key = None if refusal is not None else (job.metadata.namespace, spec_digest(job))
        known = None if key is None else self._of_specs.get(key)
        if known is not None:
            return known
        ranking = self._rankings.of(job.metadata.namespace)
        reading = read_request(job, refusal=refusal, ranking=ranking, vendors=vendors, levels=self._levels)
        # What is wrong with a spec is said with the job's name.
        if key is not None and reading.obstacle is None:
            reading = reading._replace(digest=key[1])
            self._of_specs[key] = reading
            if len(self._of_specs) > _SPECS:
                del self._of_specs[next(iter(self._of_specs))]
        return reading

    def ask_of_pod(self, pod: Pod) -> Ask | None:
        """The request of a pod of no GPUJob; None if it requests nothing of ours, or cannot be read."""
        try:
            return ask_of_pod(pod, ranking=self._rankings.of(pod.metadata.namespace), vendors=self._store.view.vendors)
        except (RequestError, QuantityError):
            return None

    def observe(self, job: GPUJob) -> None:
        """Do nothing: `read` reads a new generation when it is first asked for."""

    def drop(self, job: GPUJob) -> None:
        """Drop the reading of a deleted GPUJob."""
        self._readings.pop(job.metadata.uid, None)

    def _largest_promise_mib(self) -> int:
        return int(self._store.view.ledger.largest_mib * FRACTIONS[AGGRESSIVE])


def spec_digest(job: GPUJob) -> bytes:
    """A digest of the spec: jobs with equal digests request the same. The name counts where the spec mentions it.

    A template may keep the pods of its job apart by the job's name.
    """
    text, name = msgspec.json.encode(job.spec), job.metadata.name.encode()
    return blake2b(name + b"/" + text if name in text else text, digest_size=16).digest()


def read_request(
    job: GPUJob, *, refusal: str | None, ranking: Ranking, vendors: Vendors, levels: tuple[Level, ...]
) -> Reading:
    """Read what each worker requests, and what is wrong with the spec.

    A job with a `refusal` has no template, so its spec is not read. Weights out of the bounds of `ranking` keep a job
    from starting, but not from running on: its request is known.
    """
    if refusal is not None:
        return Reading(obstacle=Obstacle.of(UNREADABLE(problem=refusal)))
    try:
        ask = ask_of_job(job, ranking=ranking, vendors=vendors, levels=levels)
        asks = tuple(asks_by_kind(ask, vendors=vendors))
        if is_guests(job):
            # The webhook has completed its pods for this kind of node.
            asks = asks[:1]
    except RequestError as error:
        return Reading(obstacle=Obstacle.of(sentence_of(error).with_reason(INVALID.code)))
    try:
        check_job(job, ranking=ranking)
    except RequestError as error:
        return Reading(asks=asks, obstacle=Obstacle.of(sentence_of(error).with_reason(INVALID.code)))
    return Reading(asks=asks)


class State:
    """The store, the table of decisions, and the answers that follow from both for one job.

    Only `configure` changes either. `mix` learns from the jobs that `count_submitted` gets and the pods that
    `count_created` gets, and prices plans. `records` says which jobs have a record in the history; None if no history
    is kept. `cpu_fallback` are the seconds of `namespace_cpu_fallback`, by namespace.
    """

    def __init__(
        self,
        store: Store,
        *,
        decisions: Decisions,
        requests: Requests,
        run_times: RunTimes | None = None,
        preemption: Rules | None = None,
        records: Dues | None = None,
        leaves_bad_cards: bool = False,
        fragmentation: FragmentationPolicy = "ph",
        cpu_fallback: Mapping[str, int] = MappingProxyType({}),
        growing: GrowingRules | None = None,
        drain: DrainRules | None = None,
        moves: MoveRules | None = None,
        reshape: ReshapeRules | None = None,
    ) -> None:
        self.store = store
        self.mix = JobMix(store.view.ledger, policy=fragmentation)
        self.decisions = decisions
        self.requests = requests
        self.run_times = run_times or RunTimes()
        self.preemption = preemption or Rules()
        self.cpu_fallback = cpu_fallback
        self.drain = drain or DrainRules()
        self.moves = moves or MoveRules()
        self.moves_of_deleted = MovesOfDeleted()
        self.reshape = reshape or ReshapeRules()
        self.growing = GrowingPools(growing or GrowingRules())
        self._records = records
        self._leaves_bad_cards = leaves_bad_cards
        for follower in (decisions, requests, self.moves_of_deleted, *([records] if records is not None else ())):
            store.follow(follower)

    def configure(
        self,
        *,
        rankings: Rankings,
        limits: Limits,
        run_times: RunTimes,
        preemption: Rules,
        cpu_fallback: Mapping[str, int],
        growing: GrowingRules,
        drain: DrainRules,
        moves: MoveRules,
        reshape: ReshapeRules,
        levels: tuple[Level, ...],
    ) -> None:
        """Apply a new configuration: those of its values that count at once. What runs stays as it was planned."""
        self.requests.configure(rankings=rankings, levels=levels)
        ledger = self.store.view.ledger
        ledger.set_tenant_limits(
            training_per_device=limits.training_per_device, inference_per_device=limits.inference_per_device
        )
        self.run_times, self.preemption, self.cpu_fallback = run_times, preemption, cpu_fallback
        self.growing.configure(growing)
        self.drain, self.moves, self.reshape = drain, moves, reshape

    def observe(self, key: str, *, now: datetime) -> Observed | None:
        """Gather everything about one GPUJob.

        None if no GPUJob has this key, or another controller manages it.
        """
        store, decisions, job = self.store, self.decisions, self.store.jobs.get(key)
        if job is None or not is_managed(job):
            return None
        uid, child = job.metadata.uid, store.child_of(job)
        pods, verdict = store.pods.pods_of(child), decisions.verdicts.get(uid)
        overuses = store.overuses.held_by(pods)
        ends = any(each.evict for each in overuses)
        more = job.status.elastic is not None and wants_more(job, child=child)
        return Observed(
            job=sized(job, child=child, verdict=verdict),
            asked_workers=job.spec.workers,
            wants_more=more,
            scales_up=more and uid in decisions.scale_ups,
            cpu_after_seconds=cpu_after_seconds(job, by_namespace=self.cpu_fallback),
            now=now,
            cluster_nodes=len(store.view.nodes),
            child=child,
            pods=pods,
            simulated=store.view.is_simulated([pod.spec.node_name for pod in bound_pods(pods)] or job.status.nodes),
            given=store.pods.given(pods),
            ask=self.requests.ask_of(job),
            memory=self.requests.memory_of(job),
            dependencies=tuple(store.dependencies.states_of(job)),
            awaited=store.dependencies.is_awaited(job) or store.is_unnoted_task(job),
            tasks=store.tasks.tasks_of(job) if is_parent(job) else (),
            in_the_way=store.tasks.in_the_way(job, jobs=store.jobs) if is_parent(job) else {},
            measured=store.measured.measure(job, running=any(pod.status.phase == "Running" for pod in pods)),
            recorded=self._records is None or self._records.is_kept(job),
            number=self.number_of(job),
            verdict=verdict,
            obstacle=self.obstacle_of(job, now=now),
            overtaken=decisions.overtaken.get(uid, ""),
            replacement=decisions.replacements.get(uid),
            bad_cards=store.bad_cards.held_by(pods, ledger=store.view.ledger),
            leaves_bad_cards=self._leaves_bad_cards,
            overuses=overuses,
            refusing_budget=refusing_budget(pods, budgets=store.budgets_of(job.metadata.namespace)) if ends else "",
            idle_since=decisions.idle.get(uid),
            enforcement=store.enforcements.reports_for(pods),
            notice=decisions.notices.get(uid),
            move=decisions.moves.get(uid),
            plan_may_follow=job.spec.workers == 1 and decisions.plans_may_follow(now) and not store.quotas.all,
            kueue=decisions.kueue.get(child.metadata.uid, "") if child is not None else "",
        )

    def obstacle_of(self, job: GPUJob, *, now: datetime) -> Obstacle | None:
        """Why the job cannot start, independent of the queue.

        Returns the first obstacle by precedence.
        """
        if (message := self.store.unreadable_message(job.metadata.uid)) is not None:
            return Obstacle.of(UNREADABLE(problem=message))
        failures = self.decisions.failures
        if (failing := failures.obstacle_of(job, now=now)) is not None:
            return failing
        reading = self.requests.read(job)
        if (failing := failures.obstacle_of(job, now=now)) is not None:
            return failing
        child, key = self.store.child_of(job), key_of(job.metadata)
        if child is None and not (self.store.pods.are_there(key) or is_guests(job) or _depends_on_more(job)):
            # Nearly all jobs of a long queue.
            return reading.obstacle or self.decisions.refusal_of(job, now=now)
        return (
            guest_obstacle(job, child=child)
            or too_early(job, now=now)
            or resting(job, now=now)
            or self.store.dependencies.obstacle_of(job)
            or reading.obstacle
            or self.decisions.refusal_of(job, now=now)
            or suspension_obstacle(job, child=child, pods=self._pods_to_end(job, child=child))
            or orphans_obstacle(self._left_over(job, child=child))
        )

    def engaged(self, keys: Mapping[str, str], *, named: AbstractSet[str]) -> set[str]:
        """The keys of those jobs that have a batch Job, pods, a plan or an obstacle.

        `keys` has their `namespace/name` by UID, and `named` all of these names: sets tell for thousands of jobs.
        """
        store, uids = self.store, keys.keys()
        held = (store.unreadable & uids) | (self.decisions.held & uids)
        return (store.keys_of_children & named) | (store.pods.keys & named) | {keys[uid] for uid in held}

    def number_of(self, job: GPUJob) -> int | None:
        """The job's short number, or None."""
        return job.status.number or self.decisions.numbers.get(job.metadata.uid)

    def is_known_to_queue(self, job: GPUJob) -> bool:
        """Whether the job has a number, or never gets one. The queue's next cycle gives it, and marks the job then."""
        return is_going(job) or not is_managed(job) or self.number_of(job) is not None

    def unnumbered(self) -> list[GPUJob]:
        """Jobs without a short number."""
        return [job for job in self.store.jobs.values() if self.number_of(job) is None and is_managed(job)]

    def count_submitted(self, job: GPUJob) -> None:
        """Count a job in the mix that prices plans, once."""
        preferred = next(iter(self.requests.read(job).asks), None)
        self.mix.submitted(preferred, uid=job.metadata.uid, workers=job.spec.workers)

    def count_created(self, pod: Pod) -> None:
        """Count a pod in the mix that prices plans, once. The pods of a GPUJob count as it is submitted."""
        if is_submitted_as_job(pod):
            return
        self.mix.created(self.requests.ask_of_pod(pod), uid=pod.metadata.uid)

    def _pods_to_end(self, job: GPUJob, *, child: Job | None) -> Sequence[Pod]:
        """The pods that end before the job starts: those of its batch Job, and of a guest those of an earlier record.

        A pod that its deleted owner has left behind goes on.
        """
        pods = self.store.pods.pods_of(child)
        if not is_guests(job):
            return pods
        named = self.store.pods.named(key_of(job.metadata))
        earlier = [pod for pod in named if run_of(pod) != job.metadata.uid and pod.metadata.owner_references]
        return [*pods, *earlier]

    def _left_over(self, job: GPUJob, *, child: Job | None) -> list[Pod]:
        """Pods of an earlier run that still exist although the job does not run."""
        number, key = self.number_of(job), key_of(job.metadata)
        # A foreign batch Job with the job's name is a separate obstacle with its own message.
        is_free = child is not None or self.store.child_named(key) is None
        if number is None or not is_free or not wants_admission(job, child=child):
            return []
        return self.store.pods.left_over(key, number=number, child=child)


def build_state(
    view: ClusterView,
    *,
    rankings: Rankings = DEFAULT_RANKINGS,
    learning: Learning | None = None,
    quotas: Quotas | None = None,
    endings: EndingRules | None = None,
    job_limits: JobLimits | None = None,
    run_times: RunTimes | None = None,
    preemption: Rules | None = None,
    records: Dues | None = None,
    leaves_bad_cards: bool = False,
    fragmentation: FragmentationPolicy = "ph",
    cpu_fallback: Mapping[str, int] = MappingProxyType({}),
    growing: GrowingRules | None = None,
    drain: DrainRules | None = None,
    moves: MoveRules | None = None,
    reshape: ReshapeRules | None = None,
    levels: tuple[Level, ...] = DEFAULT_LEVELS,
) -> State:
    """Build an empty state over `view`."""
    store = Store(view, learning=learning, quotas=quotas, endings=endings, job_limits=job_limits)
    decisions = Decisions()
    requests = Requests(store, decisions=decisions, rankings=rankings, levels=levels)
    return State(
        store,
        decisions=decisions,
        requests=requests,
        run_times=run_times,
        preemption=preemption,
        records=records,
        leaves_bad_cards=leaves_bad_cards,
        fragmentation=fragmentation,
        cpu_fallback=cpu_fallback,
        growing=growing,
        drain=drain,
        moves=moves,
        reshape=reshape,
    )


def _depends_on_more(job: GPUJob) -> bool:
    """Whether a time, an earlier attempt or another job may keep the job from starting."""
    return job.spec.begin_time is not None or bool(job.spec.dependencies or job.status.attempts)


def suspension_obstacle(job: GPUJob, *, child: Job | None, pods: Sequence[Pod]) -> Obstacle | None:
    """Why a suspended batch Job cannot take another plan yet.

    It has to report that it is suspended, and its pods have to be deleted.
    """
    if child is None or not child.spec.suspend or job.status.phase in FINISHED:
        return None
    # The Job controller may count a pod that ends by the suspension as failed. Once deleted, it no longer does.
    left = [pod for pod in pods if not is_terminated(pod) or pod.metadata.deletion_timestamp is not None]
    started = child.status.start_time is not None
    if left or child.status.active or (started and not true_condition(child, "Suspended")):
        return Obstacle.of(says.EARLIER_PODS())
    return None


def guest_obstacle(job: GPUJob, *, child: Job | None) -> Obstacle | None:
    """Why the record of a guest does not start before the guest was read."""
    if child is not None or not is_guests(job):
        return None
    return Obstacle.of(says.GUEST_UNREAD())


def orphans_obstacle(pods: Sequence[Pod]) -> Obstacle | None:
    """Why a job does not start while pods of a deleted batch Job remain: it would run twice."""
    left = [pod for pod in pods if not pod.metadata.owner_references and pod.metadata.deletion_timestamp is None]
    if left:
        return Obstacle.of(says.ORPHAN_POD(pod=left[0].metadata.name))
    return Obstacle.of(says.EARLIER_PODS()) if pods else None
