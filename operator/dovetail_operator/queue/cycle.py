"""A scheduling cycle over the operator's state: its inputs and its verdicts. No I/O."""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob, Placement, Provisioning, QueuePlace, Reason, is_finished
from dovetail.api.meta import key_of
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.api.reasons.queue import VICTIMS_ENDED
from dovetail.engine.ledger.ledger import Ledger
from dovetail.formats.durations import timestamp
from dovetail.jobs.batch_job import wants_admission
from dovetail.jobs.moves import under_way
from dovetail.pods.disruption_budgets import disruptions_allowed
from dovetail.queue.backfill.residual import Ground
from dovetail.queue.cycle import admit
from dovetail.queue.growing.autoscaler_answer import Answer
from dovetail.queue.growing.growth import Growth, build_growth
from dovetail.queue.growing.requests import provisioning_request_name
from dovetail.queue.inputs.at_work import AtWork
from dovetail.queue.inputs.entries import entry_of
from dovetail.queue.inputs.preemption_candidates import running_of, served_jobs
from dovetail.queue.inputs.run_ends import leaving_soon
from dovetail.queue.limits.quota_reservations import windows_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.scope import reach
from dovetail.queue.model.candidates import Candidate, Leaving, claim_on_the_way, order
from dovetail.queue.preemption.policy import Evictor, Order, rules_now
from dovetail.queue.preemption.victims import Running, without_pause
from dovetail.queue.reshaping.messages import clause_of
from dovetail.queue.verdicts import Admitted, Previous, Verdict, Waits, with_clause
from dovetail_operator.job.drain import DRAIN
from dovetail_operator.job.plan import reserved_room
from dovetail_operator.job.plan_doubts import Doubt, doubt_about, doubt_of_refusal
from dovetail_operator.queue.cycle_caches import CycleCaches, caches_for
from dovetail_operator.queue.moving import held_moves, homes_of, started_elsewhere
from dovetail_operator.queue.replacements import replacement_of
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import children_of_jobs, counted_jobs

# The basis of the estimate for a job that preempts others.
BASIS_OF_PREEMPTION: Final = VICTIMS_ENDED()


@dataclass(slots=True, kw_only=True)
class Cycle:
    """What the queue decides on: waiting jobs, and admitted jobs with workers without a node."""

    now: datetime
    """The time of the cycle."""
    caches: CycleCaches = field(compare=False, repr=False)
    """Caches that are kept from cycle to cycle."""
    foresees: bool = False
    """Whether the cycle estimates starts: `leaving` then has likely ends of running jobs too."""
    waiting: Sequence[Candidate] = ()
    """Jobs that want to start."""
    on_the_way: list[Candidate] = field(default_factory=list)
    """Admitted jobs that have workers without a node."""
    leaving: list[Leaving] = field(default_factory=list)
    """When bound pods are expected to end, in seconds from `now`."""
    going: set[str] = field(default_factory=set)
    """Keys of the entries in `leaving` that are already ending."""
    doubts: dict[str, Doubt] = field(default_factory=dict)
    """Plans that do not seem to hold, by the job's UID."""
    sites: dict[str, list[str]] = field(default_factory=dict)
    """Eligible nodes, by site."""
    keys: dict[str, str] = field(default_factory=dict)
    """The `namespace/name` of waiting and admitted jobs, by UID."""
    undated: set[str] = field(default_factory=set)
    """UIDs of waiting jobs that run on the CPU after a time and whose status does not say since when they wait."""
    planned: dict[str, str] = field(default_factory=dict)
    """The `namespace/name` of running jobs whose workers are not all bound, by UID."""
    replaceable: dict[str, AtWork] = field(default_factory=dict)
    """Running jobs whose workers are replaced one by one, with workers without a node, by UID."""
    replacements: dict[str, Placement] = field(default_factory=dict)
    """Plans with other nodes for lost workers, by UID. Filled once the jobs on their way have their room."""
    moving: dict[str, Candidate] = field(default_factory=dict)
    """What is held for jobs at the destinations of their moves, by the UID of the job that moves."""
    lost_moves: set[str] = field(default_factory=set)
    """UIDs of jobs that move and whose room elsewhere is gone. Filled once the jobs on their way have their room."""
    orders: dict[str, Order] = field(default_factory=dict)
    """Preemptions, by the UID of the preempted job. Filled once everything is decided."""
    ground: Ground | None = None
    """What decides whether shapes have room; None if no other cycle has that. Filled with the jobs on their way."""
    timers: list[float] = field(default_factory=list)
    """In how many seconds time alone changes a request for new nodes. Filled once everything is decided."""
    failed: list[str] = field(default_factory=list)
    """The `namespace/name` of jobs on which our own code has just failed."""


