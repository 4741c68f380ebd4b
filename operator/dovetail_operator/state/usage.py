"""What every job takes of the limits: out of the operator's state, no I/O."""

from collections.abc import Container
from datetime import datetime
from typing import NamedTuple

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.formats.durations import moment
from dovetail.jobs.runs import end_of_run, workers_of
from dovetail.pods.tenancy import Child
from dovetail.queue.limits.limits import milli_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import subject_of
from dovetail.queue.verdicts import Admitted
from dovetail_operator.job.observation import is_finished, is_on_the_way
from dovetail_operator.job.plan import sized
from dovetail_operator.state.generation_cache import Remembered
from dovetail_operator.state.state import State


def counted_jobs(state: State, *, waiting: Container[str], cache: "Counts | None" = None) -> list[Counted]:
    """Jobs that run, start or wait, and those whose end is not yet noted where use counts. `waiting` are UIDs.

    With a `cache`, jobs that have not changed since the last call with it are not counted again.
    """
    found = []
    cache = Counts() if cache is None else cache
    # Many thousands of jobs are looked at in each cycle: not where there is nothing to count.
    anyone = bool(state.quotas.all)
    for key, job in state.jobs.items():
        if not anyone and not job.spec.group:
            continue
        if is_finished(job):
            each = _ended(state, job)
        else:
            each = cache.of(job, key=key, state=state, waits=job.metadata.uid in waiting)
        if each is not None:
            found.append(each)
    cache.forget_others()
    return found


class _Known(NamedTuple):
    """What was counted of a job, and all that it was made of; objects are never changed, but replaced."""

    counted: Counted | None
    job: GPUJob
    child: Job | None
    plan: Admitted | None
    waits: bool
    quotas: int


class Counts(Remembered[_Known]):
    """What jobs take that are not over, from count to count, by their UIDs."""

    def of(self, job: GPUJob, *, key: str, state: State, waits: bool) -> Counted | None:
        """What the job of that key takes or waits for; None where it does neither."""
        uid, child, version = job.metadata.uid, state.child_named(key), state.quotas.version
        verdict = state.verdicts.get(uid)
        plan = verdict if isinstance(verdict, Admitted) else None
        known = self.get(uid)
        if (
            known is None
            or known.job is not job
            or known.child is not child
            or known.plan is not plan
            or known.waits != waits
            or known.quotas != version
        ):
            known = _Known(_counted_now(state, job, plan=plan, waits=waits), job, child, plan, waits, version)
        self.keep(uid, known)
        return known.counted


def _counted_now(state: State, job: GPUJob, *, plan: Admitted | None, waits: bool) -> Counted | None:
    if is_on_the_way(job, child := state.child_of(job)):
        return _counted(state, job, child=child)
    if not waits:
        return None
    return _counted(state, sized(job, child=None, verdict=plan), child=None, queued=plan is None)


def children_of_jobs(state: State) -> frozenset[Child]:
    """The batch Jobs that are GPUJobs' own; none where no quota needs them."""
    if not state.quotas.all:
        return frozenset()
    return frozenset((child.metadata.namespace, child.metadata.uid) for child in state.children())


def _counted(state: State, job: GPUJob, *, child: Job | None, queued: bool = False) -> Counted:
    start = job.status.start_time
    workers = child.spec.parallelism if child is not None else None
    return Counted(
        uid=job.metadata.uid,
        subject=subject_of(job),
        milli=milli_of(state.ask_of(job), workers=job.spec.workers if workers is None else workers),
        start=None if start is None else moment(start),
        queued=queued,
        workers=job.spec.workers,
        least=job.spec.min_workers,
        group=job.spec.group or "",
        max_concurrent=job.spec.max_concurrent,
        refused=state.quotas.refusal_of(job),
    )


def _ended(state: State, job: GPUJob) -> Counted | None:
    """A job whose use is not noted yet."""
    start, end = job.status.start_time, job.status.completion_time
    if start is None or end is None or not state.quotas.wants_use_until(moment(end)):
        return None
    return Counted(
        uid=job.metadata.uid,
        subject=subject_of(job),
        milli=milli_of(state.ask_of(job), workers=workers_of(job)),
        start=moment(start),
        end=moment(end_of_run(job.status) or end),
    )


def departed(state: State, job: GPUJob, *, now: datetime) -> Counted | None:
    """What a job has used that is deleted now; None where nobody counts it."""
    if job.status.start_time is None or not state.quotas.wants_use_until(now):
        return None
    end = end_of_run(job.status)
    return Counted(
        uid=job.metadata.uid,
        subject=subject_of(job),
        milli=milli_of(state.ask_of(job), workers=workers_of(job)),
        start=moment(job.status.start_time),
        end=now if end is None else moment(end),
    )
