"""Which jobs may be preempted for which, from the operator's state. No I/O."""

from collections.abc import Container
from datetime import datetime

from dovetail.api.gpujob import GPUJob
from dovetail.queue.inputs.preemption_candidates import running_of, served_jobs
from dovetail.queue.preemption.victims import Running
from dovetail_operator.job.drain import DRAIN
from dovetail_operator.state.state import State


def running_jobs(state: State, *, now: datetime) -> list[Running]:
    """Jobs that run or were just preempted; none if preemption is off and no quota guarantees anything."""
    if not state.preemption.gap and not state.store.quotas.tree().guarantees:
        return []
    have_run = state.store.jobs_that_ran
    preempted = any(job.status.preemption is not None for job in have_run.values())
    served = served_jobs(state.store.jobs.values()) if preempted else frozenset()
    found = (running_job(state, key=key, job=job, served=served, now=now) for key, job in have_run.items())
    return [each for each in found if each is not None]


def running_job(
    state: State, *, key: str, job: GPUJob, now: datetime, served: Container[str] = frozenset()
) -> Running | None:
    """The job with this key as one that may be ended for others; None if it does not run. See `running_of`."""
    child, notice = state.store.child_of(job), state.decisions.notices.get(job.metadata.uid)
    return running_of(
        job,
        child=child,
        pods=state.store.pods.pods_of(child),
        pods_of_all_runs=lambda: state.store.pods.named(key),
        served=served,
        quotas=state.store.quotas,
        now=now,
        # Statuses are written one by one. A cycle that sees only some of a gang's victims would look for others.
        announced="" if notice is None or notice.by == DRAIN else notice.by,
    )