def survey(state: State, *, now: datetime, foresees: bool = False, caches: CycleCaches | None = None) -> Cycle:
    """Gather all jobs that the queue decides on.

    An admitted job without a batch Job is on its way.

    Only a cycle that `foresees` starts includes when running jobs are likely to end. `caches` are those of the previous
    cycle.
    """
    caches = caches or caches_for(state)
    state.store.quotas.observe(state.store.view.ledger, now=now, grace_seconds=state.preemption.reclaim_grace_seconds)
    cycle, waiting = Cycle(now=now, foresees=foresees, caches=caches), list[Candidate]()
    source = _Source(state, cycle=cycle)
    for key in caches.candidates.moving(state):
        job = state.store.jobs[key]
        if is_finished(job):
            continue
        try:
            if (candidate := _survey_one(job, key=key, state=state, cycle=cycle, source=source)) is not None:
                waiting.append(candidate)
        except Exception as error:  # noqa: BLE001 - one job must not stop the others
            if state.decisions.record_failure(job, error=error):
                cycle.failed.append(key)
    if state.store.jobs_that_ran:
        cycle.moving.update(held_moves(state, sites=cycle.sites))
    settled = caches.candidates.settled(state, sites=cycle.sites)
    cycle.waiting = order([*settled, *waiting]) if waiting else settled
    cycle.keys |= caches.candidates.keys_settled
    caches.candidates.forget_others()
    caches.running.forget_others()
    soon = leaving_soon(state.store.pods.leaving(running=source.running))
    cycle.leaving.extend(soon)
    cycle.going.update(each.key for each in soon)
    return cycle


class _Source:
    """The facts about the jobs of a cycle, from the state and the caches."""

    def __init__(self, state: State, *, cycle: Cycle) -> None:
        self._state = state
        self._cycle = cycle
        # The UIDs of batch Jobs at work.
        self.running = set[str]()

    def child_of(self, job: GPUJob) -> Job | None:
        return self._state.store.child_of(job)

    def work_of(self, job: GPUJob) -> AtWork | None:
        caches, key = self._cycle.caches, key_of(job.metadata)
        return caches.running.running_job(job, key=key, state=self._state, running=self.running)

    def is_due(self, job: GPUJob) -> bool:
        state = self._state
        if state.number_of(job) is None or not wants_admission(job, child=self.child_of(job)):
            return False
        return state.obstacle_of(job, now=self._cycle.now) is None

    def admission_of(self, job: GPUJob) -> Admitted | None:
        verdict = self._state.decisions.verdicts.get(job.metadata.uid)
        return verdict if isinstance(verdict, Admitted) else None

    def candidate(
        self, job: GPUJob, *, workers: int, nodes: tuple[str, ...] = (), waits: bool = False
    ) -> Candidate | None:
        candidates, sites = self._cycle.caches.candidates, self._cycle.sites
        return candidates.candidate(job, state=self._state, sites=sites, workers=workers, nodes=nodes, waits=waits)


def _survey_one(job: GPUJob, *, key: str, state: State, cycle: Cycle, source: _Source) -> Candidate | None:
    """Add one job to the cycle. Returns a candidate that waits and is not settled."""
    entry = entry_of(job, source=source, now=cycle.now)
    if entry is None:
        return None
    if entry.work is not None:
        _note_at_work(entry.work, candidate=entry.candidate, key=key, state=state, cycle=cycle)
        return None
    candidate = entry.candidate
    assert candidate is not None, "only a job at work has none"
    cycle.keys[job.metadata.uid] = key
    if _is_timed(candidate) and job.status.gpu_wait_start_time is None:
        cycle.undated.add(job.metadata.uid)
    if not entry.waits:
        cycle.on_the_way.append(candidate)
        return None
    return None if cycle.caches.candidates.settle(job, key=key) else candidate


