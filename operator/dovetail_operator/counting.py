"""What every job takes of the limits: out of the operator's state, no I/O."""

from collections.abc import Container
from datetime import datetime

from dovetail.api.gpujob import GPUJob
from dovetail.kube.objects import Job
from dovetail.queue.gate import Refused
from dovetail.queue.limits import milli_of
from dovetail.queue.verdicts import Admitted
from dovetail.quotas import Counted, subject_of
from dovetail.runs import end_of_run, workers_of
from dovetail_operator.durations import moment
from dovetail_operator.observed import is_finished, is_on_the_way
from dovetail_operator.plans import sized
from dovetail_operator.state import State


def counted_jobs(state: State, *, waiting: Container[str]) -> list[Counted]:
    """Jobs that run, start or wait, and those whose end is not yet noted where use counts. `waiting` are UIDs."""
    found = []
    # Many thousands of jobs are looked at in each cycle: not where there is nothing to count.
    anyone = bool(state.quotas.all)
    for job in state.jobs.values():
        if not anyone and not job.spec.group:
            continue
        if is_finished(job):
            each = _ended(state, job)
        elif is_on_the_way(job, child := state.child_of(job)):
            each = _counted(state, job, child=child)
        elif job.metadata.uid in waiting:
            verdict = state.verdicts.get(job.metadata.uid)
            sizes = sized(job, child=None, verdict=verdict)
            each = _counted(state, sizes, child=None, queued=not isinstance(verdict, Admitted))
        else:
            continue
        if each is not None:
            found.append(each)
    return found


def children_of_jobs(state: State) -> frozenset[str]:
    """The UIDs of the batch Jobs that are GPUJobs' own; none where nobody asks."""
    if not state.quotas.all:
        return frozenset()
    return frozenset(child.metadata.uid for job in state.jobs.values() if (child := state.child_of(job)) is not None)


def _counted(state: State, job: GPUJob, *, child: Job | None, queued: bool = False) -> Counted:
    start, pools = job.status.start_time, state.quotas.pools_of(job)
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
        refused=pools if isinstance(pools, Refused) else None,
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
