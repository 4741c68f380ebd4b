"""What the operator knows of one GPUJob, and simple readings of it.

Values only, no decisions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import AssignedDevice, DependencyStatus, GPUJob, Measured, MemoryUse, Move, Placement
from dovetail.api.gpunode import Enforcement, Overuse
from dovetail.api.meta import find_condition
from dovetail.engine.model.claims import Ask
from dovetail.formats.durations import moment, timestamp
from dovetail.jobs.batch_job import true_condition, worker_of
from dovetail.jobs.obstacle import Obstacle
from dovetail.pods.allocation import AllocationError, allocation_in
from dovetail.queue.verdicts import Verdict

COMPLETION_INDEX: Final = names.COMPLETION_INDEX


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A running job is to be preempted.

    `by` is the key of the job that takes its devices, `message` the sentence for the status. `grace_seconds` is the
    time between the notice and the end of its pods. It `moves` if room is held for it elsewhere.
    """

    by: str
    message: str
    grace_seconds: float
    moves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One GPUJob and everything that its next status depends on."""

    job: GPUJob
    """The GPUJob. An elastic job's spec has the number of workers that it was started with."""
    now: datetime
    """The time of this observation."""
    cluster_nodes: int | None = None
    """How many nodes kube-scheduler chooses among; None if unknown."""
    child: Job | None = None
    """The GPUJob's own batch Job, None without one or if a foreign batch Job has its name."""
    pods: tuple[Pod, ...] = ()
    """The pods of `child`."""
    ask: Ask | None = None
    """What each worker requests; None if that cannot be read, and `obstacle` then says why."""
    number: int | None = None
    """The job's short number; None before it is allotted."""
    verdict: Verdict | None = None
    """The queue's latest verdict; None before the first."""
    obstacle: Obstacle | None = None
    """What keeps the job from starting, independent of the queue; None if nothing does."""
    memory: MemoryUse | None = None
    """Used and learned memory; None if neither is known."""
    dependencies: tuple[DependencyStatus, ...] = ()
    """The current state of each dependency."""
    awaited: bool = False
    """Whether a dependent's or the array's status does not show this job's end yet."""
    tasks: tuple[GPUJob, ...] = ()
    """The existing tasks of an array or sweep; empty for other jobs."""
    in_the_way: Mapping[str, Obstacle] = field(default_factory=dict)
    """By name, the tasks that an array cannot create because another GPUJob has the name."""
    measured: Measured | None = None
    """Measurements of the running workers; None without any."""
    recorded: bool = True
    """Whether the history has the job's final record. True if no history is kept."""
    overtaken: str = ""
    """Why the plan of a started job no longer holds; empty if it holds."""
    replacement: Placement | None = None
    """The plan of a started job with other nodes for lost workers; None if no worker is lost."""
    asked_workers: int | None = None
    """The number of workers that an elastic job requests."""
    wants_more: bool = False
    """Whether more workers of a running elastic job were requested since its run was planned than it has."""
    scales_up: bool = False
    """Whether there is room for more of them."""
    cpu_after_seconds: float | None = None
    """After how long a wait for busy GPUs the job runs on the CPU, see `dovetail.jobs.cpu_fallback`."""
    bad_cards: tuple[str, ...] = ()
    """Unhealthy devices that the job holds, a sentence for each."""
    leaves_bad_cards: bool = False
    """Whether the job restarts on other nodes because of `bad_cards`."""
    overuses: tuple[Overuse, ...] = ()
    """Pods that use more memory than they were promised."""
    refusing_budget: str = ""
    """The PodDisruptionBudget that does not let the pods end which use too much memory; empty if they may end."""
    idle_since: datetime | None = None
    """When an idle job last did GPU work; None if it is not idle."""
    enforcement: Mapping[str, Enforcement | None] = field(default_factory=dict)
    """What each node of the job can enforce, by node name; None for a node without a report."""
    notice: Notice | None = None
    """The preemption notice of a running job; None if it is not preempted."""
    move: Move | None = None
    """The decision on the job's move, if its status does not have it yet."""
    kueue: str = ""
    """Why Kueue has not admitted the job, in Kueue's words; empty without a reason."""
    plan_may_follow: bool = False
    """Whether it requests one worker, many jobs start, and nothing keeps room from a pod without a plan in a status."""
    simulated: bool = False
    """Whether nothing of the job really runs: it is on simulated nodes, or there are no others."""
    given: Mapping[str, Sequence[AllocatedDevice]] = field(default_factory=dict)
    """The devices that a vendor's device plugin gave each pod, by pod UID."""


def bound_pods(pods: Sequence[Pod]) -> list[Pod]:
    """Pods that are bound to a node: the newest pod of each worker, ordered by worker."""
    newest: dict[int, Pod] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.creation_timestamp):
        if pod.spec.node_name:
            newest[worker_of(pod)] = pod
    return [newest[worker] for worker in sorted(newest)]


def devices_of(
    pods: Sequence[Pod], *, given: Mapping[str, Sequence[AllocatedDevice]] = MappingProxyType({})
) -> list[AssignedDevice]:
    """The devices that bound pods hold.

    A pod's allocation names them; without one they are those that a vendor's plugin gave.
    """
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
    """The devices of the pod's allocation. A broken allocation has none; the audit reports it."""
    try:
        allocation = allocation_in(pod.metadata.annotations)
    except AllocationError:
        return ()
    return allocation.devices if allocation else ()


def used_seconds(seen: Observed) -> int:
    """Run time of all ended runs in seconds, including one that has just ended."""
    status = seen.job.status
    if status.start_time is None:
        return status.earlier_run_seconds
    ran = (moment(_end_of_run(seen)) - moment(status.start_time)).total_seconds()
    return status.earlier_run_seconds + max(0, round(ran))


def with_time_used(seen: Observed) -> GPUJob:
    """The job as it starts again: its status includes the time of all runs so far."""
    status = msgspec.structs.replace(seen.job.status, earlier_run_seconds=used_seconds(seen))
    return msgspec.structs.replace(seen.job, status=status)


def is_used_up(seen: Observed) -> bool:
    """Whether the job has used up its total run time."""
    limit = seen.job.spec.maximum_execution_time_seconds
    return limit is not None and used_seconds(seen) >= limit


def _end_of_run(seen: Observed) -> str:
    ended = None if seen.child is None else true_condition(seen.child, "Failed", "Suspended")
    held = find_condition(seen.job.status.conditions, type="Suspended")
    if ended is not None and ended.last_transition_time is not None:
        return ended.last_transition_time
    return held.last_transition_time if held is not None and held.status == "True" else timestamp(seen.now)