def _note_at_work(at_work: AtWork, *, candidate: Candidate | None, key: str, state: State, cycle: Cycle) -> None:
    """Add when a running job ends, and which of its workers have no node yet: the `candidate`."""
    learned = state.store.expectations if cycle.foresees else None
    cycle.leaving.extend(at_work.run.leaving(now=cycle.now, learned=learned))
    if candidate is None:
        return
    job, uid = at_work.job, at_work.job.metadata.uid
    cycle.planned[uid] = key
    cycle.on_the_way.append(candidate)
    if job.spec.restart == "Worker" and at_work.nodes:
        cycle.replaceable[uid] = at_work
    if doubt := state.store.refused_pods.doubt(job, child=at_work.child, pods=at_work.pods):
        cycle.doubts[uid] = doubt
    elif at_work.refused:
        cycle.doubts[uid] = doubt_of_refusal(job, pods=at_work.pods)


def next_fallback_seconds(cycle: Cycle) -> float | None:
    """In how many seconds the next waiting job is to run on the CPU; None for none."""
    return min((job.cpu_in_seconds for job in cycle.waiting if _is_timed(job) and job.cpu_in_seconds), default=None)


def _is_timed(job: Candidate) -> bool:
    return job.cpu_in_seconds is not None and math.isfinite(job.cpu_in_seconds)


def decide(
    state: State,
    *,
    cycle: Cycle,
    foreseen: Mapping[str, QueuePlace] | None = None,
    previous: Mapping[str, Verdict] | None = None,
    renewed_reasons: Container[Reason] = (),
    ended: Iterable[str] = (),
    pause: Callable[[], None] = without_pause,
) -> Iterator[Verdict]:
    """Yield the verdicts on waiting jobs in queue order, with the estimates of `foreseen`.

    `previous` has the jobs' previous verdicts. A job keeps its own, and none is yielded, if the reason is the same,
    except for the first jobs and for the `renewed_reasons`. The limits do not count the running jobs with the UIDs
    `ended`. `pause` is called many times within a verdict that takes long.
    """
    evictor = _evictor(state, cycle=cycle, pause=pause)
    places, known = foreseen or {}, Previous(verdicts=previous or {}, renewed_reasons=renewed_reasons)
    for verdict in _verdicts(state, cycle=cycle, evictor=evictor, previous=known, ended=ended):
        if isinstance(verdict, Admitted):
            yield verdict
        else:
            place = places.get(verdict.key)
            yield _with_place(state, cycle=cycle, verdict=verdict, evictor=evictor, foreseen=place)


def _verdicts(
    state: State, *, cycle: Cycle, evictor: Evictor, previous: Previous, ended: Iterable[str]
) -> Iterator[Verdict]:
    """The queue's verdicts within limits, windows and growing pools. Notes when growth has to be asked again."""
    quotas, view = state.store.quotas, state.store.view
    ledger, leaving = with_those_on_the_way(state, cycle=cycle)
    restarted = list[Admitted]()
    if cycle.moving:
        restarted += started_elsewhere(cycle.waiting, moving=cycle.moving, lost=cycle.lost_moves, ledger=ledger)
    yield from restarted
    started = {verdict.key for verdict in restarted}
    shortages = cycle.caches.shortages.on(None if started else cycle.ground)
    counted = counted_jobs(state, waiting=cycle.keys, cache=cycle.caches.usage)
    gate = quotas.gate(counted, children=children_of_jobs(state), capacity=quotas.capacity(view.ledger))
    if gate is not None:
        for uid in ended:
            gate.ended(uid)
    growth = growth_of(state, waiting=cycle.keys, previous=previous.verdicts, counted=counted, now=cycle.now)
    windows = windows_of(quotas, counted=counted, view=view, ledger=ledger, leaving=leaving, now=cycle.now, gate=gate)
    quotas.kept, quotas.reserves = windows.kept, windows.ready
    yield from admit(
        [job for job in cycle.waiting if job.key not in started] if started else cycle.waiting,
        ledger=ledger,
        sites=cycle.sites,
        leaving=leaving,
        gate=gate,
        evictor=evictor,
        windows=windows,
        growth=growth,
        shortages=shortages,
        previous=previous,
    )
    if growth is not None and growth.next_seconds is not None:
        cycle.timers.append(growth.next_seconds)


