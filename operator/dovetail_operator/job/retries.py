"""Retries: which ends of a run lead to another attempt, and at what cost. Pure.

A batch Job is one attempt: the failure of any worker ends it and the rest of its gang. `failure_policy` tells the kinds
of failures apart.

The steps are: write the ended attempt into the status, which marks its batch Job as past; delete that Job;
queue the job again. The operator may stop between two steps, because each step follows from what the API server has.
"""

from dataclasses import dataclass, replace
from typing import Final

from dovetail.api.builtin import Condition, Job
from dovetail.api.gpujob import Attempt, GPUJob
from dovetail.api.reasons.capacity import COLON
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.codes import FAILED, POD_FAILURE_POLICY
from dovetail.api.reasons.end import DISRUPTED, JOB_CONTROLLER_SAYS, SUSPENDED_PODS
from dovetail.formats.durations import timestamp
from dovetail.jobs.batch_job import is_going, true_condition
from dovetail_operator.job.failure_policy import in_place, is_disruption, rule_index_of, rules_of
from dovetail_operator.job.missed_deadline import DEADLINE_EXCEEDED
from dovetail_operator.job.observation import Observed, is_used_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry(Sentence):
    """The run has ended, and the job runs again. `counted`: this uses one of its retries."""

    counted: bool = False


def retry_of(seen: Observed, *, child: Job, failed: Condition, how: Sentence) -> Retry | None:
    """Decide whether the job runs again after its batch Job has failed.

    None: the failure is final.

    `how` describes the failure in words.
    """
    spec = seen.job.spec
    if spec.cancel or is_going(seen.job):
        return None
    if child.spec.suspend and failed.reason != DEADLINE_EXCEEDED:
        # Pods that the suspension ends may have any exit code. A time limit passed before it: none passes while the
        # Job is suspended (`pastActiveDeadline` in pkg/controller/job/job_controller.go).
        return Retry.of(SUSPENDED_PODS())
    if in_place(seen.job):
        return None
    if failed.reason == "PodFailurePolicy":
        return _by_rule(seen.job, failed=failed, how=how)
    if failed.reason == DEADLINE_EXCEEDED and not _may_retry_timeout(seen):
        return None
    if seen.job.status.retries >= spec.backoff_limit:
        return None
    return replace(Retry.of(how.with_reason(failed.reason or FAILED.code)), counted=True)


def _may_retry_timeout(seen: Observed) -> bool:
    policy = seen.job.spec.retry_policy
    return policy is not None and policy.on_timeout and not is_used_up(seen)


def _by_rule(job: GPUJob, *, failed: Condition, how: Sentence) -> Retry | None:
    if is_disruption(failed):
        return Retry.of(DISRUPTED() + COLON() + how if how.message else DISRUPTED())
    number, rules = rule_index_of(failed), rules_of(job)
    if 1 <= number <= len(rules) and rules[number - 1].action == "Ignore":
        why = how if how.message else JOB_CONTROLLER_SAYS(message=failed.message)
        return Retry.of(why.with_reason(POD_FAILURE_POLICY.code))
    return None


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
