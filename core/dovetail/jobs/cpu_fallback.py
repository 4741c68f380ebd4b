"""Jobs that run on the CPU instead of waiting for GPUs (`onNoGPU`): which, and when. Pure.

A job runs on the CPU if no node of the cluster could ever serve it, and, where it has a time, after it has waited so
long for busy GPUs. The wait counts from `status.gpuWaitStartTime`, which the operator writes when the queue first finds
no room for the job. So it survives a restart of the operator. The wait starts again after a hold, and after a run that
has ended and is followed by another.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.gpujob import GPUJob, Reason
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.api.reasons.queue import ON_CPU_AT
from dovetail.api.reasons.start import ON_CPU, ON_CPU_BECAUSE
from dovetail.engine.model.claims import Ask
from dovetail.formats.timestamps import moment, timestamp

# GPUs that could serve the job exist, and it cannot have them now. A limit of its owner (Quota) is no busy GPU.
BUSY: Final[frozenset[Reason]] = frozenset(
    {"Resources", "Fragmentation", "MemoryGuard", "Priority", "Reserved", "NodeUnhealthy", "Provisioning"}
)
# During these, a wait that has begun continues: the queue decides again, or a limit keeps the job back meanwhile.
_CONTINUES: Final[frozenset[Reason]] = frozenset({"Evaluating", "Quota"})
NEVER_SERVED: Final[Reason] = "ExceedsCapacity"


def on_cpu(ask: Ask) -> Ask:
    """A worker's request when it runs without its GPUs."""
    return replace(ask, gpu=None, mode="Exclusive", resource="", guard_fraction=None, workload=None, more=())


def cpu_after_seconds(job: GPUJob, *, by_namespace: Mapping[str, int]) -> float | None:
    """After how many seconds of busy GPUs the job runs on the CPU.

    Infinity: only if no node could ever serve it. None: never. `by_namespace` are the seconds of jobs that do not set
    `onNoGPU`, by their namespace.
    """
    spec = job.spec
    if spec.reservation is not None or spec.on_no_gpu == "Wait":
        return None
    if spec.on_no_gpu is None:
        return by_namespace.get(job.metadata.namespace)
    return math.inf if spec.on_no_gpu_after_seconds is None else spec.on_no_gpu_after_seconds


def cpu_in_seconds(job: GPUJob, *, after_seconds: float | None, now: datetime) -> float | None:
    """In how many seconds the job runs on the CPU if its GPUs stay busy, 0 or more; infinity and None as above."""
    start = job.status.gpu_wait_start_time
    if after_seconds is None or math.isinf(after_seconds) or start is None:
        return after_seconds
    return max(0.0, after_seconds - (now - moment(start)).total_seconds())


def falls_back(cpu_in_seconds: float | None, *, reason: Reason, now_seconds: float) -> bool:
    """Whether a job runs on the CPU at `now_seconds` instead of waiting; `cpu_in_seconds` as above."""
    if cpu_in_seconds is None:
        return False
    return reason == NEVER_SERVED or (reason in BUSY and cpu_in_seconds <= now_seconds)


def wait_start_time(job: GPUJob, *, reason: str, after_seconds: float | None, now: datetime) -> str | None:
    """The `status.gpuWaitStartTime` of a job that the queue does not admit, for this reason."""
    if after_seconds is None or math.isinf(after_seconds):
        return None
    if reason in BUSY:
        return job.status.gpu_wait_start_time or timestamp(now)
    return job.status.gpu_wait_start_time if reason in _CONTINUES else None


def due_clause(in_seconds: float | None, *, now: datetime) -> Sentence:
    """When a job that waits for busy GPUs runs on the CPU, for the end of its message; empty if it never does."""
    if in_seconds is None or math.isinf(in_seconds):
        return NOTHING
    return ON_CPU_AT(time=timestamp(now + timedelta(seconds=in_seconds)))


def explain_on_cpu(why: str) -> Sentence:
    """What is said of a job that runs on the CPU; `why` is empty where it is not known."""
    return ON_CPU_BECAUSE(why=why) if why else ON_CPU()
