"""Candidates and running jobs of a scheduling cycle, cached while their inputs stay the same. No I/O.

Each cycle needs all of them, and few of thousands have changed since the previous cycle. `dovetail.queue.inputs`
computes each entry.
"""

import math
from dataclasses import replace
from typing import Final, Generic, NamedTuple, TypeVar

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.jobs.batch_job import is_child, is_on_the_way
from dovetail.jobs.cpu_fallback import cpu_after_seconds
from dovetail.queue.inputs.at_work import AtWork, at_work
from dovetail.queue.inputs.candidates import Rules, candidate_of, eligible_nodes, expected_now, site_of_job
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.verdicts import Admitted
from dovetail_operator.state.state import State

_Sites = dict[str, list[str]]
# Different specs whose site is kept for other jobs.
_SPECS: Final = 1024


T = TypeVar("T")


class Remembered(Generic[T]):
    """A cache whose entries live from one cycle to the next, by the job's UID.

    In a cycle, `get` reads the previous cycle's entries.
    `keep` stores an entry for the next cycle. An entry that a cycle does not keep is dropped at its end.
    """

    def __init__(self) -> None:
        self._known: dict[str, T] = {}
        self._kept: dict[str, T] = {}

    def get(self, uid: str) -> T | None:
        """The entry that the previous cycle kept for the job, or None."""
        return self._known.get(uid)

    def keep(self, uid: str, *, value: T) -> None:
        """Store an entry for the next cycle."""
        self._kept[uid] = value

    def clear(self) -> None:
        """Drop all entries: what they were computed from has changed."""
        self._known, self._kept = {}, {}

    def forget_others(self) -> None:
        """End the cycle: drop every entry that it did not keep."""
        self._known, self._kept = self._kept, {}


class _Kept(NamedTuple):
    """A candidate and every input that it was computed from.

    Inputs are replaced, never changed in place.

    `stays`: the job keeps waiting as long as `State.is_left_to_itself` holds and the inputs compared here are the same.
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
    """Candidates by the job's UID, from one cycle to the next."""

    def __init__(self) -> None:
        super().__init__()
        # The sites of specs, by their digest and the job's pools; the oldest leave.
        self._site_of_spec: dict[tuple[bytes, object], str] = {}

    def clear(self) -> None:
        """Drop all entries: what they were computed from has changed."""
        super().clear()
        self._site_of_spec.clear()

    def _site(self, job: GPUJob, *, state: State) -> str | None:
        """The job's site, computed once for all jobs with this spec; None for a spec that no other job shares."""
        digest, quotas = state.requests.read(job).digest, state.store.quotas
        if not digest:
            return None
        key = digest, quotas.pools_of(job)
        site = self._site_of_spec.get(key)
        if site is None:
            site = self._site_of_spec[key] = site_of_job(job, quotas=quotas)
            if len(self._site_of_spec) > _SPECS:
                del self._site_of_spec[next(iter(self._site_of_spec))]
        return site

    def candidate(
        self,
        job: GPUJob,
        *,
        state: State,
        sites: _Sites,
        workers: int,
        nodes: tuple[str, ...] = (),
        waits: bool = False,
    ) -> Candidate | None:
        """Return the job's candidate, or None if its request cannot be read.

        `workers` is the number of workers without a node, and `nodes` are those that the current plan assigns to them.
        Adds the nodes that the job's pods may use to `sites`. `waits` says that the job is only waiting:
        `still_waiting` may then return the candidate in the next cycle without computing it.
        """
        uid, child, pools = job.metadata.uid, state.store.child_of(job), state.store.quotas.pools_of(job)
        verdict, learned = state.decisions.verdicts.get(uid), state.store.expectations.learned_of(job)
        plan = verdict if isinstance(verdict, Admitted) else None
        rank = state.store.quotas.rank_of(job)
        values = (workers, nodes, pools, rank, state.number_of(job) or 0, state.requests.estimate_of(job))
        known = self.get(uid)
        if known is None or not _is_same(known, job=job, child=child, plan=plan, values=values):
            site = self._site(job, state=state)
            made = _made(job, child=child, plan=plan, state=state, workers=workers, nodes=nodes, site=site)
        elif known.learned != learned:
            made = expected_now(known.candidate, job=job, expectations=state.store.expectations)
        else:
            made = known.candidate
        if made is None:
            return None
        if made.share != (share := state.store.quotas.level_of(job)):
            made = replace(made, share=share)
        stays = waits and child is None and plan is None and _is_for_itself(job, state=state)
        self.keep(uid, value=_Kept(made, job, child, plan, values, state.store.quotas.version, learned, stays))
        _note_nodes(job, state=state, site=made.site, sites=sites)
        return made

    def still_waiting(self, job: GPUJob, *, key: str, state: State, sites: _Sites) -> Candidate | None:
        """Return the candidate of a job that waited in the previous cycle, if nothing has changed.

        None if an input has changed that could start the job or change its candidate. Call `of` then.
        """
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
        self.keep(uid, value=known)
        _note_nodes(job, state=state, site=known.candidate.site, sites=sites)
        return known.candidate


def _note_nodes(job: GPUJob, *, state: State, site: str, sites: _Sites) -> None:
    """Add the nodes that the job's pods may use, unless this cycle has them for the site."""
    if site not in sites:
        sites[site] = eligible_nodes(job, view=state.store.view, quotas=state.store.quotas)


def _is_same(
    known: _Kept, *, job: GPUJob, child: Job | None, plan: Admitted | None, values: tuple[object, ...]
) -> bool:
    return known.job is job and known.child is child and known.plan is plan and known.values == values


def _is_for_itself(job: GPUJob, *, state: State) -> bool:
    """Whether neither time nor another job decides when this job may start and with what."""
    held = job.spec.begin_time is not None or job.status.attempts or job.spec.dependencies
    after_seconds = cpu_after_seconds(job, by_namespace=state.cpu_fallback)
    falls_back = after_seconds is not None and math.isfinite(after_seconds)
    return not held and not falls_back and not state.store.learning.estimates(job)


def _made(
    job: GPUJob,
    *,
    child: Job | None,
    plan: Admitted | None,
    state: State,
    workers: int,
    nodes: tuple[str, ...],
    site: str | None,
) -> Candidate | None:
    return candidate_of(
        job,
        child=child,
        ways=state.requests.ways_of(job),
        admitted=None if plan is None else plan.ask,
        workers=workers,
        nodes=nodes,
        number=state.number_of(job) or 0,
        site=site,
        rules=Rules(
            quotas=state.store.quotas,
            run_times=state.run_times,
            expectations=state.store.expectations,
            cpu_fallback=state.cpu_fallback,
        ),
    )


class Runs(Remembered[AtWork]):
    """Running jobs by UID, from one cycle to the next.

    An entry is valid as long as the job, its batch Job and its pods are the identical objects.
    """

    def running_job(self, job: GPUJob, *, key: str, state: State, running: set[str]) -> AtWork | None:
        """The running job with this key, or None if it does not run.

        Adds its batch Job's UID to `running`.
        """
        child = state.store.child_named(key)
        if child is None:
            return None
        uid, pods = job.metadata.uid, state.store.pods.pods_of(child)
        known = self.get(uid)
        same = known is not None and known.job is job and known.child is child and known.pods is pods
        if not same and not (is_child(child, job=job) and is_on_the_way(job, child=child)):
            return None
        running.add(child.metadata.uid)
        if known is None or not same:
            known = at_work(job, child=child, pods=pods, run_times=state.run_times)
        self.keep(uid, value=known)
        return known
