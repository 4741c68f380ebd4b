"""Jobs that run on the CPU because no GPU here could ever serve them (`onNoGPU: RunOnCPU`). Pure."""

from typing import Final

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.claims import Ask
from dovetail.queue.verdicts import Verdict, Waits

_CPU: Final = "cpu"


def falls_back(job: GPUJob, verdict: Verdict | None) -> bool:
    """Whether the job is to run without a GPU: busy GPUs are waited for, GPUs that are not there are not."""
    return job.spec.on_no_gpu == "RunOnCPU" and isinstance(verdict, Waits) and verdict.reason == "ExceedsCapacity"


def annotations(job: GPUJob, *, ask: Ask) -> dict[str, str]:
    """What its batch Job says of it, so that it is known later too."""
    asked_for_gpu = job.spec.gpu is not None or (job.spec.resources is not None and job.spec.resources.device != _CPU)
    return {names.DEVICE: _CPU} if asked_for_gpu and ask.gpu is None else {}