def _evictor(state: State, *, cycle: Cycle, pause: Callable[[], None]) -> Evictor:
    """Finds victims among the jobs that run now, and notes them in the cycle's orders."""
    rules = rules_now(state.preemption, jobs=state.store.jobs_that_ran.values(), now=cycle.now)
    running = running_jobs(state, now=cycle.now)
    served = {each.yields_to for each in running if each.moves and each.left}
    homes = homes_of(served, state=state, waiting=cycle.waiting, sites=cycle.sites) if served else {}
    cycle.sites |= {each.site: each.nodes for each in homes.values()}
    negative_cache = cycle.caches.negative_cache
    return Evictor(
        running=running,
        rules=rules,
        orders=cycle.orders,
        negative_cache=negative_cache,
        pause=pause,
        allowed=disruptions_allowed(state.store.budgets.values()),
        homes={key: each.site for key, each in homes.items()},
    )


def _with_place(state: State, *, cycle: Cycle, verdict: Waits, evictor: Evictor, foreseen: QueuePlace | None) -> Waits:
    """The verdict on a waiting job as its status shows it: with nodes, reserved room and the latest estimate."""
    problem = state.decisions.reshape_problem(verdict.key)
    cards = state.store.cards
    reshaping = clause_of(verdict.key, cards=cards, problem=problem) if cards or problem else NOTHING
    moves = state.decisions.move_clause(verdict.key)
    verdict = with_clause(verdict, clause=_where(state, cycle=cycle, verdict=verdict) + reshaping + moves)
    if reshaping.message:
        verdict = msgspec.structs.replace(verdict, reshaping=reshaping.message)
    if verdict.queue is None:
        return verdict
    preempts = evictor.preemption_clause(verdict.key)
    reserved = None if verdict.kept is None else reserved_room(verdict.kept, now=cycle.now)
    known = verdict.queue if foreseen is None else foreseen
    place = known
    if foreseen is not None or reserved is not None:
        place = msgspec.structs.replace(known, position=verdict.queue.position, reserved=reserved)
    if preempts.message and reserved is not None:
        place = _by_way(place, at=reserved.time, now=cycle.now)
    verdict = with_clause(verdict, clause=preempts)
    if place is verdict.queue and verdict.kept is None:
        # Nearly all jobs of a long queue.
        return verdict
    return msgspec.structs.replace(verdict, queue=place, kept=None)


def _by_way(place: QueuePlace, *, at: str, now: datetime) -> QueuePlace:
    """The estimate for a job that preempts others. It does not depend on estimated ends."""
    return msgspec.structs.replace(
        place,
        estimated_start=at,
        estimated_start_earliest=timestamp(now),
        estimated_start_latest=at,
        basis=BASIS_OF_PREEMPTION.message,
        basis_details=BASIS_OF_PREEMPTION.listed,
    )


def with_those_on_the_way(state: State, *, cycle: Cycle) -> tuple[Ledger, list[Leaving]]:
    """A copy of the ledger with the room of admitted jobs and of those that move, and all known ends."""
    changes = state.store.view.ledger.changes
    ledger = state.store.view.ledger.copy()
    claimed = claim_on_the_way(
        [*cycle.on_the_way, *cycle.moving.values()],
        ledger=ledger,
        sites=cycle.sites,
        going=cycle.going,
        standing=cycle.caches.standing,
    )
    for uid, held in cycle.moving.items():
        if claimed.lost.pop(held.key, None) is not None:
            cycle.lost_moves.add(uid)
    replaced = _replace_lost(cycle, lost=claimed.lost, ledger=ledger)
    for uid in claimed.late:
        # kube-scheduler has to refuse the pod until the ending pods have left.
        cycle.doubts.pop(uid, None)
    lost = {uid: node for uid, node in claimed.lost.items() if uid not in cycle.replacements}
    for uid, node in lost.items():
        cycle.doubts[uid] = doubt_about(node, view=state.store.view, others_go_on=uid in cycle.replaceable)
    leaving = [*cycle.leaving, *claimed.leaving, *replaced]
    cycle.ground = None
    if not replaced:
        claims, ends = tuple(claimed.claims), frozenset(each.key for each in leaving)
        sites = {site: tuple(nodes) for site, nodes in cycle.sites.items()}
        cycle.ground = Ground(changes=changes, limits=ledger.limits, claims=claims, ends=ends, sites=sites)
    return ledger, leaving


def _replace_lost(cycle: Cycle, *, lost: Container[str], ledger: Ledger) -> list[Leaving]:
    """Give lost workers other nodes where a job allows that; when these workers end."""
    leaving: list[Leaving] = []
    for candidate in cycle.on_the_way:
        at_work = cycle.replaceable.get(candidate.key)
        if at_work is None or candidate.key not in lost:
            continue
        found = replacement_of(at_work.job, pods=at_work.pods, candidate=candidate, ledger=ledger, sites=cycle.sites)
        if found is not None:
            cycle.replacements[candidate.key], ends = found
            # kube-scheduler refuses the pod until the status has the new plan.
            cycle.doubts.pop(candidate.key, None)
            leaving += ends
    return leaving


