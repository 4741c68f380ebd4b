"""Preemption notices: which running jobs are to end, for which waiting job or drained node, and whether that holds.

For a node that is to be emptied, a job gets a notice only if a cycle right now would start it elsewhere, with all its
workers, next to all jobs that got one before. A job without such room goes on: an end without a start would lose its
place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.builtin import is_terminated
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.api.reasons.end import IS_EMPTIED, MOVES_FOR, MOVES_FOR_ANOTHER, PREEMPTED_FOR, PREEMPTED_FOR_ANOTHER
from dovetail.cluster.availability import is_leaving
from dovetail.pods.disruption_budgets import disruptions_allowed, may_end_together
from dovetail.queue.backfill.advance_reservation import is_reserve
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.preemption.policy import Order
from dovetail.queue.verdicts import Admitted
from dovetail_operator.job.drain import DRAIN
from dovetail_operator.job.observation import Notice, Observed
from dovetail_operator.queue.cycle import Cycle, decide, running_job, survey
from dovetail_operator.queue.cycle_caches import CycleCaches
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.candidate_cache import Candidacies
from dovetail_operator.state.state import State

# How long until preemption is checked again without a change.
_CHECK_SECONDS: Final = 5.0
# How long a proof counts, that of a cycle or our own. Without it, a gang of 4,000 GPUs for which 1,330 jobs end would
# be proven 1,330 times, 2.5 s of CPU each. The queue's cycles withdraw notices meanwhile.
_PROOF_TIME: Final = timedelta(seconds=5)


# The least time between the notice of a job that moves and its end. The extender holds the room elsewhere once its
# watch shows the status, and the proof before the end sees what has taken that room meanwhile.
_HELD_SECONDS: Final = 2.0
# Each proof is a whole cycle: of many jobs on drained nodes, the first leave first.
_MOST_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaving:
    """A running job with a worker on a node that is to be emptied.

    `candidate` is the job with all its workers, and `claims` are the keys of what they hold. `covered_pods` says how
    many of its pods each PodDisruptionBudget covers.
    """

    key: str
    node: str
    candidate: Candidate
    claims: tuple[str, ...]
    covered_pods: Mapping[str, int]


def drain_notices(state: State, *, cycle: Cycle) -> dict[str, Notice]:
    """The notices of jobs that are to restart on other nodes, by UID. Empty unless the configuration says Restart."""
    if not state.drain.restarts:
        return {}
    nodes = {name for name, node in state.store.view.nodes.items() if is_leaving(node)}
    moving: list[_Leaving] = []
    for each in _on(nodes, state=state, cycle=cycle)[:_MOST_AT_ONCE] if nodes else ():
        if _within_budgets([*moving, each], state=state) and _would_start([*moving, each], state=state, cycle=cycle):
            moving.append(each)
    return {
        each.candidate.key: Notice(
            by=DRAIN,
            message=IS_EMPTIED(node=each.node).message,
            grace_seconds=state.drain.grace_seconds,
        )
        for each in moving
    }


def _within_budgets(leaving: Sequence[_Leaving], *, state: State) -> bool:
    """Whether the ends of all of them break no PodDisruptionBudget."""
    allowed = disruptions_allowed(state.store.budgets.values())
    return len(may_end_together([each.covered_pods for each in leaving], allowed=allowed)) == len(leaving)


def _on(nodes: set[str], *, state: State, cycle: Cycle) -> list[_Leaving]:
    """The restartable jobs with a worker on one of the nodes, the highest priority first."""
    found = (_on_one_of(nodes, job=job, key=key, state=state, cycle=cycle) for key, job in state.store.jobs.items())
    jobs = [each for each in found if each is not None]
    return sorted(jobs, key=lambda each: (-each.candidate.priority, each.candidate.created, each.key))


def _on_one_of(nodes: set[str], *, job: GPUJob, key: str, state: State, cycle: Cycle) -> _Leaving | None:
    pods = state.store.pods.pods_of(state.store.child_of(job))
    # The pods of the run before may still be terminating there.
    living = [pod for pod in pods if pod.metadata.deletion_timestamp is None and not is_terminated(pod)]
    held = sorted(pod.spec.node_name for pod in living if pod.spec.node_name in nodes)
    if not held or not job.spec.preemptible or job.spec.reservation is not None:
        return None
    running = running_job(state, key=key, job=job, now=cycle.now)
    if running is None or running.left:
        return None
    # A cache of its own: the cycle's has the job with the workers that have no node yet.
    candidate = Candidacies().candidate(job, state=state, sites=cycle.sites, workers=job.spec.workers)
    if candidate is None:
        return None
    return _Leaving(
        key=key,
        node=held[0],
        candidate=candidate,
        claims=running.claims,
        covered_pods=running.covered_pods,
    )


def _would_start(leaving: Sequence[_Leaving], *, state: State, cycle: Cycle) -> bool:
    """Whether a cycle would start all these jobs if none of them ran."""
    uids = {each.candidate.key for each in leaving}
    trial = replace(
        cycle,
        waiting=[*cycle.waiting, *(each.candidate for each in leaving)],
        on_the_way=[each for each in cycle.on_the_way if each.key not in uids],
        leaving=[each for each in cycle.leaving if each.job not in uids],
        keys={**cycle.keys, **{each.candidate.key: each.key for each in leaving}},
        doubts={},
        orders={},
        timers=[],
    )
    with state.store.view.ledger.without([claim for each in leaving for claim in each.claims]):
        verdicts = decide(state, cycle=trial, ended=uids)
        started = {verdict.key for verdict in verdicts if isinstance(verdict, Admitted)}
    return uids <= started


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """That a job starts by the end of some running jobs.

    - `by`: namespace and name of the job that starts
    - `victims`: the UIDs of the jobs that end for it
    - `until`: how long it counts
    """

    by: str
    victims: frozenset[str]
    until: datetime


class PreemptionNotices:
    """Keeps the decisions' notices current, and marks their jobs as changed."""

    def __init__(
        self,
        state: State,
        *,
        caches: CycleCaches,
        changed: Callable[[str], None],
        wake_up: WakeUp,
        now: Callable[[], datetime],
    ) -> None:
        self._state = state
        self._caches = caches
        self._changed = changed
        self._wake_up = wake_up
        self._now = now
        # By the UID of the job that starts.
        self._proofs: dict[str, _Proof] = {}

    def update(self, cycle: Cycle) -> None:
        """Announce the preemptions of the cycle and the restarts of drained jobs, and withdraw all others."""
        self._remember(cycle.orders)
        before = self._state.decisions.notices
        now = drain_notices(self._state, cycle=cycle) | notices_of(cycle.orders, state=self._state)
        self._state.decisions.set_notices(now)
        for key, job in self._state.store.jobs.items() if before or now else ():
            if before.get(job.metadata.uid) != now.get(job.metadata.uid):
                self._changed(key)
        if (cycle.waiting or now) and (self._state.preemption.gap or now or self._caches.negative_cache.is_behind):
            # Jobs become old enough to be preempted by time alone, and a cycle searches for few of them.
            self._wake_up.within(seconds=_CHECK_SECONDS)

    def still_hold(self, seen: Observed) -> bool:
        """Whether a cycle still starts the job for which this one is about to end.

        For a job that leaves a drained node, that is the job itself. A gang's proof counts for all who end for it.
        """
        if seen.notice is not None and self._is_proven(seen.job.metadata.uid, by=seen.notice.by):
            return True
        cycle = survey(self._state, now=self._now(), caches=self._caches)
        if seen.notice is not None and seen.notice.by == DRAIN:
            return seen.job.metadata.uid in drain_notices(self._state, cycle=cycle)
        for verdict in decide(self._state, cycle=cycle):
            if seen.notice is not None and verdict.key == seen.notice.by:
                # The jobs behind it, among them those that have ended for it, change nothing about that.
                break
        self._remember(cycle.orders)
        order = cycle.orders.get(seen.job.metadata.uid)
        return order is not None and seen.notice is not None and order.by.key == seen.notice.by

    def _is_proven(self, uid: str, *, by: str) -> bool:
        """Whether a recent proof has this job end for one that still waits."""
        proof = self._proofs.get(by)
        if proof is None or uid not in proof.victims or self._now() > proof.until:
            return False
        if is_reserve(by):
            return True
        job = self._state.store.jobs.get(proof.by)
        waits = job is not None and job.metadata.uid == by and not is_finished(job)
        return waits and not isinstance(self._state.decisions.verdicts.get(by), Admitted)

    def _remember(self, orders: Mapping[str, Order]) -> None:
        until = self._now() + _PROOF_TIME
        victims: dict[str, set[str]] = {}
        for uid, order in orders.items():
            victims.setdefault(order.by.key, set()).add(uid)
        names = {order.by.key: order.by.name for order in orders.values()}
        self._proofs = {by: _Proof(by=names[by], victims=frozenset(each), until=until) for by, each in victims.items()}


