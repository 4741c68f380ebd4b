"""Jobs that run on the CPU instead of the GPUs that they request: the marks on their batch Jobs. Pure."""

from typing import Final

from dovetail import names
from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons.clause import Sentence
from dovetail.engine.model.claims import Ask
from dovetail.jobs.cpu_fallback import explain_on_cpu

_CPU: Final = "cpu"


def annotations(job: GPUJob, *, ask: Ask, why: str) -> dict[str, str]:
    """The annotations by which a batch Job on the CPU is recognized later; `why` is the queue's sentence."""
    asked_for_gpu = job.spec.gpu is not None or (job.spec.resources is not None and job.spec.resources.device != _CPU)
    if not asked_for_gpu or ask.gpu is not None:
        return {}
    return {names.DEVICE: _CPU} | ({names.ON_CPU: why} if why else {})


def explain(child: Job) -> Sentence:
    """What the status says of a job with this batch Job, which runs on the CPU."""
    return explain_on_cpu(child.metadata.annotations.get(names.ON_CPU, ""))
