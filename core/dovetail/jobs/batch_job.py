"""A GPUJob and its batch Job: ownership, time limit, state, and which of its workers have a node. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from dovetail import names
from dovetail.api.builtin import Condition, Job, Pod, is_terminated
from dovetail.api.gpujob import KIND, MAX_SECONDS, GPUJob, is_finished
from dovetail.api.meta import ObjectMeta, OwnerReference
from dovetail.formats.quantities import read_whole
from dovetail.formats.timestamps import moment
from dovetail.jobs.seat import seat_of

# The garbage collector deletes or orphans the dependents, then removes these finalizers.
_GARBAGE_COLLECTORS: Final = frozenset({"foregroundDeletion", "orphan"})


def is_child(child: Job, *, job: GPUJob) -> bool:
    """Whether the batch Job belongs to this very GPUJob."""
    return child.metadata.name == job.metadata.name and is_owned(child.metadata, by=job)


def true_condition(child: Job, *types: str) -> Condition | None:
    """The first of these conditions that is true for the batch Job."""
    held = {condition.type: condition for condition in child.status.conditions if condition.status == "True"}
    return next((held[name] for name in types if name in held), None)


def has_ended(child: Job) -> bool:
    """Whether the batch Job is over."""
    return true_condition(child, "Complete", "Failed") is not None


def is_doomed(child: Job) -> bool:
    """Whether a suspended batch Job fails once it resumes.

    A rule took the end of its pods for a failure.
    """
    # The Job controller writes Failed later: since Kubernetes 1.36 a suspended Job has no startTime, and needs one.
    return bool(child.spec.suspend) and true_condition(child, "FailureTarget") is not None


def is_going(job: GPUJob) -> bool:
    """Whether the job is being deleted: nothing new begins for it."""
    return job.metadata.deletion_timestamp is not None


def kept_by(job: GPUJob) -> list[str]:
    """The finalizers of others, which keep a deleted job until their owners remove them."""
    return [name for name in job.metadata.finalizers if name not in _GARBAGE_COLLECTORS]


def is_parent(job: GPUJob) -> bool:
    """Whether the job is an array or a sweep: its tasks are GPUJobs, and it runs nothing itself."""
    return job.spec.array is not None or job.spec.sweep is not None


def is_managed(job: GPUJob) -> bool:
    """Whether Dovetail manages the job at all."""
    return job.spec.managed_by in {None, names.MANAGER, names.GUESTS_MANAGER}


def is_guests(job: GPUJob) -> bool:
    """Whether the job records an object of another kind, whose own controller makes the pods."""
    return job.spec.managed_by == names.GUESTS_MANAGER


def ends_by_eviction(job: GPUJob) -> bool:
    """Whether the job records plain pods: these end by the eviction API, which counts them in their budgets itself."""
    return is_guests(job) and any(owner.kind == "Pod" for owner in job.metadata.owner_references)


def is_external(job: GPUJob) -> bool:
    """Whether Kueue admits the job: its label names one of Kueue's queues."""
    return bool(job.metadata.labels.get(names.KUEUE_QUEUE))


def attempt_of(child: Job) -> int:
    """The attempt number of a batch Job; 1 where it does not say."""
    text = child.metadata.annotations.get(names.ATTEMPT, "")
    return read_whole(text, otherwise=1)


def is_past(job: GPUJob, *, child: Job) -> bool:
    """Whether a batch Job is about to go: it is being deleted, or its attempt is over."""
    return child.metadata.deletion_timestamp is not None or attempt_of(child) < job.status.attempt


def wants_admission(job: GPUJob, *, child: Job | None) -> bool:
    """Whether the queue decides about this job: nothing of it runs, and nothing holds it back."""
    if job.metadata.deletion_timestamp or is_finished(job) or job.spec.cancel or job.spec.suspend:
        return False
    if is_parent(job) or is_external(job) or not is_managed(job):
        return False
    if child is None:
        return True
    return bool(child.spec.suspend) and not (has_ended(child) or is_doomed(child) or is_past(job, child=child))


def is_on_the_way(job: GPUJob, *, child: Job | None) -> bool:
    """Whether the job was admitted and may still have workers without a node."""
    if child is None or is_finished(job) or job.spec.cancel or (is_going(job) and not kept_by(job)):
        return False
    return not child.spec.suspend and not has_ended(child) and not is_past(job, child=child)


def workers_without_node(job: GPUJob, *, child: Job, pods: Sequence[Pod]) -> int:
    """The number of workers that are not bound yet: no pod of theirs has a node or succeeded.

    Pods count before the batch Job's own count, which lags behind them. The record of a guest has those workers of its
    plan that are not released: its controller decides which failed pods it replaces.
    """
    if is_guests(job):
        return _seats_without_node(job, child=child, pods=pods)
    provided = {worker_of(pod) for pod in pods if pod.spec.node_name and pod.status.phase != "Failed"}
    failures = sum(pod.status.phase == "Failed" and not _is_replaced(pod, job=job) for pod in pods)
    if failures > (child.spec.backoff_limit or 0):
        # No retry is left: the batch Job is about to fail.
        return 0
    return max(0, job.spec.workers - max(len(provided), child.status.succeeded))


