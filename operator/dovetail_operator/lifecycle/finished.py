"""How a job ended whose batch Job is over, in one sentence, and whether it is retried. Pure."""

from collections.abc import Sequence

from dovetail.api.builtin import Condition, Job, Pod
from dovetail.jobs.batch_job import true_condition, worker_of
from dovetail_operator.job.actions import Stage
from dovetail_operator.job.attempts import ended_attempt
from dovetail_operator.job.failure_policy import why_final, without_rule
from dovetail_operator.job.missed_deadline import DEADLINE_EXCEEDED, judged
from dovetail_operator.job.observation import Observed
from dovetail_operator.job.retries import retry_of
from dovetail_operator.job.run_time import is_used_up


def end_of(seen: Observed, *, child: Job) -> Stage:
    """The stage of a job whose batch Job has ended: its final phase, or another attempt."""
    if true_condition(child, "Complete"):
        return Stage(phase="Succeeded", admitted=True)
    failed = true_condition(child, "Failed", "FailureTarget")
    assert failed is not None, "a Job that has ended is Complete or Failed, or about to be"
    failed = judged(failed, seen=seen, child=child)
    late = failed.reason == DEADLINE_EXCEEDED
    message = (
        _over_limit(seen)
        if late
        else _how_it_failed(seen.pods) or _message_without_pod(seen, child=child, failed=failed)
    )
    if (why := retry_of(seen, child=child, failed=failed, how=message)) is not None:
        ended = ended_attempt(seen, child=child, why=why)
        return Stage(phase="Queued", reason="Evaluating", message=f"Is tried again: {why.message}", ended=ended)
    message += why_final(seen.job, failed=failed)
    if seen.job.spec.backoff_limit and seen.job.status.attempts:
        retries = seen.job.status.retries
        used = f"{retries} {'retry' if retries == 1 else 'retries'} used"
        message = f"{message} (attempt {seen.job.status.attempt}, {used})"
    return Stage(
        phase="TimedOut" if late else "Failed", reason=failed.reason or "Failed", message=message, admitted=True
    )


def _over_limit(seen: Observed) -> str:
    if seen.job.spec.reservation is not None:
        return "Its lease has ended: spec.reservation.renewTime was not renewed in time"
    if is_used_up(seen):
        limit = seen.job.spec.maximum_execution_time_seconds
        return f"Ran longer than its limit of {limit} s in all (spec.maximumExecutionTimeSeconds)"
    limit = seen.job.spec.active_deadline_seconds
    if limit is None:
        return "Ran longer than a limit set in its Job by another client (activeDeadlineSeconds)"
    return f"Ran longer than its limit of {limit} s (spec.activeDeadlineSeconds)"


def _message_without_pod(seen: Observed, *, child: Job, failed: Condition) -> str:
    """The Job controller's message, with a note if the failed pod no longer exists."""
    said = without_rule(failed.message)
    if failed.reason != "BackoffLimitExceeded" or not child.status.failed:
        return said
    if any(pod.status.phase == "Failed" for pod in seen.pods):
        return said
    return f"{said}: the pod of the worker that failed is there no more (was it deleted?)"


def _how_it_failed(pods: Sequence[Pod]) -> str:
    """The last failure of a worker in one sentence; empty if no pod shows one.

    When one pod of a gang fails, the Job controller deletes the others, and kubelet reports their end as a failure too.
    Pods without a deletion timestamp therefore come first.
    """
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    for pod in sorted(failed, key=_ended_by_itself_and_last, reverse=True):
        where = f"Worker {worker_of(pod)} failed on {pod.spec.node_name}"
        for container in pod.status.container_statuses:
            end = container.state.terminated
            if end is not None and end.exit_code != 0:
                said = f" ({end.reason})" if end.reason not in {"", "Error"} else ""
                return f"{where}: container {container.name} ended with exit code {end.exit_code}{said}"
        if pod.status.reason or pod.status.message:
            return f"{where}: {pod.status.message or pod.status.reason}"
    return ""


def _ended_by_itself_and_last(pod: Pod) -> tuple[bool, str]:
    return pod.metadata.deletion_timestamp is None, pod.metadata.creation_timestamp
