"""Retries: which ends of a run lead to another attempt, at what cost and after what delay.

Pure.

A batch Job is one attempt: the failure of any worker ends it and the rest of its gang. Its conditions alone have to
identify the kind of failure, because the pods may be gone. Each kind that matters therefore fails the batch Job by its
own podFailurePolicy rule, and the condition names the rule's index.

The steps are: write the ended attempt into the status, which marks its batch Job as past; delete that Job; queue the
job again. The operator may stop between two steps, because each step follows from what the API server has.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dovetail.api.builtin import Condition, Job
from dovetail.api.gpujob import Attempt, FailureRule, GPUJob, GPUJobStatus
from dovetail.api.meta import find_condition
from dovetail.formats.durations import moment, timestamp
from dovetail.jobs.batch_job import is_going, true_condition
from dovetail.pods.demand import fields_of
from dovetail_operator.job.observation import Observed

_KEPT: Final = 16
_NODES_NOTED: Final = 16
_DISRUPTED: Final = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
# Our rules precede the user's.
_OUR_RULES: Final = 1
_NAMED_RULE: Final = re.compile(r"podFailurePolicy\.rules\[(\d+)\]")
_MATCHED: Final = re.compile(r" matching \w+ rule at index \d+")
_RULE_NUMBER: Final = re.compile(r"rule at index (\d+)")


class _Restarts(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a template that says whether kubelet restarts containers in place."""

    restart_policy: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """The run has ended, and the job runs again. `counted`: this uses one of its retries."""

    counted: bool
    reason: str
    message: str


def in_place(job: GPUJob) -> bool:
    """Whether kubelet restarts a failed container in its pod."""
    return bool(fields_of(job, _Restarts).restart_policy == "OnFailure")


def inner_backoff_limit(job: GPUJob) -> int:
    """The number of pod failures that the batch Job itself tolerates."""
    return job.spec.backoff_limit if in_place(job) else 0


def failure_rules(job: GPUJob) -> list[dict[str, Any]]:
    """The batch Job's podFailurePolicy: a rule for each kind of failure to distinguish."""
    rules = [_DISRUPTED, *(_failing(rule) for rule in _users_rules(job))]
    policy = job.spec.retry_policy
    if policy is not None and policy.exit_codes:
        codes = {"operator": "NotIn", "values": sorted(set(policy.exit_codes))}
        rules.append({"action": "FailJob", "onExitCodes": codes})
    return rules


def again(seen: Observed, child: Job, failed: Condition, *, how: str) -> Again | None:
    """Decide whether the job runs again after its batch Job has failed.

    None: the failure is final.

    `how` describes the failure in words.
    """
    spec = seen.job.spec
    if spec.cancel or is_going(seen.job):
        return None
    if child.spec.suspend:
        # Pods that the suspension ends may have any exit code.
        return Again(counted=False, reason="Suspended", message="Its pods were ended because it was suspended")
    if in_place(seen.job):
        return None
    if failed.reason == "PodFailurePolicy":
        return _by_rule(seen.job, failed, how=how)
    if failed.reason == "DeadlineExceeded" and not _may_retry_timeout(seen):
        return None
    if seen.job.status.retries >= spec.backoff_limit:
        return None
    return Again(counted=True, reason=failed.reason or "Failed", message=how)


def why_final(job: GPUJob, failed: Condition) -> str:
    """Which field of the spec makes this failure final, as a suffix to the message; else empty."""
    rules, number = _users_rules(job), _rule_of(failed)
    if failed.reason != "PodFailurePolicy" or number < 1:
        return ""
    if number <= len(rules):
        return f", which by spec.podFailurePolicy.rules[{number - 1}] fails the job at once"
    codes = sorted(set(job.spec.retry_policy.exit_codes)) if job.spec.retry_policy is not None else []
    return f", which is none of spec.retryPolicy.exitCodes ({', '.join(map(str, codes))})"


def without_rule(text: str) -> str:
    """The Job controller's message without the rule index, which counts our rules too."""
    return _MATCHED.sub("", text)


