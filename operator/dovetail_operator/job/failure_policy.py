"""The podFailurePolicy of a batch Job: how it tells kinds of failures apart, and how users read it. Pure.

The conditions of a batch Job alone have to identify the kind of failure, because the pods may be gone. Each kind that
matters therefore fails the batch Job by its own rule, and the condition names the rule's index.
"""

import re
from typing import Any, Final

import msgspec

from dovetail.api.builtin import Condition
from dovetail.api.gpujob import FailureRule, GPUJob
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.api.reasons.end import BY_RULE, NO_RETRIED_CODE
from dovetail.pods.demand import fields_of

_DISRUPTED: Final = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
# Our rules precede the user's.
_OUR_RULES: Final = 1
_NAMED_RULE: Final = re.compile(r"podFailurePolicy\.rules\[(\d+)\]")
_MATCHED: Final = re.compile(r" matching \w+ rule at index \d+")
_RULE_NUMBER: Final = re.compile(r"rule at index (\d+)")


class _Restarts(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a template that says whether kubelet restarts containers in place."""

    restart_policy: Any = None


def in_place(job: GPUJob) -> bool:
    """Whether kubelet restarts a failed container in its pod."""
    return bool(fields_of(job, as_type=_Restarts).restart_policy == "OnFailure")


def inner_backoff_limit(job: GPUJob) -> int:
    """The number of pod failures that the batch Job itself tolerates."""
    return job.spec.backoff_limit if in_place(job) else 0


def failure_rules(job: GPUJob) -> list[dict[str, Any]]:
    """The batch Job's podFailurePolicy: a rule for each kind of failure to distinguish."""
    # With Ignore, the Job controller replaces the pod, and the queue gives the new one another node.
    disrupted = {**_DISRUPTED, "action": "Ignore"} if job.spec.restart == "Worker" else _DISRUPTED
    rules = [disrupted, *(_failing(rule) for rule in rules_of(job))]
    policy = job.spec.retry_policy
    if policy is not None and policy.exit_codes:
        codes = {"operator": "NotIn", "values": sorted(set(policy.exit_codes))}
        rules.append({"action": "FailJob", "onExitCodes": codes})
    return rules


def why_final(job: GPUJob, *, failed: Condition) -> Sentence:
    """Which field of the spec makes this failure final, as a suffix to the message; else empty."""
    rules, number = rules_of(job), rule_index_of(failed)
    if failed.reason != "PodFailurePolicy" or number < 1:
        return NOTHING
    if number <= len(rules):
        return BY_RULE(index=number - 1)
    codes = sorted(set(job.spec.retry_policy.exit_codes)) if job.spec.retry_policy is not None else []
    return NO_RETRIED_CODE(codes=", ".join(map(str, codes)))


def without_rule(text: str) -> str:
    """The Job controller's message without the rule index, which counts our rules too."""
    return _MATCHED.sub("", text)


def as_users_rules(text: str) -> str:
    """The API server's message with rule indexes of the GPUJob instead of the batch Job."""
    return _NAMED_RULE.sub(lambda found: f"podFailurePolicy.rules[{int(found[1]) - _OUR_RULES}]", text)


def rule_index_of(failed: Condition) -> int:
    """The index of the batch Job's rule that failed it; -1 if the condition names none."""
    found = _RULE_NUMBER.search(failed.message)
    return int(found[1]) if found else -1


def is_disruption(failed: Condition) -> bool:
    """Whether the batch Job failed because one of its pods was disrupted (evicted, preempted, its node drained)."""
    return failed.reason == "PodFailurePolicy" and rule_index_of(failed) == 0


def rules_of(job: GPUJob) -> list[FailureRule]:
    """The user's rules, in their order."""
    policy = job.spec.pod_failure_policy
    return [] if policy is None else policy.rules


def _failing(rule: FailureRule) -> dict[str, Any]:
    written: dict[str, Any] = msgspec.to_builtins(rule)
    if rule.on_exit_codes is not None:
        # A batch Job accepts the exit codes only in ascending order.
        written["onExitCodes"]["values"] = sorted(set(rule.on_exit_codes.values))
    # A failure that costs no retry restarts the whole job, not one worker while the others run.
    return written | {"action": "FailJob" if rule.action == "Ignore" else rule.action}
