"""What the operator sees of one GPUJob, and plain readings of it. Values only, no decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

from dovetail import names
from dovetail.api.builtin import Condition, Job, Pod
from dovetail.api.gpujob import FINISHED, AssignedDevice, DependencyStatus, GPUJob, Measured, MemoryUse, Reason
from dovetail.api.gpunode import Enforcement, Overuse
from dovetail.engine.model.claims import Ask, DeviceClaim
from dovetail.formats.quantities import read_whole
from dovetail.pods.allocation import AllocatedDevice, AllocationError, allocation_in
from dovetail.queue.verdicts import Verdict
from dovetail_operator.devices.bad_devices import BadCard
from dovetail_operator.job.owner_reference import is_owned

COMPLETION_INDEX: Final = names.COMPLETION_INDEX
# What belongs to the job goes, or is let go of, and then these are taken off.
_GARBAGE_COLLECTORS: Final = frozenset({"foregroundDeletion", "orphan"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a job cannot be started as it stands, whatever the queue says; `until` then, where that is known."""

    message: str
    reason: Reason = "Invalid"
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The job is to make way for the job `by`, and how long it is told beforehand."""

    by: str
    message: str
    grace_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One GPUJob with all that bears on it.

    `child` is the batch Job of its name if it is this GPUJob's own, `pods` are that Job's. `ask` is None where the
    request cannot be read; `obstacle` then says so. `given` has, by pod UID, the devices that a vendor's plugin gave.
    `awaited`: the status of a job that depends on this one does not show yet what became of it. `recorded`: the history
    has how it ended. `overtaken` says why the plan of a job that was let go does not hold any more. Of an elastic job
    the spec has the workers that it was started with, and `asked_workers` those that it asked for.
    `bad_cards` are unhealthy devices that it holds; `leaves_bad_cards`: for one it is started anew elsewhere.
    `idle_since`: when it was last seen to do GPU work, for a job that is told to be idle.
    `overuses` tell which of its pods use more memory than they were promised; `enforcement` what its nodes can enforce,
    by name, None for one whose agent reports nothing.
    `refresh_seconds`: for how long its figures stand at least.
    `in_the_way` has, by name, why an array cannot make tasks: another GPUJob has that name.
    `notice` is there for a job that runs and has to make way. `kueue`: why Kueue has not let it go, in Kueue's words.
    `cluster_nodes`: how many nodes kube-scheduler chooses among.
    """

    job: GPUJob
    now: datetime
    cluster_nodes: int | None = None
    child: Job | None = None
    pods: tuple[Pod, ...] = ()
    ask: Ask | None = None
    number: int | None = None
    verdict: Verdict | None = None
    obstacle: Obstacle | None = None
    memory: MemoryUse | None = None
    dependencies: tuple[DependencyStatus, ...] = ()
    awaited: bool = False
    tasks: tuple[GPUJob, ...] = ()
    in_the_way: Mapping[str, Obstacle] = field(default_factory=dict)
    measured: Measured | None = None
    refresh_seconds: float = 0.0
    recorded: bool = True
    overtaken: str = ""
    asked_workers: int | None = None
    bad_cards: tuple[BadCard, ...] = ()
    leaves_bad_cards: bool = False
    overuses: tuple[Overuse, ...] = ()
    idle_since: datetime | None = None
    enforcement: Mapping[str, Enforcement | None] = field(default_factory=dict)
    notice: Notice | None = None
    kueue: str = ""
    given: Mapping[str, Sequence[DeviceClaim]] = field(default_factory=dict)


def is_child(child: Job, *, job: GPUJob) -> bool:
    """Whether the batch Job belongs to this very GPUJob."""
    return child.metadata.name == job.metadata.name and is_owned(child.metadata, by=job)


def true_condition(child: Job, *types: str) -> Condition | None:
    """The first of these conditions that holds for the batch Job."""
    held = {condition.type: condition for condition in child.status.conditions if condition.status == "True"}
    return next((held[name] for name in types if name in held), None)


def has_ended(child: Job) -> bool:
    """Whether the batch Job is over."""
    return true_condition(child, "Complete", "Failed") is not None


def is_doomed(child: Job) -> bool:
    """Whether a suspended batch Job is to fail as soon as it goes on: a rule took the end of its pods for a failure."""
    # The Job controller writes Failed later: since Kubernetes 1.36 a suspended Job has no startTime, and needs one.
    return bool(child.spec.suspend) and true_condition(child, "FailureTarget") is not None