def as_users_rules(text: str) -> str:
    """The API server's message with rule indexes of the GPUJob instead of the batch Job."""
    return _NAMED_RULE.sub(lambda found: f"podFailurePolicy.rules[{int(found[1]) - _OUR_RULES}]", text)


def ended_attempt(seen: Observed, child: Job, why: Again) -> Attempt:
    """The record of the attempt that `child` ran."""
    failed = true_condition(child, "Failed", "FailureTarget")
    told = failed.last_transition_time if failed is not None else None
    bound = [pod.spec.node_name for pod in seen.pods if pod.spec.node_name]
    nodes = list(dict.fromkeys([*seen.job.status.nodes, *bound]))
    return Attempt(
        number=seen.job.status.attempt,
        reason=why.reason,
        message=why.message,
        counted=why.counted,
        start_time=seen.job.status.start_time or child.status.start_time,
        end_time=told or timestamp(seen.now),
        nodes=nodes[:_NODES_NOTED],
    )


def noted(status: GPUJobStatus, ended: Attempt | None) -> GPUJobStatus:
    """The status with `ended` added to the ended attempts, and the next attempt number."""
    if ended is None:
        return status
    return msgspec.structs.replace(
        status,
        attempt=ended.number + 1,
        retries=status.retries + ended.counted,
        attempts=[*status.attempts, ended][-_KEPT:],
    )


def used_seconds(seen: Observed) -> int:
    """Run time of all ended runs in seconds, including one that has just ended."""
    status = seen.job.status
    if status.start_time is None:
        return status.earlier_run_seconds
    ran = (moment(_end_of_run(seen)) - moment(status.start_time)).total_seconds()
    return status.earlier_run_seconds + max(0, round(ran))


def with_time_used(seen: Observed) -> GPUJob:
    """The job as it starts again: its status includes the time of all runs so far."""
    status = msgspec.structs.replace(seen.job.status, earlier_run_seconds=used_seconds(seen))
    return msgspec.structs.replace(seen.job, status=status)


def _end_of_run(seen: Observed) -> str:
    ended = None if seen.child is None else true_condition(seen.child, "Failed", "Suspended")
    held = find_condition(seen.job.status.conditions, "Suspended")
    if ended is not None and ended.last_transition_time is not None:
        return ended.last_transition_time
    return held.last_transition_time if held is not None and held.status == "True" else timestamp(seen.now)


def is_used_up(seen: Observed) -> bool:
    """Whether the job has used up its total run time."""
    limit = seen.job.spec.maximum_execution_time_seconds
    return limit is not None and used_seconds(seen) >= limit


def _may_retry_timeout(seen: Observed) -> bool:
    policy = seen.job.spec.retry_policy
    return policy is not None and policy.on_timeout and not is_used_up(seen)


def _by_rule(job: GPUJob, failed: Condition, *, how: str) -> Again | None:
    number = _rule_of(failed)
    if number == 0:
        message = "A worker was disrupted, which costs no retry"
        return Again(counted=False, reason="DisruptionTarget", message=f"{message}: {how}" if how else message)
    rules = _users_rules(job)
    if 1 <= number <= len(rules) and rules[number - 1].action == "Ignore":
        return Again(counted=False, reason="PodFailurePolicy", message=how or failed.message)
    return None


def _rule_of(failed: Condition) -> int:
    """The index of the batch Job's rule that failed it; -1 if the condition names none."""
    found = _RULE_NUMBER.search(failed.message)
    return int(found[1]) if found else -1


def _users_rules(job: GPUJob) -> list[FailureRule]:
    policy = job.spec.pod_failure_policy
    return [] if policy is None else policy.rules


def _failing(rule: FailureRule) -> dict[str, Any]:
    written: dict[str, Any] = msgspec.to_builtins(rule)
    if rule.on_exit_codes is not None:
        # A batch Job accepts the exit codes only in ascending order.
        written["onExitCodes"]["values"] = sorted(set(rule.on_exit_codes.values))
    # A failure that costs no retry restarts the whole job, not one worker while the others run.
    return written | {"action": "FailJob" if rule.action == "Ignore" else rule.action}
