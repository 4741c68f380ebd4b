"""The candidates of a cycle, kept as long as nothing has changed that they follow from. No I/O.

Each cycle takes all jobs that wait or start, and hardly one of thousands has changed since the cycle before.
`dovetail.queue.inputs` computes each entry.
"""

from dataclasses import replace
from typing import NamedTuple

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.queue.inputs.candidates import Rules, candidate_of, eligible_nodes, expected_now
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.verdicts import Admitted
from dovetail_operator.state.generation_cache import Remembered
from dovetail_operator.state.state import State

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
        uid, child, pools = job.metadata.uid, state.store.child_of(job), state.store.quotas.pools_of(job)
        verdict, learned = state.decisions.verdicts.get(uid), state.store.expectations.learned_of(job)
        plan = verdict if isinstance(verdict, Admitted) else None
        rank = state.store.quotas.rank_of(job)
        values = (workers, nodes, pools, rank, state.number_of(job) or 0, state.requests.estimate_of(job))
        known = self.get(uid)
        if known is None or not _is_same(known, job, child, plan, values):
            made = _made(job, child=child, plan=plan, state=state, workers=workers, nodes=nodes)
        elif known.learned != learned:
            made = expected_now(known.candidate, job=job, expectations=state.store.expectations)
        else:
            made = known.candidate
        if made is None:
            return None
        if made.share != (share := state.store.quotas.level_of(job)):
            made = replace(made, share=share)
        stays = waits and child is None and plan is None and _is_for_itself(job, state=state)
        self.keep(uid, _Kept(made, job, child, plan, values, state.store.quotas.version, learned, stays))
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
            or known.quotas != state.store.quotas.version
            or known.learned != state.store.expectations.learned_of(job)
            or known.candidate.number != state.number_of(job)
            or not state.is_left_to_itself(uid, key=key)
        ):
            return None
        self.keep(uid, known)
        _note_nodes(job, state=state, site=known.candidate.site, sites=sites)
        return known.candidate


def _note_nodes(job: GPUJob, *, state: State, site: str, sites: _Sites) -> None:
    """Note the nodes that the job's pods may go to, where those of its site are not known yet in this cycle."""
    if site not in sites:
        sites[site] = eligible_nodes(job, view=state.store.view, quotas=state.store.quotas)


def _is_same(known: _Kept, job: GPUJob, child: Job | None, plan: Admitted | None, values: tuple[object, ...]) -> bool:
    return known.job is job and known.child is child and known.plan is plan and known.values == values


def _is_for_itself(job: GPUJob, *, state: State) -> bool:
    """Whether neither time nor any other job has a say in whether it may start, and with what."""
    held = job.spec.begin_time is not None or job.status.attempts or job.spec.dependencies
    return not held and not state.store.learning.estimates(job)


def _made(
    job: GPUJob, *, child: Job | None, plan: Admitted | None, state: State, workers: int, nodes: tuple[str, ...]
) -> Candidate | None:
    return candidate_of(
        job,
        child=child,
        ways=state.requests.ways_of(job),
        admitted=None if plan is None else plan.ask,
        workers=workers,
        nodes=nodes,
        number=state.number_of(job) or 0,
        rules=Rules(quotas=state.store.quotas, run_times=state.run_times, expectations=state.store.expectations),
    )
