"""How a job ended whose batch Job is over, in one sentence, and whether it is retried. Pure."""

from collections.abc import Sequence

from dovetail.api.builtin import Condition, Job, Pod
from dovetail.api.reasons import end as says
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.codes import FAILED
from dovetail.api.reasons.start import TRIED_AGAIN
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
    how = _over_limit(seen) if late else _how_it_failed(seen.pods) or _without_pod(seen, child=child, failed=failed)
    if (retry := retry_of(seen, child=child, failed=failed, how=how)) is not None:
        ended = ended_attempt(seen, child=child, why=retry)
        return Stage(phase="Queued", why=TRIED_AGAIN(why=retry.message), ended=ended)
    how += why_final(seen.job, failed=failed)
    if seen.job.spec.backoff_limit and seen.job.status.attempts:
        how += says.ATTEMPT(attempt=seen.job.status.attempt, retries=seen.job.status.retries)
    why = how.with_reason(failed.reason or FAILED.code)
    return Stage(phase="TimedOut" if late else "Failed", why=why, admitted=True)


def _over_limit(seen: Observed) -> Sentence:
    spec = seen.job.spec
    if spec.reservation is not None:
        return says.LEASE_ENDED()
    if is_used_up(seen):
        return says.TOTAL_TIME_USED(seconds=spec.maximum_execution_time_seconds or 0)
    if spec.active_deadline_seconds is None:
        return says.OVER_LIMIT_OF_JOB()
    return says.OVER_LIMIT(seconds=spec.active_deadline_seconds)


def _without_pod(seen: Observed, *, child: Job, failed: Condition) -> Sentence:
    """The Job controller's message, with a note if the failed pod no longer exists."""
    said = says.JOB_CONTROLLER_SAYS(message=without_rule(failed.message))
    if failed.reason != "BackoffLimitExceeded" or not child.status.failed:
        return said
    if any(pod.status.phase == "Failed" for pod in seen.pods):
        return said
    return said + says.FAILED_POD_GONE()


def _how_it_failed(pods: Sequence[Pod]) -> Sentence | None:
    """The last failure of a worker in one sentence; None if no pod shows one.

    When one pod of a gang fails, the Job controller deletes the others, and kubelet reports their end as a failure too.
    Pods without a deletion timestamp therefore come first.
    """
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    for pod in sorted(failed, key=_ended_by_itself_and_last, reverse=True):
        worker, node = worker_of(pod), pod.spec.node_name
        for container in pod.status.container_statuses:
            end = container.state.terminated
            if end is not None and end.exit_code != 0:
                found = says.CONTAINER_FAILED(
                    worker=worker, node=node, container=container.name, exit_code=end.exit_code
                )
                return found if end.reason in {"", "Error"} else found + says.IN_WORDS(word=end.reason)
        if pod.status.reason or pod.status.message:
            return says.WORKER_FAILED(worker=worker, node=node, message=pod.status.message or pod.status.reason)
    return None


def _ended_by_itself_and_last(pod: Pod) -> tuple[bool, str]:
    return pod.metadata.deletion_timestamp is None, pod.metadata.creation_timestamp
