"""What every job takes of the quotas, computed from the operator's state. No I/O."""

from collections.abc import Container
from datetime import datetime
from typing import NamedTuple

from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.pods.tenancy import Child
from dovetail.queue.inputs.usage import use_of, use_of_deleted, use_of_ended
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.verdicts import Admitted
from dovetail_operator.state.candidate_cache import Remembered
from dovetail_operator.state.state import State


def counted_jobs(state: State, *, waiting: Container[str], cache: "Counts | None" = None) -> list[Counted]:
    """Count jobs that run, start or wait, and ended jobs whose use still counts.

    `waiting` has the UIDs of waiting jobs. With a `cache`, unchanged jobs are not counted again.
    """
    found = []
    cache = Counts() if cache is None else cache
    # Each cycle has thousands of jobs, which only quotas count.
    jobs = state.store.jobs if state.store.quotas.all else state.store.jobs_that_count
    for key, job in jobs.items():
        if is_finished(job):
            each = use_of_ended(job, ask_of=state.requests.ask_of, quotas=state.store.quotas)
        else:
            each = cache.count(job, key=key, state=state, waits=job.metadata.uid in waiting)
        if each is not None:
            found.append(each)
    cache.forget_others()
    return found


class _Known(NamedTuple):
    """The result for a job, and every input of it. Inputs are replaced, never changed in place."""

    counted: Counted | None
    job: GPUJob
    child: Job | None
    plan: Admitted | None
    waits: bool
    quotas: int
    pods: tuple[Pod, ...]


class Counts(Remembered[_Known]):
    """What unfinished jobs take, by UID, from one cycle to the next."""

    def count(self, job: GPUJob, *, key: str, state: State, waits: bool) -> Counted | None:
        """What the job with this key takes or waits for; None if it does neither."""
        uid, child, version = job.metadata.uid, state.store.child_named(key), state.store.quotas.version
        verdict = state.decisions.verdicts.get(uid)
        plan = verdict if isinstance(verdict, Admitted) else None
        pods = state.store.pods.pods_of(child)
        known = self.get(uid)
        if (
            known is None
            or known.job is not job
            or known.child is not child
            or known.plan is not plan
            or known.waits != waits
            or known.quotas != version
            or known.pods is not pods
        ):
            # A pod of another namespace that names the batch Job as its owner counts there.
            own = [pod for pod in pods if pod.metadata.namespace == job.metadata.namespace]
            claims = (state.store.view.ledger.claim(pod.metadata.uid) for pod in own)
            counted = use_of(
                job,
                child=state.store.child_of(job),
                ask_of=state.requests.ask_of,
                admitted=plan,
                waits=waits,
                quotas=state.store.quotas,
                held=[claim for claim in claims if claim is not None],
            )
            known = _Known(counted, job, child, plan, waits, version, pods)
        self.keep(uid, value=known)
        return known.counted


def children_of_jobs(state: State) -> frozenset[Child]:
    """The batch Jobs that GPUJobs own; empty if no quota needs them."""
    if not state.store.quotas.all:
        return frozenset()
    return frozenset((child.metadata.namespace, child.metadata.uid) for child in state.store.children())


def departed(state: State, *, job: GPUJob, now: datetime) -> Counted | None:
    """What a job has used that is being deleted; None if no quota counts it."""
    return use_of_deleted(job, ask_of=state.requests.ask_of, quotas=state.store.quotas, now=now)
