"""What the operator sees of one GPUJob, and plain readings of it. Values only, no decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import AssignedDevice, DependencyStatus, GPUJob, Measured, MemoryUse
from dovetail.api.gpunode import Enforcement, Overuse
from dovetail.engine.model.claims import Ask, DeviceClaim
from dovetail.jobs.batch_job import worker_of
from dovetail.jobs.obstacle import Obstacle
from dovetail.pods.allocation import AllocatedDevice, AllocationError, allocation_in
from dovetail.queue.verdicts import Verdict
from dovetail_operator.devices.bad_devices import BadCard

COMPLETION_INDEX: Final = names.COMPLETION_INDEX


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
