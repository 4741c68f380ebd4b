"""Moves in a scheduling cycle: what is held at their destinations, and what starts there. No I/O."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dovetail.api.gpujob import GPUJob, Move, is_finished
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.jobs.batch_job import is_going, is_on_the_way, wants_admission
from dovetail.jobs.moves import under_way
from dovetail.queue.inputs.candidates import held_elsewhere
from dovetail.queue.model.candidates import Candidate, Sites
from dovetail.queue.verdicts import Admitted, Waits
from dovetail_operator.state.candidate_cache import Candidacies
from dovetail_operator.state.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The nodes that are kept for a job, and the key of these as a site."""

    site: str
    nodes: list[str]


def move_of(job: GPUJob, *, state: State) -> Move | None:
    """The job's move as decided, which its status may not have yet."""
    return state.decisions.moves.get(job.metadata.uid, job.status.move)


def held_moves(state: State, *, sites: dict[str, list[str]]) -> dict[str, Candidate]:
    """What is held at the destinations of moves, by UID of the job that moves. Adds its nodes to `sites`."""
    found: dict[str, Candidate] = {}
    for job in state.store.jobs_that_ran.values():
        move = move_of(job, state=state)
        if move is None or not under_way(move) or move.reserved is None or not _goes_on(job, state=state):
            continue
        # A cache of its own: the cycle's has the job with the workers that have no node yet.
        candidate = Candidacies().candidate(job, state=state, sites=sites, workers=job.spec.workers)
        held = None if candidate is None else held_elsewhere(candidate, move=move)
        if held is not None:
            found[job.metadata.uid] = held
    return found


def _goes_on(job: GPUJob, *, state: State) -> bool:
    """Whether the job runs, or waits for its run at the destination, which the queue has not admitted yet."""
    child = state.store.child_of(job)
    if is_finished(job) or is_going(job) or job.spec.suspend or job.spec.cancel:
        return False
    if is_on_the_way(job, child=child):
        return True
    return wants_admission(job, child=child) and not isinstance(
        state.decisions.verdicts.get(job.metadata.uid), Admitted
    )


def homes_of(served: Container[str], *, state: State, waiting: Sequence[Candidate], sites: Sites) -> dict[str, Home]:
    """The nodes that are kept for the waiting jobs `served`, for which others have moved, by their UIDs.

    Of several plans that are under way, each job starts on the nodes that its own one has freed.
    """
    found: dict[str, Home] = {}
    for each in waiting:
        job = state.store.jobs.get(each.name)
        if each.key not in served or job is None or job.metadata.uid != each.key:
            continue
        verdict = state.decisions.verdicts.get(each.key)
        place = verdict.queue if isinstance(verdict, Waits) and verdict.queue is not None else job.status.queue
        reserved = None if place is None else place.reserved
        able = None if each.site not in sites else frozenset(sites[each.site])
        nodes = [] if reserved is None else [one.name for one in reserved.nodes]
        nodes = [node for node in nodes if state.store.view.ledger.exists(node) and (able is None or node in able)]
        if nodes:
            found[each.key] = Home(site=f"kept for {each.key}", nodes=nodes)
    return found


def started_elsewhere(
    waiting: Sequence[Candidate], *, moving: Mapping[str, Candidate], lost: Container[str], ledger: Ledger
) -> Iterator[Admitted]:
    """Admit the jobs that have ended for a move, on the room that is held for them.

    The room becomes theirs in `ledger`, before the queue decides on any other job. `lost` are the UIDs of jobs whose
    room is gone.
    """
    for job in waiting:
        held = moving.get(job.key)
        if held is None or job.key in lost:
            continue
        claims = [claim for at in range(held.workers) if (claim := ledger.release(f"{held.key}/{at}")) is not None]
        if len(claims) < held.workers:
            ledger.commit_all(claims)
            continue
        own = _renamed(claims, uid=job.key)
        ledger.commit_all(own)
        yield Admitted(key=job.key, claims=own, ask=held.ask)


def _renamed(claims: Sequence[Claim], *, uid: str) -> tuple[Claim, ...]:
    return tuple(replace(claim, key=f"{uid}/{at}") for at, claim in enumerate(claims))
