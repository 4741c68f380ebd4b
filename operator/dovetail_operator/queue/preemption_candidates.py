"""Which jobs may be preempted for which, from the operator's state, and their notices.

No I/O.
"""

from collections.abc import Container, Mapping
from datetime import datetime

from dovetail.api.gpujob import GPUJob
from dovetail.queue.inputs.preemption_candidates import running_of, served_jobs
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.preemption.policy import Order
from dovetail.queue.preemption.victims import Running
from dovetail_operator.job.observation import Notice
from dovetail_operator.state.state import State


def running_jobs(state: State, *, now: datetime) -> list[Running]:
    """Jobs that run or were just preempted; none if preemption is off."""
    if not state.preemption.gap:
        return []
    served = served_jobs(state.store.jobs.values())
    found = (_running(state, key, job, served=served, now=now) for key, job in state.store.jobs.items())
    return [each for each in found if each is not None]


def _running(state: State, key: str, job: GPUJob, *, served: Container[str], now: datetime) -> Running | None:
    child = state.store.child_of(job)
    return running_of(
        job,
        child=child,
        pods=state.store.pods.of(child),
        pods_of_all_runs=lambda: state.store.pods.named(key),
        served=served,
        quotas=state.store.quotas,
        now=now,
    )


def notices_of(orders: Mapping[str, Order], *, state: State) -> dict[str, Notice]:
    """The notices of the preempted jobs, by UID."""
    grace_seconds = state.preemption.grace_seconds
    by_uid = {job.metadata.uid: job for job in state.store.jobs.values() if job.metadata.uid in orders}
    return {
        uid: Notice(by=order.by.key, message=_for_whom(by_uid[uid], order.by), grace_seconds=grace_seconds)
        for uid, order in orders.items()
        if uid in by_uid
    }  # fmt: skip


def _for_whom(job: GPUJob, by: Candidate) -> str:
    namespace, _, name = by.name.partition("/")
    # A message must not reveal the names of jobs in other namespaces.
    who = name if namespace == job.metadata.namespace else "a job of another namespace"
    return f"Makes way for {who} of priority {by.priority}, its own is {job.spec.priority}"
