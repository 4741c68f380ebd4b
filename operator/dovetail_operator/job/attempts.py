"""The record of an ended attempt, and a status with it. Pure."""

from typing import Final

import msgspec

from dovetail.api.builtin import Job
from dovetail.api.gpujob import Attempt, GPUJobStatus
from dovetail.formats.durations import timestamp
from dovetail.jobs.batch_job import true_condition
from dovetail_operator.job.observation import Observed
from dovetail_operator.job.retries import Retry

_KEPT: Final = 16
_NODES_NOTED: Final = 16


def ended_attempt(seen: Observed, *, child: Job, why: Retry) -> Attempt:
    """The record of the attempt that `child` ran."""
    failed = true_condition(child, "Failed", "FailureTarget")
    failure_time = failed.last_transition_time if failed is not None else None
    bound = [pod.spec.node_name for pod in seen.pods if pod.spec.node_name]
    nodes = list(dict.fromkeys([*seen.job.status.nodes, *bound]))
    return Attempt(
        number=seen.job.status.attempt,
        reason=why.reason,
        message=why.message,
        counted=why.counted,
        start_time=seen.job.status.start_time or child.status.start_time,
        end_time=failure_time or timestamp(seen.now),
        nodes=nodes[:_NODES_NOTED],
    )


def noted(status: GPUJobStatus, *, ended: Attempt | None) -> GPUJobStatus:
    """The status with `ended` added to the ended attempts, and the next attempt number."""
    if ended is None:
        return status
    return msgspec.structs.replace(
        status,
        attempt=ended.number + 1,
        retries=status.retries + ended.counted,
        attempts=[*status.attempts, ended][-_KEPT:],
    )