def _seats_without_node(job: GPUJob, *, child: Job, pods: Sequence[Pod]) -> int:
    out, placement = {worker_of(pod) for pod in pods if needs_no_room(pod)}, job.status.placement
    if placement is None:
        return max(0, expected_workers(job, child=child) - len(out))
    planned = sum(node.workers for node in placement.nodes)
    return len(set(range(planned)) - out - set(placement.released))


def needs_no_room(pod: Pod) -> bool:
    """Whether no room is held for the pod's worker: the pod has a node, or has succeeded.

    The room of a guest's pod that has succeeded is held for the next one, until the operator releases it.
    """
    ended = {"Failed"} if seat_of(pod) is None else {"Failed", "Succeeded"}
    return bool(pod.spec.node_name) and pod.status.phase not in ended


def expected_workers(job: GPUJob, *, child: Job | None) -> int:
    """The number of workers that the job's batch Job runs: the object of a record may ask for fewer than at first."""
    if not is_guests(job) or child is None or child.spec.parallelism is None:
        return job.spec.workers
    if child.spec.suspend or has_ended(child):
        return job.spec.workers
    return min(job.spec.workers, child.spec.parallelism)


def _is_replaced(pod: Pod, *, job: GPUJob) -> bool:
    """Whether the Job controller replaces a failed pod without counting it as a failure."""
    return job.spec.restart == "Worker" and any(
        condition.type == "DisruptionTarget" and condition.status == "True" for condition in pod.status.conditions
    )


def worker_of(pod: Pod) -> int:
    """The worker index of a pod."""
    if (seat := seat_of(pod)) is not None:
        return seat.worker
    text = pod.metadata.annotations.get(names.COMPLETION_INDEX, "0")
    return read_whole(text, otherwise=0)


def taken_workers(pods: Iterable[Pod]) -> set[int]:
    """The indexes of the workers that have an unfinished pod."""
    return {worker_of(pod) for pod in pods if not is_terminated(pod)}


def refused_since(pods: Sequence[Pod]) -> datetime | None:
    """Since when kube-scheduler finds no place for one of the pods."""
    times = [
        moment(condition.last_transition_time)
        for pod in pods
        for condition in pod.status.conditions
        if not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
        and (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "Unschedulable")
        and condition.last_transition_time is not None
    ]
    return min(times, default=None)


def owner_reference(job: GPUJob) -> OwnerReference:
    """The reference that deletes an object together with `job`."""
    return OwnerReference(
        api_version=names.API_VERSION,
        kind=KIND,
        name=job.metadata.name,
        uid=job.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def is_owned(meta: ObjectMeta, *, by: GPUJob) -> bool:
    """Whether an object of its namespace belongs to this very GPUJob."""
    owner = controlling_gpujob(meta)
    return owner is not None and (owner.name, owner.uid) == (by.metadata.name, by.metadata.uid)


def is_of_an_earlier_one(meta: ObjectMeta, *, than: GPUJob) -> bool:
    """Whether an object belongs to an earlier GPUJob of the same name.

    The garbage collector is about to delete it.
    """
    owner = controlling_gpujob(meta)
    return owner is not None and owner.name == than.metadata.name and owner.uid != than.metadata.uid


def controlling_gpujob(meta: ObjectMeta) -> OwnerReference | None:
    """The GPUJob that controls an object, according to its owner references."""
    owner = next((owner for owner in meta.owner_references if owner.controller), None)
    is_one = owner is not None and owner.kind == KIND and owner.api_version.partition("/")[0] == names.GROUP
    return owner if is_one else None


def deadline_seconds(job: GPUJob, *, child: Job | None = None) -> int | None:
    """The time limit, in seconds, of the batch Job `child` or of a new one.

    None for a job without a limit. The limit that let a job start before others stays the most, whatever the spec says
    by now: it may have changed between the queue's decision and its record in the status.
    """
    if job.spec.reservation is not None:
        return _lease_seconds(job, child=child)
    placement = job.status.placement
    limits = [
        job.spec.active_deadline_seconds,
        _left_seconds(job),
        None if placement is None else placement.limit_seconds,
    ]
    return min((limit for limit in limits if limit is not None), default=None)


def _left_seconds(job: GPUJob) -> int | None:
    limit = job.spec.maximum_execution_time_seconds
    return None if limit is None else max(1, limit - job.status.earlier_run_seconds)


def _lease_seconds(job: GPUJob, *, child: Job | None) -> int | None:
    """The lease counts from its last renewal, the batch Job's limit from its start."""
    lease = job.spec.reservation
    assert lease is not None, "asked for reservations alone"
    start = None if child is None else child.status.start_time
    if start is None or lease.renew_time is None:
        return lease.duration_seconds
    renewed = max(0.0, (moment(lease.renew_time) - moment(start)).total_seconds())
    # The Job controller computes in nanoseconds: a renewal centuries ahead would overflow to a limit in the past.
    return min(MAX_SECONDS, round(renewed) + lease.duration_seconds)
