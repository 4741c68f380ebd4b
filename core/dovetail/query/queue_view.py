"""The operator's queue, computed from the cluster's objects: jobs, ends and limits. Pure.

`dovetail.queue.inputs` says what the queue sees of each job, as in the operator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import DependencyStatus, GPUJob, Placement, Provisioning, Reason, is_finished
from dovetail.api.meta import key_of
from dovetail.cluster.objects import ClusterObjects
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.gpu.request import RequestError
from dovetail.jobs.batch_job import is_on_the_way, wants_admission
from dovetail.jobs.plan import ask_of, nodes_by_worker, with_carried
from dovetail.jobs.start_times import resting, too_early
from dovetail.pods.tenancy import Child
from dovetail.query.checkpoints import checkpoint
from dovetail.query.growing_rules import growing_rules_of
from dovetail.query.learned import Learned, learned_from
from dovetail.query.preemption_rules import rules_of
from dovetail.query.prices import Judge, judge_of_queue
from dovetail.queue.backfill.advance_reservation import Windows
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.dependencies import states_of, unmet
from dovetail.queue.estimates.monte_carlo import foresee_with_range
from dovetail.queue.estimates.simulation import Start
from dovetail.queue.growing.growth import build_growth
from dovetail.queue.growing.pools import GrowingRules
from dovetail.queue.inputs.at_work import AtWork, at_work
from dovetail.queue.inputs.candidates import (
    Rules,
    candidate_of,
    chosen_way,
    eligible_nodes,
    held_elsewhere,
    timed,
)
from dovetail.queue.inputs.entries import entry_of
from dovetail.queue.inputs.leaving_pods import leaving_pods, pods_of_batch_jobs
from dovetail.queue.inputs.run_ends import RunTimes, leaving_soon
from dovetail.queue.inputs.usage import use_of, use_of_ended
from dovetail.queue.limits.limits import LimitGate
from dovetail.queue.limits.quota_reservations import windows_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.model.candidates import Candidate, Leaving, claim_on_the_way, order
from dovetail.queue.preemption.policy import Evictor
from dovetail.queue.verdicts import Admitted

# The key of a job that is not in the cluster: no other has it.
ASKED: Final = "the job that is asked about"
# When it was submitted: after all others.
_LAST: Final = "9999-12-31T23:59:59Z"
# Reasons in a status for which the operator keeps a job out of the queue, and which only it can know.
_KEPT_OUT: Final[frozenset[Reason]] = frozenset({"Invalid", "Evaluating"})


@dataclass(frozen=True, kw_only=True)
class QueueView:
    """The queue at `now`; the view's ledger has claims for admitted workers without a node.

    now         the time for which the queue is computed
    view        nodes, devices and the ledger of claims
    learned     estimates of memory, run times and arrivals
    judge       by what plans on the view's ledger are judged
    quotas      pools, priorities, fair shares and limits
    run_times   assumed run times of jobs without a limit
    sites       the nodes that a candidate's pods may go to, by its `site`
    waiting     the jobs that wait for room
    leaving     the latest ends of held claims
    expected    the same claims with their likely ends
    counted     what other jobs use of the limits
    children    the batch Jobs whose pods count as their GPUJobs'
    starting    the GPUJob of each claim for a worker without a node, by the claim's key
    batch_jobs  each job's own batch Job, by the GPUJob's UID
    growing     pools to which an autoscaler adds nodes, as declared, with Karpenter's NodePools
    requests    what was requested of them for waiting jobs, by the GPUJob's UID
    """

    now: datetime
    view: ClusterView
    learned: Learned
    judge: Judge
    quotas: Quotas
    run_times: RunTimes
    sites: dict[str, list[str]] = field(default_factory=dict)
    waiting: list[Candidate] = field(default_factory=list)
    leaving: list[Leaving] = field(default_factory=list)
    expected: list[Leaving] = field(default_factory=list)
    counted: list[Counted] = field(default_factory=list)
    children: frozenset[Child] = frozenset()
    starting: dict[str, GPUJob] = field(default_factory=dict)
    batch_jobs: Mapping[str, Job] = field(default_factory=dict)
    growing: GrowingRules = field(default_factory=GrowingRules)
    requests: Mapping[str, Provisioning] = field(default_factory=dict)

    def gate(self, asked: Counted | None) -> LimitGate | None:
        """The limits, with `asked` counted too; None if nothing is limited."""
        capacity = self.quotas.capacity(self.view.ledger)
        return self.quotas.gate(self._everyone(asked), children=self.children, capacity=capacity)

    def _everyone(self, asked: Counted | None) -> list[Counted]:
        return self.counted if asked is None else [*self.counted, asked]

    def windows(
        self, *, ledger: Ledger, leaving: Sequence[Leaving], gate: LimitGate | None, asked: Counted | None = None
    ) -> Windows:
        """What is kept for a time, and ready for the next replicas, on a ledger with these ends.

        `gate` is for reserves: None where it would be made for them alone, and there are none.
        """
        counted = self._everyone(asked)
        return windows_of(
            self.quotas, counted=counted, view=self.view, ledger=ledger, leaving=leaving, now=self.now, gate=gate
        )

    def without(self, uid: str) -> "QueueView":
        """The queue without a job. The claims of one that runs are still in the view's ledger."""
        return replace(
            self,
            waiting=[each for each in self.waiting if each.key != uid],
            leaving=[each for each in self.leaving if each.job != uid],
            expected=[each for each in self.expected if each.job != uid],
            counted=[each for each in self.counted if each.uid != uid],
        )

    def cycle(
        self, asked: Counted | None, *, gate: LimitGate | None = None, evictor: Evictor | None = None
    ) -> SchedulingCycle:
        """A scheduling cycle, with `asked` counted too where there is such a job.

        `gate` is a gate that other jobs have already passed through; None for a new one.
        """
        ledger = self.view.ledger.copy()
        gate = gate or self.gate(asked)
        windows = self.windows(ledger=ledger, leaving=self.leaving, gate=gate, asked=asked)
        growth = build_growth(self.growing, view=self.view, requests=self.requests, gate=self.gate(asked), now=self.now)
        return SchedulingCycle(
            ledger, sites=self.sites, leaving=self.leaving, gate=gate, windows=windows, evictor=evictor, growth=growth
        )

    def start_of(self, asked: Candidate, *, counted: Counted, most_cycles: int | None = None) -> Start | None:
        """The estimated start of a waiting job, by expected ends; None if it cannot be estimated.

        It cannot for a job that is not among the first 100 that wait. With `most_cycles`, only the likeliest future is
        simulated, and only for so many cycles.
        """
        if most_cycles == 0:
            return None
        ledger, gate = self.view.ledger, self.gate(counted) if self.quotas.reserve else None
        windows = self.windows(ledger=ledger, leaving=self.expected, gate=gate, asked=counted)
        starts = foresee_with_range(
            order([asked, *self.waiting]),
            ledger=ledger,
            sites=self.sites,
            leaving=self.expected,
            gate=partial(self.gate, counted),
            coming=self.learned.expectations.coming(now=self.now),
            windows=windows,
            only=asked.key,
            most_cycles=most_cycles,
        )
        for start in starts:
            checkpoint()
            if start is not None and start.key == asked.key:
                return start
        return None

    def candidate(
        self,
        job: GPUJob,
        *,
        child: Job | None,
        workers: int,
        nodes: tuple[str, ...] = (),
        admitted: Ask | None = None,
        ways: Sequence[Ask] | None = None,
    ) -> Candidate | None:
        """The job as a candidate now; None for an unreadable request. Adds the job's nodes to `sites`."""
        found = self.untimed(job, child=child, workers=workers, nodes=nodes, admitted=admitted, ways=ways)
        return None if found is None else timed(found, job=job, now=self.now)

    def untimed(
        self,
        job: GPUJob,
        *,
        child: Job | None,
        workers: int,
        nodes: tuple[str, ...] = (),
        admitted: Ask | None = None,
        ways: Sequence[Ask] | None = None,
    ) -> Candidate | None:
        """The same, as if the job had been submitted now."""
        found = candidate_of(
            job,
            child=child,
            ways=self.learned.readable_ways(job, child=child) if ways is None else ways,
            admitted=admitted,
            workers=workers,
            nodes=nodes,
            number=job.status.number or 0,
            rules=Rules(
                quotas=self.quotas,
                run_times=self.run_times,
                expectations=self.learned.expectations,
                cpu_fallback=self.learned.settings.namespace_cpu_fallback,
            ),
        )
        if found is not None and found.site not in self.sites:
            self.sites[found.site] = eligible_nodes(job, view=self.view, quotas=self.quotas)
        return found

    def asked_as(self, job: GPUJob, *, submitted: bool) -> tuple[Candidate, Counted]:
        """The query's job as a candidate, and what it would use. Raises `RequestError`.

        A job that is not `submitted` yet comes last of its priority and share.
        """
        child = self.batch_jobs.get(job.metadata.uid)
        ways = self.learned.ways_of(job, child=child)
        found = self.candidate(job, child=child, workers=job.spec.workers, ways=ways)
        assert found is not None, "it has ways, or their reading raises"
        taken = use_of(job, child=None, ask_of=lambda _: found.ask, admitted=None, waits=True, quotas=self.quotas)
        assert taken is not None, "it waits"
        if submitted:
            return found, taken
        return replace(found, key=ASKED, created=_LAST), replace(taken, uid=ASKED)


