"""Candidates and running jobs of a scheduling cycle, cached while their inputs stay the same. No I/O.

Each cycle needs all of them, and few of thousands have changed since the previous cycle. `dovetail.queue.inputs`
computes each entry.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Generic, NamedTuple, TypeVar

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.jobs.batch_job import is_child, is_on_the_way
from dovetail.jobs.cpu_fallback import cpu_after_seconds
from dovetail.queue.inputs.at_work import AtWork, at_work
from dovetail.queue.inputs.candidates import Rules, candidate_of, eligible_nodes, expected_now
from dovetail.queue.limits.quotas import subject_of
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate, InOrder, order
from dovetail.queue.verdicts import Admitted
from dovetail_operator.state.state import State

_Sites = dict[str, list[str]]
# Different specs of which an entry is kept for other jobs.
_SPECS: Final = 1024
# Where the number is among the values of an entry.
_NUMBER: Final = 4


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

    `stays`: the job keeps waiting as long as it is not `State.engaged` and the inputs compared here are the same.
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
    """Candidates by the job's UID, from one cycle to the next.

    Those that are `settled` are not computed, and not even visited, in the cycles in which nothing about them changes:
    nearly all jobs of a long queue.
    """

    def __init__(self) -> None:
        super().__init__()
        # The settled ones by the job's `namespace/name`: entry, job, and the name by UID.
        self._settled: dict[str, _Kept] = {}
        self._jobs: dict[str, GPUJob] = {}
        self._keys: dict[str, str] = {}
        # The inputs that all have in common: versions of the quotas, and of the learned run times.
        self._versions = (0, 0)
        # Computed again after a change: all in order, and a job of each site.
        self._line: InOrder | None = None
        self._at_sites: dict[str, GPUJob] = {}
        # An entry of each spec, requester and number of workers, for other jobs with the same; the oldest leave.
        self._like: dict[tuple[bytes, Subject, int], _Kept] = {}

    def get(self, uid: str) -> _Kept | None:
        """The entry of the previous cycle, also of a settled job."""
        return super().get(uid) or self._settled.get(self._keys.get(uid, ""))

    def clear(self) -> None:
        """Drop all entries: what they were computed from has changed."""
        super().clear()
        for kept in (self._like, self._settled, self._jobs, self._keys, self._at_sites):
            kept.clear()
        self._line = None

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
        Adds the nodes that the job's pods may use to `sites`. `waits` says that the job is only waiting, so that
        it may be settled.
        """
        uid, child = job.metadata.uid, state.store.child_of(job)
        if waits and child is None and (like := self._as_another(job, state=state, workers=workers)) is not None:
            self.keep(uid, value=like)
            _note_nodes(job, state=state, site=like.candidate.site, sites=sites)
            return like.candidate
        pools = state.store.quotas.pools_of(job)
        verdict, learned = state.decisions.verdicts.get(uid), state.store.expectations.learned_of(job)
        plan = verdict if isinstance(verdict, Admitted) else None
        rank = state.store.quotas.rank_of(job)
        values = (workers, nodes, pools, rank, state.number_of(job) or 0, state.requests.estimate_of(job))
        known = self.get(uid)
        if known is None or not _is_same(known, job=job, child=child, plan=plan, values=values):
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
        kept = _Kept(made, job, child, plan, values, state.store.quotas.version, learned, stays)
        self.keep(uid, value=kept)
        if stays and (spec := _spec_of(job, state=state, workers=workers)) is not None:
            self._like[spec] = kept
            if len(self._like) > _SPECS:
                del self._like[next(iter(self._like))]
        _note_nodes(job, state=state, site=made.site, sites=sites)
        return made

    def _as_another(self, job: GPUJob, *, state: State, workers: int) -> _Kept | None:
        """The entry of a new job that waits, from that of one with the same spec and requester; None without one."""
        uid = job.metadata.uid
        if self.get(uid) is not None or isinstance(state.decisions.verdicts.get(uid), Admitted):
            return None
        spec = _spec_of(job, state=state, workers=workers)
        like = None if spec is None else self._like.get(spec)
        if like is None or like.quotas != state.store.quotas.version:
            return None
        number, learned = state.number_of(job) or 0, state.store.expectations.learned_of(job)
        made = like.candidate.of_another(
            key=uid, created=job.metadata.creation_timestamp, number=number, name=key_of(job.metadata)
        )
        if job.spec.active_deadline_seconds is not None:
            # Run times are learned by name.
            made = expected_now(made, job=job, expectations=state.store.expectations)
        values = (*like.values[:_NUMBER], number, *like.values[_NUMBER + 1 :])
        return _Kept(made, job, like.child, like.plan, values, like.quotas, learned, like.stays)

    def settle(self, job: GPUJob, *, key: str) -> bool:
        """Settle the job of the latest `candidate` until something about it changes. False if it is none for that."""
        uid = job.metadata.uid
        kept = self._kept.get(uid)
        # A number that the status does not have yet is not part of the job.
        if kept is None or not kept.stays or job.status.number is None:
            return False
        del self._kept[uid]
        self._settled[key], self._jobs[key], self._keys[uid], self._line = kept, job, key, None
        return True

    def moving(self, state: State) -> list[str]:
        """Begin a cycle: the keys of all jobs that are not settled, or no longer."""
        jobs, known = state.store.jobs, self._jobs
        versions = state.store.quotas.version, state.store.expectations.learned
        if versions[0] != self._versions[0]:
            self._leave(list(known))
        elif versions[1] != self._versions[1]:
            learned_of = state.store.expectations.learned_of
            self._leave([key for key, kept in self._settled.items() if kept.learned != learned_of(kept.job)])
        self._versions = versions
        self._leave(state.engaged(self._keys, named=known.keys()))
        found = [key for key, job in jobs.items() if known.get(key) is not job]
        self._leave([key for key in found if key in known])
        if len(known) + len(found) > len(jobs):
            self._leave(known.keys() - jobs.keys())
        return found

    def _leave(self, keys: Iterable[str]) -> None:
        """Settle these jobs no longer."""
        for key in keys:
            kept = self._settled.pop(key)
            job = self._jobs.pop(key)
            del self._keys[job.metadata.uid]
            self._known[job.metadata.uid] = kept
            self._line = None

    def settled(self, state: State, *, sites: _Sites) -> InOrder:
        """The candidates that are settled. Adds the nodes that their pods may use to `sites`."""
        if self._line is None:
            self._line = order(kept.candidate for kept in self._settled.values())
            self._at_sites = {kept.candidate.site: kept.job for kept in self._settled.values()}
        for site, job in self._at_sites.items():
            _note_nodes(job, state=state, site=site, sites=sites)
        return self._line

    @property
    def keys_settled(self) -> Mapping[str, str]:
        """The `namespace/name` of the settled jobs, by UID."""
        return self._keys


def _spec_of(job: GPUJob, *, state: State, workers: int) -> tuple[bytes, Subject, int] | None:
    """What decides about the candidate of a waiting job except its name; None for one that has run or is alone."""
    status = job.status
    ran = bool(status.start_time or status.earlier_run_seconds or status.memory or status.move)
    digest = b"" if ran or status.attempts or status.placement else state.requests.read(job).digest
    return (digest, subject_of(job), workers) if digest else None


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
) -> Candidate | None:
    return candidate_of(
        job,
        child=child,
        ways=state.requests.ways_of(job),
        admitted=None if plan is None else plan.ask,
        workers=workers,
        nodes=nodes,
        number=state.number_of(job) or 0,
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
