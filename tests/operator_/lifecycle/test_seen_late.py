"""What has ended has the same words and times whenever the operator sees it: after an outage too."""

from datetime import timedelta
from itertools import product
from typing import Any, Final

import msgspec
import pytest

from dovetail.api.conversion import values_of
from dovetail_operator.lifecycle.reconcile import Outcome, reconcile
from tests.operator_.builders import NOW, at, condition, make_child, make_job, make_pod, see

AGO: Final = -30.0
CODE_42: Final = {"operator": "In", "values": [42]}
BY_RULE: Final = "Container main for pod team/x-0-abc failed with exit code 42 matching FailJob rule at index 1"
DISRUPTED: Final = "Pod team/x-0-abc has condition DisruptionTarget matching FailJob rule at index 0"


def ended(type_: str, reason: str, message: str = "") -> dict[str, Any]:
    """The status of a batch Job that ended `AGO` seconds from now."""
    over = {"completionTime": at(AGO)} if type_ == "Complete" else {}
    return {
        "startTime": at(-500),
        "conditions": [condition(type_, reason=reason, message=message, seconds=AGO)],
        **over,
    }


ENDS: Final = {
    "complete": ended("Complete", "CompletionsReached"),
    "failed": ended("Failed", "BackoffLimitExceeded"),
    "failing": ended("FailureTarget", "BackoffLimitExceeded"),
    "by a rule": ended("Failed", "PodFailurePolicy", BY_RULE),
    "disrupted": ended("Failed", "PodFailurePolicy", DISRUPTED),
    "too long": ended("Failed", "DeadlineExceeded"),
}
SPECS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "with retries": {"backoffLimit": 2},
    "with retries after its limit": {
        "backoffLimit": 2, "activeDeadlineSeconds": 470, "retryPolicy": {"onTimeout": True},
    },
    "with a total limit": {"backoffLimit": 2, "maximumExecutionTimeSeconds": 3600},
    "whose rule ignores a code": {
        "backoffLimit": 2, "podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": CODE_42}]},
    },
    "that is cancelled": {"cancel": True},
    "of several workers": {"workers": 3, "backoffLimit": 1},
}  # fmt: skip
EARLIER: Final = {
    "number": 1, "reason": "Failed", "message": "", "counted": True, "startTime": at(-5000), "endTime": at(-4000),
}  # fmt: skip
STATUSES: Final[dict[str, dict[str, Any]]] = {
    "running": {"phase": "Running", "startTime": at(-490)},
    "not seen running": {"phase": "Starting"},
    "in its second run": {
        "phase": "Running", "startTime": at(-490), "attempt": 2, "retries": 1, "attempts": [EARLIER],
        "earlierRunSeconds": 1000,
    },
}  # fmt: skip
PODS: Final = {
    "no pods": (),
    "a failed pod": (make_pod(phase="Failed", exit_code=42, started=-490),),
    "pods that go on": (make_pod(phase="Failed", exit_code=1, started=-490), make_pod(1, started=-480)),
}


def outcome_at(seconds: float, *, end: str, spec: str, status: str, pods: str) -> Outcome:
    admitted = {"conditions": [condition("Admitted", reason="Admitted", seconds=-600)], "admittedTime": at(-600)}
    job = make_job(status={"number": 7, "nodes": ["n1"], **admitted, **STATUSES[status]}, **SPECS[spec])
    child = make_child(job, status=ENDS[end])
    marks = {"dovetail.dev/attempt": str(job.status.attempt)}
    child = msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, annotations=marks))
    return reconcile(see(job, *PODS[pods], child=child, now=NOW + timedelta(seconds=seconds)))


# The operator decides on the end of a job that is cancelled while its pods go.
CASES: Final = [each for each in product(ENDS, SPECS, STATUSES, PODS) if each[:2] != ("failing", "that is cancelled")]


@pytest.mark.parametrize(("end", "spec", "status", "pods"), CASES)
def test_an_end_has_the_same_times_three_hours_later(end: str, spec: str, status: str, pods: str) -> None:
    case = {"end": end, "spec": spec, "status": status, "pods": pods}
    early, late = outcome_at(0, **case), outcome_at(3 * 3600, **case)
    assert late.actions == early.actions
    assert values_of(late.status) == values_of(early.status)
    told = early.status
    assert told.completion_time in {None, at(AGO)}
    news = told.attempts[len(STATUSES[status].get("attempts", ())) :]
    assert [each.end_time for each in news] in ([], [at(AGO)])
    if told.start_time is not None or news:
        # As its status had it, or as its pods, or its batch Job, say.
        assert {told.start_time, *(each.start_time for each in news)} <= {None, at(-490), at(-500)}