def _where(state: State, *, cycle: Cycle, verdict: Waits) -> Sentence:
    """The pools or nodes that a shortage is about; empty if it is about all nodes."""
    # A long cycle runs in parts, and the job may have been deleted in between.
    job = state.store.jobs.get(cycle.keys[verdict.key])
    return (
        NOTHING
        if job is None
        else reach(job, reason=verdict.reason, pools=state.store.quotas.pools_of(job), view=state.store.view)
    )


def growth_of(
    state: State,
    *,
    waiting: Mapping[str, str],
    previous: Mapping[str, Verdict],
    counted: Sequence[Counted],
    now: datetime,
) -> Growth | None:
    """The requests of a cycle; None without growing pools. `waiting` and `previous` are those of `requests_of`."""
    if not state.growing.rules.pools:
        return None
    requests = requests_of(state, waiting=waiting, previous=previous)
    return build_growth(
        state.growing.rules,
        view=state.store.view,
        requests=requests,
        answers=_answers_of(state, requests=requests, waiting=waiting),
        gate=state.store.quotas.gate(
            counted, children=children_of_jobs(state), capacity=state.store.quotas.capacity(state.store.view.ledger)
        ),
        now=now,
    )


def requests_of(
    state: State, *, waiting: Mapping[str, str], previous: Mapping[str, Verdict]
) -> dict[str, Provisioning]:
    """The requests for waiting jobs, by UID. `waiting` has their `namespace/name` by UID, `previous` their verdicts.

    A verdict is newer than the status, which follows it; after a restart there is only the status.
    """
    found = ((uid, _request_of(state, uid=uid, key=key, verdict=previous.get(uid))) for uid, key in waiting.items())
    return {uid: request for uid, request in found if request is not None}


def _request_of(state: State, *, uid: str, key: str, verdict: Verdict | None) -> Provisioning | None:
    if isinstance(verdict, Waits):
        return verdict.provisioning
    job = state.store.jobs.get(key)
    return None if job is None or job.metadata.uid != uid else job.status.provisioning


def _answers_of(state: State, *, requests: Mapping[str, Provisioning], waiting: Mapping[str, str]) -> dict[str, Answer]:
    """The cluster autoscaler's answers to these requests, by the job's UID."""
    answers, found = state.growing.answers, dict[str, Answer]()
    if not answers:
        return found
    for uid, request in requests.items():
        job = state.store.jobs.get(waiting[uid])
        if job is None:
            continue
        name = provisioning_request_name(request, of=job.metadata)
        if (answer := answers.get(f"{job.metadata.namespace}/{name}")) is not None:
            found[uid] = answer
    return found


def running_jobs(state: State, *, now: datetime) -> list[Running]:
    """Jobs that run or were just preempted; none if no job may be ended for another one."""
    have_run = state.store.jobs_that_ran
    moves = state.decisions.moves or any(under_way(job.status.move) for job in have_run.values())
    if not state.preemption.gap and not state.store.quotas.tree().guarantees and not moves:
        return []
    preempted = any(job.status.preemption is not None for job in have_run.values())
    served = served_jobs(state.store.jobs.values()) if preempted else frozenset()
    found = (running_job(state, key=key, job=job, served=served, now=now) for key, job in have_run.items())
    return [each for each in found if each is not None]


def running_job(
    state: State, *, key: str, job: GPUJob, now: datetime, served: Container[str] = frozenset()
) -> Running | None:
    """The job with this key as one that may be ended for others; None if it does not run. See `running_of`."""
    child, notice = state.store.child_of(job), state.decisions.notices.get(job.metadata.uid)
    return running_of(
        job,
        child=child,
        pods=state.store.pods.pods_of(child),
        pods_of_all_runs=lambda: state.store.pods.named(key),
        served=served,
        quotas=state.store.quotas,
        now=now,
        # Statuses are written one by one. A cycle that sees only some of a gang's victims would look for others.
        announced="" if notice is None or notice.by == DRAIN else notice.by,
        move=state.decisions.moves.get(job.metadata.uid),
        budgets=state.store.budgets_of(job.metadata.namespace),
    )
