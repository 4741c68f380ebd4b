"""Everything that the operator knows of one GPUJob: the store and the decisions together.

No I/O.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.api.reasons.start import UNREADABLE
from dovetail.cluster.view import ClusterView
from dovetail.engine.model.ranking import DEFAULT_RANKINGS, Rankings
from dovetail.engine.model.settings import FragmentationPolicy, Limits
from dovetail.engine.model.topology import DEFAULT_LEVELS, Level
from dovetail.jobs.batch_job import is_going, is_guests, is_managed, is_parent, wants_admission
from dovetail.jobs.cpu_fallback import cpu_after_seconds
from dovetail.jobs.memory_use import Learning
from dovetail.jobs.obstacle import Obstacle
from dovetail.jobs.size_limits import JobLimits
from dovetail.jobs.start_times import resting, too_early
from dovetail.pods.tenancy import is_submitted_as_job, run_of
from dovetail.queue.growing.pools import GrowingRules
from dovetail.queue.inputs.run_ends import RunTimes
from dovetail.queue.inputs.workers import sized
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.preemption.policy import Rules
from dovetail.queue.reshaping.decision import ReshapeRules
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.job.drain import DrainRules
from dovetail_operator.job.earlier_run import guest_obstacle, orphans_obstacle, suspension_obstacle
from dovetail_operator.job.observation import Observed, bound_pods
from dovetail_operator.learning.job_mix import JobMix
from dovetail_operator.state.decisions import Decisions
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.growing_pools import GrowingPools
from dovetail_operator.state.requests import Requests
from dovetail_operator.state.store import Store


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
        self.reshape = reshape or ReshapeRules()
        self.growing = GrowingPools(growing or GrowingRules())
        self._records = records
        self._leaves_bad_cards = leaves_bad_cards
        for follower in (decisions, requests, *([records] if records is not None else ())):
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
        self.drain, self.reshape = drain, reshape

    def observe(self, key: str, *, now: datetime) -> Observed | None:
        """Gather everything about one GPUJob.

        None if no GPUJob has this key, or another controller manages it.
        """
        store, decisions, job = self.store, self.decisions, self.store.jobs.get(key)
        if job is None or not is_managed(job):
            return None
        uid, child = job.metadata.uid, store.child_of(job)
        pods, verdict = store.pods.pods_of(child), decisions.verdicts.get(uid)
        return Observed(
            job=sized(job, child=child, verdict=verdict),
            asked_workers=job.spec.workers,
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
            overuses=store.overuses.held_by(pods),
            idle_since=decisions.idle.get(uid),
            enforcement=store.enforcements.reports_for(pods),
            notice=decisions.notices.get(uid),
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
        child = self.store.child_of(job)
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

    def is_left_to_itself(self, uid: str, *, key: str) -> bool:
        """Whether a job has no batch Job, pods or plan, and no known obstacle."""
        store = self.store
        if store.child_named(key) is not None or store.pods.are_there(key):
            return False
        return store.unreadable_message(uid) is None and self.decisions.leaves_alone(uid)

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
        reshape=reshape,
    )