def notices_of(orders: Mapping[str, Order], *, state: State) -> dict[str, Notice]:
    """The notices of the preempted jobs, by UID."""
    by_uid = {job.metadata.uid: job for job in state.store.jobs.values() if job.metadata.uid in orders}
    # All that move for one job have their room elsewhere before any of them ends.
    unheld = {move.by for move in state.decisions.moves.values()}
    return {
        uid: Notice(
            by=order.by.key,
            message=order.reclaim or _preemptor_name(by_uid[uid], by=order.by, moves=order.moves),
            grace_seconds=max(_HELD_SECONDS, order.grace_seconds) if order.moves else order.grace_seconds,
            moves=order.moves,
        )
        for uid, order in orders.items()
        if uid in by_uid and not (order.moves and order.by.key in unheld)
    }  # fmt: skip


def _preemptor_name(job: GPUJob, *, by: Candidate, moves: bool) -> str:
    namespace, _, name = by.name.partition("/")
    # A message must not reveal the names of jobs in other namespaces.
    is_near = namespace == job.metadata.namespace
    if moves:
        return MOVES_FOR(job=name).message if is_near else MOVES_FOR_ANOTHER().message
    if not is_near:
        return PREEMPTED_FOR_ANOTHER(priority=by.priority, own=job.spec.priority).message
    return PREEMPTED_FOR(job=name, priority=by.priority, own=job.spec.priority).message
