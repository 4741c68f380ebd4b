"""Pods of a trace as GPUJobs. Pure."""

import math
from dataclasses import dataclass

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.fragmentation.pod_shapes import Shape
from dovetail.gpu.request import GPURequest
from dovetail.names import UNUSED_IMAGE
from dovetail.simulator.trace import Pod
from dovetail_cli.submit import manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How run times are compressed: divided by `speedup`, with bounds in seconds.

    The ceiling is optional.
    """

    speedup: float = 1.0
    shortest_seconds: float = 5.0
    longest_seconds: float | None = None

    def run_seconds(self, ran_seconds: float) -> int:
        """Whole seconds, rounded up, that a pod runs now that ran for `ran_seconds` then."""
        seconds = max(ran_seconds / self.speedup, self.shortest_seconds)
        if self.longest_seconds is not None:
            seconds = min(seconds, self.longest_seconds)
        return max(1, math.ceil(seconds))


def request_of(shape: Shape) -> GPURequest | None:
    """What a pod asks of GPUs; None for nothing."""
    if shape.gpus == 0:
        return None
    return GPURequest(count=shape.gpus, share_milli=shape.share_milli, models=shape.models)


def job_of(pod: Pod, *, pace: Pace, namespace: str) -> GPUJob:
    """The GPUJob for the pod: the same request, sleeping for the compressed run time."""
    shape = pod.shape
    seconds = pace.run_seconds(pod.ran_seconds)
    return manifest.build(
        manifest.Submission(
            name=pod.name,
            command=["sleep", str(seconds)],
            request=request_of(shape),
            image=UNUSED_IMAGE,
            # Simulated nodes run nothing: they read how long the pod lasts.
            annotations={names.RUN_SECONDS: str(seconds)},
            host_resources={"cpu": f"{shape.cpu_milli}m", "memory": f"{shape.memory_mib}Mi"},
        ),
        namespace=namespace,
    )