def queue_view(objects: ClusterObjects, *, now: datetime, without: str = "") -> QueueView:
    """The queue now, without the job of the UID `without`."""
    view, settings = objects.view(), objects.settings
    batch_jobs = objects.batch_job_of(objects.jobs)
    jobs = [
        job if (child := batch_jobs.get(job.metadata.uid)) is None else with_carried(job, child=child)
        for job in objects.jobs
        if job.metadata.uid != without
    ]
    run_times = RunTimes(default_seconds=settings.default_time_limit, by_namespace=settings.namespace_time_limits)
    quotas = Quotas(half_life_seconds=settings.fair_share_half_life)
    for quota in objects.quotas or ():
        quotas.update(quota)
    quotas.observe(view.ledger, now=now, grace_seconds=rules_of(settings.preemption).reclaim_grace_seconds)
    for pod in objects.pods:
        quotas.pod_changed(pod, ledger=view.ledger)
    learned = learned_from(objects.jobs, settings=settings, view=view, estimates=objects.estimates)
    found = QueueView(
        now=now,
        view=view,
        learned=learned,
        judge=judge_of_queue(view.ledger, objects=objects, learned=learned),
        quotas=quotas,
        run_times=run_times,
        batch_jobs=batch_jobs,
        children=frozenset((child.metadata.namespace, child.metadata.uid) for child in batch_jobs.values()),
        growing=growing_rules_of(settings, node_pools=objects.node_pools),
        requests={job.metadata.uid: found for job in jobs if (found := job.status.provisioning) is not None},
    )
    _Survey(objects, jobs=jobs, queue=found).run()
    # From here on the term only has copies: several threads may answer on one view.
    found.judge.term.follow()
    return found


