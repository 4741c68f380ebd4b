"""A cycle of the queue over the operator's state: who waits, who is on the way, and what each is told. No I/O."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dovetail.api.gpujob import GPUJob
from dovetail.kube.reflector import key_of
from dovetail.queue.admission import Admitted, Verdict, Waits, admit
from dovetail.queue.candidates import Candidate, claim_on_the_way
from dovetail_operator.observed import is_on_the_way, wants_admission, workers_without_node
from dovetail_operator.state import State

# A number in a sentence changes with every pod: written for each of thousands of jobs it would be all that we do.
# So a sentence whose reason stays is renewed for the first jobs of the queue only, and not all the time.
RENEWED_JOBS: Final = 100
RENEWAL_SECONDS: Final = 10.0
_WHERE: Final = ("nodeSelector", "tolerations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """What the queue has to decide on: jobs that want to start, and those that were let go and have no node yet."""

    waiting: list[Candidate]
    on_the_way: list[Candidate]
    sites: dict[str, list[str]]
    keys: dict[str, str]


def survey(state: State) -> Cycle:
    """All jobs that are the queue's business now. An admitted job whose batch Job is not there yet is on its way."""
    cycle = Cycle(waiting=[], on_the_way=[], sites={}, keys={})
    for key, job in state.jobs.items():
        child = state.child_of(job)
        if is_on_the_way(job, child) and child is not None:
            workers = workers_without_node(job, child, state.pods_of(child))
            if workers and (candidate := _candidate(state, job, workers=workers, sites=cycle.sites)) is not None:
                cycle.on_the_way.append(candidate)
        elif wants_admission(job, child) and state.obstacle_of(job) is None:
            candidate = _candidate(state, job, workers=job.spec.workers, sites=cycle.sites)
            if candidate is None or state.number_of(job) is None:
                continue
            cycle.keys[job.metadata.uid] = key
            let_go = isinstance(state.verdicts.get(job.metadata.uid), Admitted)
            (cycle.on_the_way if let_go else cycle.waiting).append(candidate)
    return cycle


def decide(state: State, cycle: Cycle) -> Iterator[Verdict]:
    """The verdicts on those that wait, in the queue's order."""
    ledger = state.view.ledger.copy()
    claim_on_the_way(cycle.on_the_way, ledger=ledger, sites=cycle.sites)
    return admit(cycle.waiting, ledger=ledger, sites=cycle.sites)


class Teller:
    """Decides which news a job is told, so that a sentence's numbers do not cost a write each time they change."""

    def __init__(self) -> None:
        self._told_at: dict[str, float] = {}

    def hold_back(self, verdict: Verdict, before: Verdict | None, *, rank: int, now: float) -> bool:
        """Whether the job is not told `verdict` now. `rank` counts the queue from 0, `now` is in seconds."""
        same = isinstance(verdict, Waits) and isinstance(before, Waits) and verdict.reason == before.reason
        if same and (rank >= RENEWED_JOBS or now < self._told_at.get(verdict.key, 0.0) + RENEWAL_SECONDS):
            return True
        self._told_at[verdict.key] = now
        return False

    def forget_all_but(self, keys: set[str]) -> None:
        """Drop what was noted of jobs that no longer wait."""
        self._told_at = {key: at for key, at in self._told_at.items() if key in keys}


def _candidate(state: State, job: GPUJob, *, workers: int, sites: dict[str, list[str]]) -> Candidate | None:
    ask = state.ask_of(job)
    if ask is None:
        return None
    # Pods of a batch Job that is at work ask in one way, and that does not change.
    child = state.child_of(job)
    at_work = child is not None and not child.spec.suspend
    others = () if at_work else tuple(way for way in state.ways_of(job) if way != ask)
    return Candidate(
        key=job.metadata.uid,
        ask=ask,
        others=others,
        workers=workers,
        priority=job.spec.priority,
        created=job.metadata.creation_timestamp,
        name=key_of(job.metadata),
        site=_site(state, job, sites=sites),
    )


def _site(state: State, job: GPUJob, *, sites: dict[str, list[str]]) -> str:
    """The nodes that the job's pods may go to, noted once for all jobs that say the same about them."""
    spec = job.spec.template.spec
    said: dict[str, Any] = {field: spec[field] for field in _WHERE if spec.get(field)}
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    if node_affinity:
        said["affinity"] = {"nodeAffinity": node_affinity}
    site = json.dumps(said, sort_keys=True)
    if site not in sites:
        sites[site] = state.view.eligible_nodes(spec)
    return site
