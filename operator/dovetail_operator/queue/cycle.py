"""A cycle of the queue over the operator's state: who waits, who is on the way, and what each is told. No I/O."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from dovetail.api.gpujob import GPUJob, QueuePlace, Reason
from dovetail.engine.ledger.ledger import Ledger
from dovetail.formats.durations import timestamp
from dovetail.jobs.batch_job import is_finished, wants_admission
from dovetail.jobs.plan import nodes_by_worker
from dovetail.queue.cycle import admit
from dovetail.queue.estimates.monte_carlo import foresee_with_range
from dovetail.queue.inputs.at_work import AtWork
from dovetail.queue.inputs.run_ends import leaving_soon
from dovetail.queue.inputs.workers import sized
from dovetail.queue.limits.quota_reservations import windows_of
from dovetail.queue.limits.scope import reach
from dovetail.queue.model.candidates import Candidate, Leaving, claim_on_the_way
from dovetail.queue.preemption.budget import rules_now
from dovetail.queue.preemption.policy import Evictor, Order
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from dovetail_operator.job.plan import Doubt, doubt_about, doubt_of_refusal, placement_of, reserved_room
from dovetail_operator.queue.cycle_caches import CycleCaches, caches_for
from dovetail_operator.queue.preemption_candidates import running_jobs
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import children_of_jobs, counted_jobs

# A number in a sentence changes with every pod: written for each of thousands of jobs it would be all that we do.
# So where the reason stays, sentence, place and estimate are renewed for the first jobs only, and not all the time.
RENEWED_JOBS: Final = 100
RENEWAL_SECONDS: Final = 30.0
# Jobs were told at many times: those that are due within so long are told with one look.
_TOGETHER_SECONDS: Final = 5.0
# What the estimate rests on of a job for which others make way.
BASIS_OF_WAY: Final = "Those who make way for it have left by then at the latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """What the queue has to decide on: jobs that want to start, and those that were let go and have no node yet.

    `leaving` says when the bound pods of jobs are taken to end, from `now` on, and where the cycle `foresees` starts
    also when they are likely to; `going` are those that are about to.
    `doubts` are about plans that do not seem to hold, by UID; `planned` has the keys of jobs at work whose workers are
    not all bound. `orders` say who makes way for whom, by the UID of the one that does, once all is decided. `failed`
    has the keys of jobs on which our own code has just failed; `at_work` counts the jobs that run or start.
    """

    now: datetime
    caches: CycleCaches = field(compare=False, repr=False)
    foresees: bool = False
    waiting: list[Candidate] = field(default_factory=list)
    on_the_way: list[Candidate] = field(default_factory=list)
    leaving: list[Leaving] = field(default_factory=list)
    going: set[str] = field(default_factory=set)
    doubts: dict[str, Doubt] = field(default_factory=dict)
    sites: dict[str, list[str]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    planned: dict[str, str] = field(default_factory=dict)
    orders: dict[str, Order] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    at_work: int = 0


def survey(state: State, *, now: datetime, foresees: bool = False, caches: CycleCaches | None = None) -> Cycle:
    """All jobs that are the queue's business now. An admitted job whose batch Job is not there yet is on its way.

    When those that run are likely to end is told only to one that `foresees` starts. `caches` are those of the cycle
    before.
    """
    caches = caches or caches_for(state)
    cycle, running = Cycle(now=now, foresees=foresees, caches=caches), set[str]()
    for key, job in state.store.jobs.items():
        if is_finished(job):
            continue
        try:
            _survey_one(job, key=key, state=state, cycle=cycle, running=running)
        except Exception as error:  # noqa: BLE001 - one job stops nobody else
            if state.decisions.record_failure(job, error=error):
                cycle.failed.append(key)
    caches.candidates.forget_others()
    caches.running.forget_others()
    soon = leaving_soon(state.store.pods.leaving(running=running))
    cycle.leaving.extend(soon)
    cycle.going.update(each.key for each in soon)
    return replace(cycle, at_work=len(running))


def _survey_one(job: GPUJob, *, key: str, state: State, cycle: Cycle, running: set[str]) -> None:
    """Note what one job is to the queue, and the UID of its batch Job where that is at work."""
    waiting = cycle.caches.candidates.still_waiting(job, key=key, state=state, sites=cycle.sites)
    if waiting is not None:
        cycle.keys[job.metadata.uid] = key
        cycle.waiting.append(waiting)
        return
    at_work = cycle.caches.running.of(job, key=key, state=state, running=running)
    if at_work is not None:
        _note_at_work(at_work, key=key, state=state, cycle=cycle)
        return
    child = state.store.child_of(job)
    if not wants_admission(job, child) or state.obstacle_of(job, now=cycle.now) is not None:
        return
    verdict = state.decisions.verdicts.get(job.metadata.uid)
    workers = sized(job, child=child, verdict=verdict).spec.workers
    candidate = cycle.caches.candidates.of(job, state=state, sites=cycle.sites, workers=workers, waits=True)
    if candidate is None or state.number_of(job) is None:
        return
    cycle.keys[job.metadata.uid] = key
    if isinstance(verdict, Admitted):
        placement = placement_of(job, verdict)
        nodes = nodes_by_worker(placement) if placement is not None else ()
        cycle.on_the_way.append(replace(candidate, nodes=nodes))
    else:
        cycle.waiting.append(candidate)


def _note_at_work(at_work: AtWork, *, key: str, state: State, cycle: Cycle) -> None:
    """Note when a job at work is going to leave, and which of its workers are still to come."""
    learned = state.store.expectations if cycle.foresees else None
    cycle.leaving.extend(at_work.run.leaving(now=cycle.now, learned=learned))
    if not at_work.workers:
        return
    job, workers, nodes = at_work.job, at_work.workers, at_work.nodes
    candidate = cycle.caches.candidates.of(job, state=state, sites=cycle.sites, workers=workers, nodes=nodes)
    if candidate is not None:
        cycle.planned[job.metadata.uid] = key
        cycle.on_the_way.append(candidate)
        if doubt := state.store.refused_pods.doubt(job, at_work.child, at_work.pods):
            cycle.doubts[job.metadata.uid] = doubt
        elif at_work.refused:
            cycle.doubts[job.metadata.uid] = doubt_of_refusal(job, at_work.pods)


def decide(
    state: State,
    cycle: Cycle,
    *,
    foreseen: Mapping[str, QueuePlace] | None = None,
    told: Mapping[str, Verdict] | None = None,
    anew: Container[Reason] = (),
) -> Iterator[Verdict]:
    """The verdicts on those that wait, in the queue's order; with the estimates of `foreseen`, by the job's UID.

    What a job was `told` stands where its reason does, but for the first jobs and for reasons that are told `anew`: it
    then comes as it is.
    """
    ledger, leaving = _with_those_on_the_way(state, cycle)
    running = running_jobs(state, now=cycle.now)
    rules = rules_now(state.preemption, state.store.jobs.values(), now=cycle.now)
    evictor = Evictor(running=running, rules=rules, orders=cycle.orders, in_vain=cycle.caches.in_vain)
    counted = counted_jobs(state, waiting=cycle.keys, cache=cycle.caches.usage)
    gate, position = state.store.quotas.gate(counted, children=children_of_jobs(state)), 0
    windows = windows_of(
        state.store.quotas, counted, view=state.store.view, ledger=ledger, leaving=leaving, now=cycle.now
    )
    verdicts = admit(
        cycle.waiting, ledger=ledger, sites=cycle.sites, leaving=leaving, gate=gate, evictor=evictor, windows=windows
    )
    told, places = told or {}, foreseen or {}
    for rank, verdict in enumerate(verdicts):
        if isinstance(verdict, Admitted):
            yield verdict
            continue
        # What can never have room here stands in nobody's way.
        position += verdict.reason != "ExceedsCapacity"
        before = told.get(verdict.key)
        if before is not None and stands(before, verdict, rank=rank) and verdict.reason not in anew:
            yield before
            continue
        message, made_way = verdict.message + _where(state, cycle, verdict), evictor.making_way_for(verdict.key)
        if verdict.reason == "ExceedsCapacity":
            yield msgspec.structs.replace(verdict, message=message)
            continue
        known = places.get(verdict.key, QueuePlace(position=1))
        reserved = None if verdict.kept is None else reserved_room(verdict.kept, now=cycle.now)
        place = msgspec.structs.replace(known, position=position, reserved=reserved)
        if made_way and reserved is not None:
            place = _by_way(place, at=reserved.time, now=cycle.now)
        yield msgspec.structs.replace(verdict, message=message + made_way, queue=place, kept=None)


def stands(before: Verdict, verdict: Waits, *, rank: int) -> bool:
    """Whether what a job was told `before` stands: its reason does, and others are renewed. `rank` counts the queue
    from 0."""
    return rank >= RENEWED_JOBS and isinstance(before, Waits) and before.reason == verdict.reason


def _by_way(place: QueuePlace, *, at: str, now: datetime) -> QueuePlace:
    """The estimate of a job for which others make way: none of those that wait for ends to come."""
    return msgspec.structs.replace(
        place,
        estimated_start=at,
        estimated_start_earliest=timestamp(now),
        estimated_start_latest=at,
        basis=BASIS_OF_WAY,
    )


def estimates(state: State, cycle: Cycle) -> Iterator[tuple[str, QueuePlace] | None]:
    """When the first of those that wait are going to start, by UID; their positions are `decide`'s word.

    None now and then, so that the work can be done in parts.
    """
    ledger, leaving = _with_those_on_the_way(state, cycle)
    counted, children = counted_jobs(state, waiting=cycle.keys, cache=cycle.caches.usage), children_of_jobs(state)
    gate = partial(state.store.quotas.gate, counted, children=children)
    yield from _note_arrivals(state, cycle)
    coming = state.store.expectations.coming(now=cycle.now)
    windows = windows_of(
        state.store.quotas, counted, view=state.store.view, ledger=ledger, leaving=leaving, now=cycle.now
    )
    for start in foresee_with_range(
        cycle.waiting, ledger=ledger, sites=cycle.sites, leaving=leaving, gate=gate, coming=coming, windows=windows
    ):
        # A long play is taken in parts: of a job that has gone meanwhile nothing is noted any more.
        if start is None or not _is_there(state, cycle, start.key):
            yield None
        else:
            yield start.key, state.store.expectations.place(start, now=cycle.now)


def _is_there(state: State, cycle: Cycle, uid: str) -> bool:
    job = state.store.jobs.get(cycle.keys[uid])
    return job is not None and job.metadata.uid == uid


def _note_arrivals(state: State, cycle: Cycle) -> Iterator[None]:
    """Learn what came, the oldest first."""
    for job in state.store.expectations.new(state.store.jobs.values()):
        state.store.expectations.came(
            job, cycle.caches.candidates.of(job, state=state, workers=job.spec.workers, sites=cycle.sites)
        )
        yield None


def _with_those_on_the_way(state: State, cycle: Cycle) -> tuple[Ledger, list[Leaving]]:
    """A copy of the ledger in which those have their room that were let go, and all ends that are known."""
    ledger = state.store.view.ledger.copy()
    claimed = claim_on_the_way(
        cycle.on_the_way, ledger=ledger, sites=cycle.sites, going=cycle.going, standing=cycle.caches.standing
    )
    for uid in claimed.late:
        # kube-scheduler is meant to refuse it until those have left that are leaving.
        cycle.doubts.pop(uid, None)
    cycle.doubts.update({uid: doubt_about(node, view=state.store.view) for uid, node in claimed.lost.items()})
    return ledger, [*cycle.leaving, *claimed.leaving]


def _where(state: State, cycle: Cycle, verdict: Waits) -> str:
    """The pools or nodes of which a shortage tells; empty where it is of all nodes."""
    # A long cycle is taken in parts: meanwhile a job may go.
    job = state.store.jobs.get(cycle.keys[verdict.key])
    return (
        "" if job is None else reach(job, verdict.reason, pools=state.store.quotas.pools_of(job), view=state.store.view)
    )


class Teller:
    """Decides which news a job is told, so that a sentence's numbers do not cost a write each time they change."""

    def __init__(self) -> None:
        self._told_at: dict[str, float] = {}

    def hold_back(self, verdict: Verdict, before: Verdict | None, *, rank: int, now: float) -> bool:
        """Whether the job is not told `verdict` now. `rank` counts the queue from 0, `now` is in seconds."""
        if isinstance(verdict, Waits) and isinstance(before, Waits) and verdict.reason == before.reason:
            early = now < self._told_at.get(verdict.key, 0.0) + RENEWAL_SECONDS
            urgent = _is_first_estimate(verdict, before) or _keeps_other_room(verdict, before)
            if stands(before, verdict, rank=rank) or (early and not urgent):
                return True
        self._told_at[verdict.key] = now
        return False

    def renewed_in(self, key: str, *, now: float) -> float:
        """In how many seconds a job is to be told what was held back from it."""
        return max(_TOGETHER_SECONDS, self._told_at.get(key, 0.0) + RENEWAL_SECONDS - now)

    def forget_all_but(self, keys: set[str]) -> None:
        """Drop what was noted of jobs that no longer wait."""
        self._told_at = {key: at for key, at in self._told_at.items() if key in keys}


def _is_first_estimate(verdict: Waits, before: Waits) -> bool:
    known, news = before.queue, verdict.queue
    return news is not None and news.estimated_start is not None and (known is None or known.estimated_start is None)


def _keeps_other_room(verdict: Waits, before: Waits) -> bool:
    """Whether other room is kept for the job than before: the extender goes by what the status says."""
    known = before.queue.reserved if before.queue else None
    news = verdict.queue.reserved if verdict.queue else None
    return (known and known.kept) != (news and news.kept)