class _Survey:
    """Fills a queue view from the jobs, and is the source of the facts about them."""

    def __init__(self, objects: ClusterObjects, *, jobs: Sequence[GPUJob], queue: QueueView) -> None:
        self._objects = objects
        self._jobs = jobs
        self._queue = queue
        self._named = {key_of(job.metadata): job for job in objects.jobs}
        self._pods = pods_of_batch_jobs(objects.pods)
        self._ways: dict[str, tuple[Ask, ...]] = {}
        self._due: set[str] = set()
        self._on_the_way: list[Candidate] = []
        self._running: set[str] = set()

    def run(self) -> None:
        """Count first: the order of the queue rests on what was used."""
        queue = self._queue
        for job in self._jobs:
            checkpoint()
            if self._found_due(job):
                self._due.add(job.metadata.uid)
        for job in self._jobs:
            checkpoint()
            if (counted := self._counted(job, waits=self.is_due(job))) is not None:
                queue.counted.append(counted)
        queue.quotas.compute_statuses(queue.counted, now=queue.now, children=queue.children)
        for job in self._jobs:
            checkpoint()
            if not is_finished(job):
                self._note(job)
        self._note_arrivals()
        soon = leaving_soon(leaving_pods(self._objects.pods, running=self._running))
        going = {each.key for each in soon}
        claimed = claim_on_the_way(self._on_the_way, ledger=queue.view.ledger, sites=queue.sites, going=going)
        for ends in (queue.leaving, queue.expected):
            ends.extend([*soon, *claimed.leaving])

    def is_due(self, job: GPUJob) -> bool:
        """Whether the queue decides on the job, or has admitted it and nothing is made of that yet."""
        return job.metadata.uid in self._due

    def _found_due(self, job: GPUJob) -> bool:
        if job.status.phase is None or job.status.reason in _KEPT_OUT:
            # No operator has seen it yet, or it keeps the job out.
            return False
        child, now = self.child_of(job), self._queue.now
        if not wants_admission(job, child=child) or too_early(job, now=now) or resting(job, now=now):
            return False
        if unmet(self._dependencies(job), spec=job.spec) is not None:
            return False
        return bool(self._ways_of(job, child=child))

    def child_of(self, job: GPUJob) -> Job | None:
        """Return the job's own batch Job."""
        return self._queue.batch_jobs.get(job.metadata.uid)

    def work_of(self, job: GPUJob) -> AtWork | None:
        """Return the job at work, or None if no batch Job of it runs."""
        child = self.child_of(job)
        if child is None or not is_on_the_way(job, child=child):
            return None
        self._running.add(child.metadata.uid)
        pods: Sequence[Pod] = self._pods.get(child.metadata.uid, ())
        return at_work(job, child=child, pods=pods, run_times=self._queue.run_times)

    def admission_of(self, job: GPUJob) -> Admitted | None:
        """Return what the queue said of a job that starts, as its status has it."""
        return _admitted(job)

    def candidate(
        self,
        job: GPUJob,
        *,
        workers: int,
        nodes: tuple[str, ...] = (),
        waits: bool = False,  # noqa: ARG002 - for caches
    ) -> Candidate | None:
        """Return the job as a candidate; None for an unreadable request."""
        child, admitted = self.child_of(job), _admitted(job)
        ways, ask = self._ways_of(job, child=child), None if admitted is None else admitted.ask
        return self._queue.untimed(job, child=child, workers=workers, nodes=nodes, admitted=ask, ways=ways)

    def _ways_of(self, job: GPUJob, *, child: Job | None) -> tuple[Ask, ...]:
        """The ways to meet the job's request, which is read once for all steps."""
        key = job.metadata.uid
        if key not in self._ways:
            self._ways[key] = self._queue.learned.readable_ways(job, child=child)
        return self._ways[key]

    def _dependencies(self, job: GPUJob) -> list[DependencyStatus]:
        return states_of(
            job.spec.dependencies,
            job_named=lambda name: self._named.get(f"{job.metadata.namespace}/{name}"),
            before=job.status.dependencies,
        )

    def _ask_of(self, job: GPUJob) -> Ask | None:
        child, admitted = self._queue.batch_jobs.get(job.metadata.uid), _admitted(job)
        ways = self._ways_of(job, child=child)
        return chosen_way(ways, child=child, admitted=None if admitted is None else admitted.ask)

    def _counted(self, job: GPUJob, *, waits: bool) -> Counted | None:
        queue = self._queue
        if not queue.quotas.all and not job.spec.group and job.spec.preemptible:
            return None
        if is_finished(job):
            return use_of_ended(job, ask_of=self._ask_of, quotas=queue.quotas)
        child, admitted = queue.batch_jobs.get(job.metadata.uid), _admitted(job)
        pods = self._pods.get(child.metadata.uid, ()) if child is not None else ()
        claims = (queue.view.ledger.claim(pod.metadata.uid) for pod in pods)
        return use_of(
            job,
            child=child,
            ask_of=self._ask_of,
            admitted=admitted,
            waits=waits,
            quotas=queue.quotas,
            held=[claim for claim in claims if claim is not None],
        )

    def _note(self, job: GPUJob) -> None:
        queue, entry = self._queue, entry_of(job, source=self, now=self._queue.now)
        if entry is None:
            return
        if entry.work is not None:
            queue.leaving.extend(entry.work.run.leaving(now=queue.now))
            queue.expected.extend(entry.work.run.leaving(now=queue.now, learned=queue.learned.expectations))
        if (held := self._held_elsewhere(job)) is not None:
            self._note_on_the_way(held, job=job)
            if entry.waits:
                # It starts there, before the queue decides on any other job.
                return
        if (candidate := entry.candidate) is None:
            return
        if entry.waits:
            queue.waiting.append(candidate)
        else:
            self._note_on_the_way(candidate, job=job)

    def _held_elsewhere(self, job: GPUJob) -> Candidate | None:
        """What is held for the job where it moves; None if nothing is."""
        move = job.status.move
        if move is None or move.reserved is None:
            return None
        candidate = self.candidate(job, workers=job.spec.workers)
        return None if candidate is None else held_elsewhere(candidate, move=move)

    def _note_on_the_way(self, candidate: Candidate, *, job: GPUJob) -> None:
        self._on_the_way.append(candidate)
        self._queue.starting.update({f"{candidate.key}/{worker}": job for worker in range(candidate.workers)})

    def _note_arrivals(self) -> None:
        """What came, the oldest first: jobs like those come again."""
        expectations = self._queue.learned.expectations
        for job in expectations.new(self._objects.jobs):
            checkpoint()
            expectations.came(job, candidate=self.candidate(job, workers=job.spec.workers))


def _admitted(job: GPUJob) -> Admitted | None:
    """What the queue said of a job that starts, as its status has it; None for any other."""
    placement = job.status.placement
    if job.status.phase != "Starting" or placement is None:
        return None
    return Admitted(key=job.metadata.uid, claims=_claims(job, placement=placement), ask=_planned_ask(placement))


def _claims(job: GPUJob, *, placement: Placement) -> tuple[Claim, ...]:
    nodes = nodes_by_worker(placement)
    return tuple(Claim(key=f"{job.metadata.uid}/{worker}", node=node) for worker, node in enumerate(nodes))


def _planned_ask(placement: Placement) -> Ask | None:
    try:
        return ask_of(placement.worker)
    except RequestError:
        return None