def is_going(job: GPUJob) -> bool:
    """Whether the job is being deleted: nothing more is begun for it."""
    return job.metadata.deletion_timestamp is not None


def kept_by(job: GPUJob) -> list[str]:
    """The finalizers of others, by which a deleted job stays for as long as they like, and with it what it runs."""
    return [name for name in job.metadata.finalizers if name not in _GARBAGE_COLLECTORS]


def is_finished(job: GPUJob) -> bool:
    """Whether the GPUJob is over for good."""
    return job.status.phase in FINISHED


def is_parent(job: GPUJob) -> bool:
    """Whether the job is an array or a sweep: its tasks are GPUJobs of their own, and it runs nothing itself."""
    return job.spec.array is not None or job.spec.sweep is not None


def is_ours(job: GPUJob) -> bool:
    """Whether Dovetail looks after the job at all."""
    return job.spec.managed_by in {None, names.MANAGER}


def is_external(job: GPUJob) -> bool:
    """Whether another queue lets the job go: Kueue, by the label that names one of its queues."""
    return bool(job.metadata.labels.get(names.KUEUE_QUEUE))


def attempt_of(child: Job) -> int:
    """Which attempt of its GPUJob a batch Job is; the first where it does not say."""
    text = child.metadata.annotations.get(names.ATTEMPT, "")
    return read_whole(text, otherwise=1)


def is_past(job: GPUJob, child: Job) -> bool:
    """Whether a batch Job is on its way out: it is being deleted, or its attempt is over."""
    return child.metadata.deletion_timestamp is not None or attempt_of(child) < job.status.attempt


def wants_admission(job: GPUJob, child: Job | None) -> bool:
    """Whether the queue is to decide on this job: nothing of it runs, and nothing holds it back."""
    if job.metadata.deletion_timestamp or is_finished(job) or job.spec.cancel or job.spec.suspend:
        return False
    if is_parent(job) or is_external(job) or not is_ours(job):
        return False
    if child is None:
        return True
    return bool(child.spec.suspend) and not (has_ended(child) or is_doomed(child) or is_past(job, child))


def is_on_the_way(job: GPUJob, child: Job | None) -> bool:
    """Whether the job was let go and may still have workers without a node."""
    if child is None or is_finished(job) or job.spec.cancel or (is_going(job) and not kept_by(job)):
        return False
    return not child.spec.suspend and not has_ended(child) and not is_past(job, child)


def workers_without_node(job: GPUJob, child: Job, pods: Sequence[Pod]) -> int:
    """Workers that still have to be bound: those without a pod that has a node or has done its work.

    Pods are believed before the batch Job's own count, which lags behind them.
    """
    provided = {worker_of(pod) for pod in pods if pod.spec.node_name and pod.status.phase != "Failed"}
    failures = sum(pod.status.phase == "Failed" for pod in pods)
    if failures > (child.spec.backoff_limit or 0):
        # No further try: the batch Job is about to fail.
        return 0
    return max(0, job.spec.workers - max(len(provided), child.status.succeeded))


def worker_of(pod: Pod) -> int:
    """Index of the worker that a pod is."""
    text = pod.metadata.annotations.get(COMPLETION_INDEX, "0")
    return read_whole(text, otherwise=0)


def bound_pods(pods: Sequence[Pod]) -> list[Pod]:
    """The pods that have a node, worker by worker, each worker's newest."""
    newest: dict[int, Pod] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.creation_timestamp):
        if pod.spec.node_name:
            newest[worker_of(pod)] = pod
    return [newest[worker] for worker in sorted(newest)]


def devices_of(
    pods: Sequence[Pod], *, given: Mapping[str, Sequence[DeviceClaim]] = MappingProxyType({})
) -> list[AssignedDevice]:
    """The devices that bound pods hold: those that their allocations name, else those that a vendor's plugin gave."""
    return [
        AssignedDevice(
            worker=worker_of(pod),
            node=pod.spec.node_name,
            index=device.index,
            uuid=device.uuid,
            share_milli=device.share_milli,
            memory_mib=device.memory_mib,
        )
        for pod in bound_pods(pods)
        for device in _allocated(pod) or given.get(pod.metadata.uid, ())
    ]


def _allocated(pod: Pod) -> Sequence[AllocatedDevice]:
    """The devices of the pod's allocation. A broken one names none; the audit reports it."""
    try:
        allocation = allocation_in(pod.metadata.annotations)
    except AllocationError:
        return ()
    return allocation.devices if allocation else ()
