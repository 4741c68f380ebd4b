"""Failures of a batch Job that are its time limit, though its condition names another reason. Pure.

At its activeDeadlineSeconds the Job controller first deletes the pods, then writes FailureTarget with the reason
DeadlineExceeded. If that write fails (the API server is away, the controller restarts), its next look at the Job finds
pods that have failed, and it checks the backoff limit and the podFailurePolicy before the deadline: `syncJob` in
pkg/controller/job/job_controller.go, Kubernetes 1.34 to 1.37.
"""

from datetime import timedelta
from typing import Final

import msgspec

from dovetail.api.builtin import Condition, Job
from dovetail.api.reasons import codes
from dovetail.api.reasons.end import LIMIT_HAD_PASSED
from dovetail.formats.timestamps import moment
from dovetail.jobs.batch_job import true_condition
from dovetail_operator.job.failure_policy import is_disruption
from dovetail_operator.job.observation import Observed

DEADLINE_EXCEEDED: Final = codes.DEADLINE_EXCEEDED.code
_OF_PODS: Final = frozenset({"BackoffLimitExceeded", "PodFailurePolicy"})


def judged(failed: Condition, *, seen: Observed, child: Job) -> Condition:
    """The condition Failed or FailureTarget, with the reason DeadlineExceeded where the time limit ended the pods."""
    if failed.reason not in _OF_PODS or is_disruption(failed) or not _ended_at_its_limit(seen, child=child):
        return failed
    why = LIMIT_HAD_PASSED()
    return msgspec.structs.replace(failed, reason=why.reason, message=why.message)


def _ended_at_its_limit(seen: Observed, *, child: Job) -> bool:
    """Whether the limit had passed when the batch Job failed, and no worker had failed by itself."""
    if child.spec.suspend:
        # The suspension may have deleted the pods.
        return False
    # FailureTarget first: Failed follows when the last pod has ended, which may be after a limit that came later.
    failed = true_condition(child, "FailureTarget", "Failed")
    limit, start = child.spec.active_deadline_seconds, child.status.start_time
    if failed is None or failed.last_transition_time is None or limit is None or start is None:
        return False
    # A pod that fails by itself stays; only a deletion ends it and takes it away.
    if any(pod.status.phase == "Failed" and pod.metadata.deletion_timestamp is None for pod in seen.pods):
        return False
    return moment(failed.last_transition_time) - moment(start) >= timedelta(seconds=limit)
