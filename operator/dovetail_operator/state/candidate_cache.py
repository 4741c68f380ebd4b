"""Jobs as the queue sees them, made out of the operator's state. No I/O.

Each look at the queue takes all jobs that wait or start, and of thousands hardly one has changed since the look before:
what was made of a job is kept as long as all that it was made of is the same.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.pods.demand import written_spec
from dovetail.queue.limits.priorities import Rank
from dovetail.queue.limits.quotas import spec_in_pools
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.model.gate import Refused
from dovetail.queue.verdicts import Admitted
from dovetail_operator.job.time_limits import is_limited
from dovetail_operator.state.generation_cache import Remembered
from dovetail_operator.state.state import State

_WHERE: Final = ("nodeSelector", "tolerations")
_Sites = dict[str, list[str]]


class _Kept(NamedTuple):
    """A candidate and all that it was made of; objects are never changed, but replaced.

    `stays`: it waits, and goes on to as long as it is `State.left_to_itself` and what is compared here is the same.
    """

    candidate: Candidate
    job: GPUJob
    child: Job | None
    plan: Admitted | None
    values: tuple[object, ...]
    quotas: int
    learned: int
    stays: bool


class Candidacies(Remembered[_Kept]):
    """Candidates from look to look, by the job's UID."""

    def of(
        self,
        job: GPUJob,
        *,
        state: State,
        sites: _Sites,
        workers: int,
        nodes: tuple[str, ...] = (),
        waits: bool = False,
    ) -> Candidate | None:
        """The job for the queue; None where its request cannot be read.

        `workers` are those that have no node yet and `nodes` what a plan that stands has for them; the nodes that
        its pods may go to are noted in `sites`. Of one that `waits` that may be known without looking, the next time.
        """
        uid, child, pools = job.metadata.uid, state.child_of(job), state.quotas.pools_of(job)
        verdict, learned = state.verdicts.get(uid), state.expectations.learned_of(job)
        plan = verdict if isinstance(verdict, Admitted) else None
        rank = state.quotas.rank_of(job)
        values = (workers, nodes, pools, rank, state.number_of(job) or 0, state.estimate_of(job))
        known = self.get(uid)
        if known is None or not _is_same(known, job, child, plan, values):
            made = _made(job, child, state=state, pools=pools, rank=rank, workers=workers, nodes=nodes)
        elif known.learned != learned:
            made = _expecting(known.candidate, job, state=state)
        else:
            made = known.candidate
        if made is None:
            return None
        if made.share != (share := state.quotas.level_of(job)):
            made = replace(made, share=share)
        stays = waits and child is None and plan is None and _is_for_itself(job, state=state)
        self.keep(uid, _Kept(made, job, child, plan, values, state.quotas.version, learned, stays))
        _note_nodes(job, state=state, site=made.site, sites=sites)
        return made

    def still_waiting(self, job: GPUJob, *, key: str, state: State, sites: _Sites) -> Candidate | None:
        """The job for the queue where it waited before and nothing has changed that could end that, or make another
        candidate of it; else None: then it has to be looked at."""
        uid = job.metadata.uid
        known = self.get(uid)
        if (
            known is None
            or not known.stays
            or known.job is not job
            or known.quotas != state.quotas.version
            or known.learned != state.expectations.learned_of(job)
            or known.candidate.number != state.number_of(job)
            or not state.is_left_to_itself(uid, key=key)
        ):
            return None
        self.keep(uid, known)
        _note_nodes(job, state=state, site=known.candidate.site, sites=sites)
        return known.candidate


def _note_nodes(job: GPUJob, *, state: State, site: str, sites: _Sites) -> None:
    """Note the nodes that the job's pods may go to, where those of its site are not known yet in this look."""
    if site not in sites:
        sites[site] = state.view.eligible_nodes(spec_in_pools(written_spec(job), state.quotas.pools_of(job)))


def _is_same(known: _Kept, job: GPUJob, child: Job | None, plan: Admitted | None, values: tuple[object, ...]) -> bool:
    return known.job is job and known.child is child and known.plan is plan and known.values == values


def _is_for_itself(job: GPUJob, *, state: State) -> bool:
    """Whether neither time nor any other job has a say in whether it may start, and with what."""
    held = job.spec.begin_time is not None or job.status.attempts or job.spec.dependencies
    return not held and not state.learning.estimates(job)


def _expecting(made: Candidate, job: GPUJob, *, state: State) -> Candidate:
    """The same candidate with the run time that is expected by now."""
    likely, within = state.expectations.run_seconds(job), state.expectations.range_seconds(job)
    if (made.likely_seconds, made.likely_range) == (likely, within):
        return made
    return replace(made, likely_seconds=likely, likely_range=within)


def _made(
    job: GPUJob,
    child: Job | None,
    *,
    state: State,
    pools: tuple[str, ...] | Refused,
    rank: Rank,
    workers: int,
    nodes: tuple[str, ...],
) -> Candidate | None:
    ways = state.ways_of(job)
    ask = state.chosen_of(job, ways)
    if ask is None:
        return None
    # Pods of a batch Job that is at work ask in one way, and that does not change.
    at_work = child is not None and not child.spec.suspend
    others = () if at_work else tuple(way for way in ways if way != ask)
    return Candidate(
        key=job.metadata.uid,
        ask=ask,
        others=others,
        workers=workers,
        nodes=nodes,
        least=job.spec.min_workers,
        likely_seconds=state.expectations.run_seconds(job),
        likely_range=state.expectations.range_seconds(job),
        priority=rank.priority,
        may_preempt=rank.may_preempt,
        created=job.metadata.creation_timestamp,
        number=state.number_of(job) or 0,
        name=key_of(job.metadata),
        site=_site(spec_in_pools(written_spec(job), pools)),
        run_seconds=state.run_times.run_seconds(job),
        limited=is_limited(job),
        share=state.quotas.level_of(job),
    )


def _site(spec: Mapping[str, Any]) -> str:
    """What a pod's spec says of the nodes that it may go to: jobs that say the same share their nodes in a cycle."""
    said: dict[str, Any] = {field: spec[field] for field in _WHERE if spec.get(field)}
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    if node_affinity:
        said["affinity"] = {"nodeAffinity": node_affinity}
    # Thousands of jobs say the same: one text for all of them.
    return sys.intern(json.dumps(said, sort_keys=True))
