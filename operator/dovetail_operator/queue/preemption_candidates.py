"""Who may make way for whom, out of the operator's state, and what those are told who do. No I/O."""

from collections.abc import Container, Iterable, Mapping
from datetime import datetime
from typing import Final

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import FINISHED, GPUJob
from dovetail.formats.durations import moment
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.preemption.policy import Order
from dovetail.queue.preemption.victims import Running
from dovetail_operator.job.observation import Notice, is_external, is_on_the_way, true_condition
from dovetail_operator.state.state import State

_ENDED: Final = frozenset({"Succeeded", "Failed"})


def running_jobs(state: State, *, now: datetime) -> list[Running]:
    """The jobs that run, and those that have just made way; none where nobody ever does."""
    if not state.preemption.gap:
        return []
    served = _served(state.jobs.values())
    return [
        found
        for key, job in state.jobs.items()
        if (found := _running(state, key, job, served=served, now=now)) is not None
    ]


def notices_of(orders: Mapping[str, Order], *, state: State) -> dict[str, Notice]:
    """What the jobs that make way are told, by their UIDs."""
    grace_seconds = state.preemption.grace_seconds
    by_uid = {job.metadata.uid: job for job in state.jobs.values() if job.metadata.uid in orders}
    return {
        uid: Notice(by=order.by.key, message=_for_whom(by_uid[uid], order.by), grace_seconds=grace_seconds)
        for uid, order in orders.items()
        if uid in by_uid
    }  # fmt: skip


def _served(jobs: Iterable[GPUJob]) -> frozenset[str]:
    """Those jobs, by UID, that have had the run for which they last sent somebody away."""
    known = list(jobs)
    left: dict[str, datetime] = {}
    for job in known:
        made = job.status.preemption
        if made is not None and made.by and made.at is None and made.last_time is not None:
            left[made.by] = max(left.get(made.by, moment(made.last_time)), moment(made.last_time))
    return frozenset(
        job.metadata.uid for job in known if job.metadata.uid in left and _ran_after(job, left[job.metadata.uid])
    )


def _ran_after(job: GPUJob, then: datetime) -> bool:
    """Whether it began then or later, or made way itself, or was held after it had been let go and run."""
    status, made = job.status, job.status.preemption
    runs = [each.start_time for each in status.attempts[-1:]]
    runs += [made.last_time] if made is not None else []
    runs += [status.admitted_time] if status.earlier_run_seconds else []
    return any(at is not None and moment(at) >= then for at in runs)


def _running(state: State, key: str, job: GPUJob, *, served: Container[str], now: datetime) -> Running | None:
    child, made = state.child_of(job), job.status.preemption
    yields_to = made.by if made is not None and (made.at is not None or made.by not in served) else ""
    if job.status.phase in FINISHED or is_external(job):
        # Kueue would let go again what we suspend, and nobody would have its place.
        return None
    if is_on_the_way(job, child) and child is not None:
        start, pods = job.status.start_time, state.pods.of(child)
        if start is None or job.spec.suspend or true_condition(child, "SuccessCriteriaMet", "FailureTarget"):
            return None
        run_seconds, left = (now - moment(start)).total_seconds(), False
    elif yields_to:
        pods, run_seconds, left = tuple(state.pods.named(key)), 0.0, True
    else:
        return None
    return Running(
        key=job.metadata.uid,
        priority=state.quotas.rank_of(job).priority,
        run_seconds=run_seconds,
        claims=(*_claims(pods), *(f"{job.metadata.uid}/{worker}" for worker in range(job.spec.workers))),
        preempted=made.count if made is not None else 0,
        yields_to=yields_to,
        left=left,
    )


def _claims(pods: Iterable[Pod]) -> list[str]:
    return [pod.metadata.uid for pod in pods if pod.spec.node_name and pod.status.phase not in _ENDED]


def _for_whom(job: GPUJob, by: Candidate) -> str:
    namespace, _, name = by.name.partition("/")
    # Names of other namespaces are nobody's business here.
    who = name if namespace == job.metadata.namespace else "a job of another namespace"
    return f"Makes way for {who} of priority {by.priority}, its own is {job.spec.priority}"
