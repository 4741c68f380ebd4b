"""Drain notices: which running jobs leave their nodes, because these are to be emptied and others have room. No I/O.

A job gets a notice only if a cycle right now would start it elsewhere, with all its workers, next to all jobs that got
one before. A job without such room goes on: an end without a start would lose its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dovetail.api.builtin import is_terminated
from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons.end import IS_EMPTIED
from dovetail.cluster.availability import is_leaving
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.verdicts import Admitted
from dovetail_operator.job.drain import DRAIN
from dovetail_operator.job.observation import Notice
from dovetail_operator.queue.cycle import Cycle, decide
from dovetail_operator.queue.preemption_candidates import running_job
from dovetail_operator.state.candidate_cache import Candidacies
from dovetail_operator.state.state import State

# Each proof is a whole cycle: of many jobs on drained nodes, the first leave first.
_MOST_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaving:
    """A running job with a worker on a node that is to be emptied.

    `candidate` is the job with all its workers, `claims` are the keys of what they hold.
    """

    key: str
    node: str
    candidate: Candidate
    claims: tuple[str, ...]


def drain_notices(state: State, *, cycle: Cycle) -> dict[str, Notice]:
    """The notices of jobs that are to restart on other nodes, by UID. Empty unless the configuration says Restart."""
    if not state.drain.restarts:
        return {}
    nodes = {name for name, node in state.store.view.nodes.items() if is_leaving(node)}
    moving: list[_Leaving] = []
    for each in _on(nodes, state=state, cycle=cycle)[:_MOST_AT_ONCE] if nodes else ():
        if _would_start([*moving, each], state=state, cycle=cycle):
            moving.append(each)
    return {
        each.candidate.key: Notice(
            by=DRAIN,
            message=IS_EMPTIED(node=each.node).message,
            grace_seconds=state.drain.grace_seconds,
        )
        for each in moving
    }


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
    return _Leaving(key=key, node=held[0], candidate=candidate, claims=running.claims)


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
