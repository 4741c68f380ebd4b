"""Jobs with `onNoGPU: RunOnCPU` that no GPU in the cluster can ever serve. Pure."""

from typing import Final

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.claims import Ask
from dovetail.queue.verdicts import Verdict, Waits

_CPU: Final = "cpu"


def falls_back(job: GPUJob, *, verdict: Verdict | None) -> bool:
    """Whether the job runs without a GPU.

    It waits for busy GPUs, but not for GPUs that do not exist.
    """
    return job.spec.on_no_gpu == "RunOnCPU" and isinstance(verdict, Waits) and verdict.reason == "ExceedsCapacity"


def annotations(job: GPUJob, *, ask: Ask) -> dict[str, str]:
    """The annotations by which a batch Job on the CPU is recognized later."""
    asked_for_gpu = job.spec.gpu is not None or (job.spec.resources is not None and job.spec.resources.device != _CPU)
    return {names.DEVICE: _CPU} if asked_for_gpu and ask.gpu is None else {}
