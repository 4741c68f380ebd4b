"""What follows from the end of a run: another try at a price, or none."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.meta import find_condition
from dovetail.formats.durations import moment
from dovetail.jobs.batch_job import deadline_seconds, is_on_the_way, wants_admission
from dovetail.jobs.start_times import due_again, resting
from dovetail.kube.errors import Status, StatusError
from dovetail_operator.job import failure_policy
from dovetail_operator.job.actions import CreateJob, DeleteJob, PatchJob
from dovetail_operator.lifecycle.reconcile import Outcome, reconcile
from dovetail_operator.writes.services import refusal
from tests.operator_.builders import LET_GO, NOW, at, condition, make_child, make_job, make_pod, see

EXCEEDED = condition("Failed", reason="BackoffLimitExceeded", message="Job has reached the backoff limit")
LATE = condition("Failed", reason="DeadlineExceeded", message="Job was active longer than specified deadline")
CODE_42 = {"operator": "In", "values": [42]}
RAN = {"phase": "Running", "startTime": at(-60)}


def by_rule(number: int) -> dict[str, Any]:
    message = f"Container main for pod team/x-0-abc failed with exit code 42 matching FailJob rule at index {number}"
    return condition("Failed", reason="PodFailurePolicy", message=message)


def failed(job: GPUJob, why: dict[str, Any], *pods: Any, **child: Any) -> Outcome:
    return reconcile(see(job, *pods, child=make_child(job, status={"conditions": [why]}, **child)))


def numbered(child: Job, *, attempt: int) -> Job:
    metadata = msgspec.structs.replace(child.metadata, annotations={"dovetail.dev/attempt": str(attempt)})
    return msgspec.structs.replace(child, metadata=metadata)


def after(job: GPUJob, status: GPUJobStatus) -> GPUJob:
    return msgspec.structs.replace(job, status=status)


def test_a_failed_worker_costs_a_retry_and_is_written_down_before_anything_is_deleted() -> None:
    job = make_job(backoffLimit=2, status=RAN)
    outcome = failed(job, EXCEEDED, make_pod(phase="Failed", exit_code=3, started=-60))
    assert outcome.actions == ()
    assert (outcome.status.phase, outcome.status.attempt, outcome.status.retries) == ("Queued", 2, 1)
    (ended,) = outcome.status.attempts
    assert (ended.number, ended.counted, ended.reason) == (1, True, "BackoffLimitExceeded")
    assert "exit code 3" in ended.message
    assert outcome.wake_at == NOW


def test_an_attempt_has_its_first_nodes_and_began_when_the_job_did() -> None:
    """Its batch Job exists before its pods have their nodes."""
    nodes = [f"n{number:02d}" for number in range(20)]
    child = {"status": {"conditions": [EXCEEDED], "startTime": at(-590)}}
    for status, start in ((RAN | {"nodes": nodes, "startTime": at(-500)}, at(-500)), ({"nodes": nodes}, at(-590))):
        job = make_job(backoffLimit=2, workers=20, status=status)
        seen = see(job, make_pod(node="late"), child=make_child(job, **child))
        (ended,) = reconcile(seen).status.attempts
        assert (ended.nodes, ended.start_time) == (nodes[:16], start)


def test_a_worker_whose_pod_somebody_deleted_is_told_so() -> None:
    job = make_job(backoffLimit=2, status=RAN)
    child = make_child(job, status={"conditions": [EXCEEDED], "failed": 1})
    (ended,) = reconcile(see(job, child=child)).status.attempts
    gone = "Job has reached the backoff limit: the worker that failed is gone (was it deleted?)"
    assert (ended.counted, ended.message) == (True, gone)


def test_a_job_that_is_tried_again_has_not_failed() -> None:
    job = make_job(backoffLimit=2, status=RAN)
    status = failed(job, EXCEEDED).status
    assert find_condition(status.conditions, type="Failed") is None
    assert status.completion_time is None


def test_the_job_of_an_attempt_that_is_over_is_deleted_and_nothing_starts_before_it_is_gone() -> None:
    job = make_job(backoffLimit=2, status={"attempt": 2, "retries": 1})
    child = make_child(job, status={"conditions": [EXCEEDED]})
    outcome = reconcile(see(job, child=child, verdict=LET_GO))
    assert [type(action) for action in outcome.actions] == [DeleteJob]
    assert outcome.status.attempts == job.status.attempts
    assert not wants_admission(job, child=child)
    assert not is_on_the_way(job, child=make_child(job))


def test_a_job_made_late_for_an_attempt_that_is_over_is_deleted() -> None:
    """As an operator would make it that was paused for a while."""
    job = make_job(backoffLimit=2, status={"attempt": 3})
    late = numbered(make_child(job), attempt=2)
    assert [type(action) for action in reconcile(see(job, child=late)).actions] == [DeleteJob]


def test_the_next_attempt_says_its_number() -> None:
    job = make_job(backoffLimit=2, status={"attempt": 2})
    (action,) = reconcile(see(job, verdict=LET_GO)).actions
    assert isinstance(action, CreateJob)
    assert action.manifest["metadata"]["annotations"]["dovetail.dev/attempt"] == "2"
    assert not resting(job, now=NOW)


def test_the_last_try_fails_the_job() -> None:
    job = make_job(backoffLimit=1, status=RAN | {"attempt": 2, "retries": 1})
    outcome = reconcile(see(job, child=numbered(make_child(job, status={"conditions": [EXCEEDED]}), attempt=2)))
    assert outcome.status.phase == "Failed"
    assert find_condition(outcome.status.conditions, type="Failed") is not None


@pytest.mark.parametrize(
    ("says", "spec", "why", "counted"),
    [
        ("a disrupted worker costs no retry", {}, by_rule(0), False),
        (
            "a failure that a rule ignores costs none",
            {"podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": CODE_42}]}},
            by_rule(1),
            False,
        ),
        (
            "a failure that a rule makes final is final",
            {
                "backoffLimit": 5,
                "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": CODE_42}]},
            },
            by_rule(1),
            None,
        ),
        (
            "an exit code that is not among those worth a try is final",
            {"backoffLimit": 5, "retryPolicy": {"exitCodes": [3]}},
            by_rule(1),
            None,
        ),
        ("a timeout is final", {"backoffLimit": 5, "activeDeadlineSeconds": 9}, LATE, None),
        (
            "a timeout is tried again where that is asked for",
            {"backoffLimit": 5, "activeDeadlineSeconds": 9, "retryPolicy": {"onTimeout": True}},
            LATE,
            True,
        ),
        (
            "a timeout is final when the time in all is used up",
            {
                "backoffLimit": 5,
                "activeDeadlineSeconds": 9,
                "maximumExecutionTimeSeconds": 50,
                "retryPolicy": {"onTimeout": True},
            },
            LATE,
            None,
        ),
    ],
)
def test_an_end(says: str, spec: dict[str, Any], why: dict[str, Any], counted: bool | None) -> None:
    status = failed(make_job(status=RAN, **spec), why).status
    if counted is None:
        assert status.phase in {"Failed", "TimedOut"}, says
        return
    assert status.phase == "Queued", says
    assert [each.counted for each in status.attempts] == [counted], says


def test_what_fails_while_its_job_is_suspended_costs_nothing() -> None:
    status = failed(make_job(status=RAN), EXCEEDED, suspend=True).status
    assert [(each.counted, each.reason) for each in status.attempts] == [(False, "Suspended")]


PREEMPTED = RAN | {"preemption": {"by": "team/urgent", "at": at(0), "message": "for team/urgent"}}


@pytest.mark.parametrize("spec", [{}, {"suspend": True}], ids=["preempted", "held"])
def test_a_job_that_passes_its_limit_just_before_it_is_suspended_has_timed_out(spec: dict[str, Any]) -> None:
    """As one whose batch Job a preemption suspends before the operator sees that it failed."""
    status = failed(make_job(status=PREEMPTED, activeDeadlineSeconds=9, **spec), LATE, suspend=True).status
    assert (status.phase, status.attempts) == ("TimedOut", [])
    assert status.preemption is not None
    assert (status.preemption.by, status.preemption.at) == ("", None)


def test_such_a_job_uses_a_retry_where_time_limits_are_tried_again() -> None:
    spec = {"activeDeadlineSeconds": 9, "backoffLimit": 5, "retryPolicy": {"onTimeout": True}}
    status = failed(make_job(status=PREEMPTED, **spec), LATE, suspend=True).status
    assert (status.phase, status.retries, [each.counted for each in status.attempts]) == ("Preempted", 1, [True])


def test_a_released_job_that_passed_its_limit_just_before_it_was_held_has_timed_out() -> None:
    doomed = {"conditions": [condition("Suspended", seconds=-9), LATE | {"type": "FailureTarget"}]}
    job = make_job(activeDeadlineSeconds=9, status={"phase": "Suspended", "startTime": at(-60)})
    child = make_child(job, suspend=True, status=doomed)
    assert not wants_admission(job, child=child)
    assert reconcile(see(job, child=child, verdict=LET_GO)).status.phase == "TimedOut"


# A rule took the end of the pods of a suspended Job for a failure: the Job controller says Failed once it goes on.
DOOMED = {"conditions": [condition("Suspended", seconds=-9), by_rule(1) | {"type": "FailureTarget"}]}

HELD_RUN = {"number": 1, "reason": "Suspended", "message": "", "counted": False, "endTime": at(-5)}


def test_a_released_job_whose_pods_failed_by_a_rule_as_it_was_held_is_tried_again_at_no_cost() -> None:
    job = make_job(backoffLimit=3, retryPolicy={"exitCodes": [75]}, status={"phase": "Suspended", "startTime": at(-60)})
    child = make_child(job, suspend=True, status=DOOMED)
    assert not wants_admission(job, child=child)
    outcome = reconcile(see(job, child=child, verdict=LET_GO))
    assert [(each.counted, each.reason) for each in outcome.status.attempts] == [(False, "Suspended")]
    assert (outcome.status.phase, outcome.status.retries, outcome.actions) == ("Queued", 0, ())
    later = after(job, outcome.status)
    assert reconcile(see(later, child=child)).actions == (DeleteJob(),)


@pytest.mark.parametrize(("spec", "phase"), [({"suspend": True}, "Suspended"), ({"cancel": True}, "Cancelled")])
def test_as_long_as_it_is_held_that_is_nobodys_business(spec: dict[str, bool], phase: str) -> None:
    job = make_job(backoffLimit=3, status={"phase": "Suspended", "startTime": at(-60)}, **spec)
    assert reconcile(see(job, child=make_child(job, suspend=True, status=DOOMED))).status.phase == phase


def test_a_held_job_is_held_while_its_failed_job_goes() -> None:
    job = make_job(suspend=True, status={"attempt": 2, "attempts": [HELD_RUN]})
    outcome = reconcile(see(job, child=make_child(job, suspend=True, status={"conditions": [EXCEEDED]})))
    assert (outcome.status.phase, outcome.actions) == ("Suspended", (DeleteJob(),))


def test_a_cancelled_job_is_not_tried_again() -> None:
    assert failed(make_job(backoffLimit=3, cancel=True, status=RAN), EXCEEDED).status.phase == "Failed"


def test_where_kubelet_tries_again_the_operator_does_not() -> None:
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main"}]}}
    job = make_job(backoffLimit=3, template=template, status=RAN)
    assert failure_policy.inner_backoff_limit(job) == 3
    assert failed(job, EXCEEDED).status.phase == "Failed"


def test_each_failure_that_counts_doubles_the_pause() -> None:
    job = make_job(backoffLimit=9, status=RAN)
    pauses = []
    for number in range(1, 8):
        child = numbered(make_child(job, status={"conditions": [EXCEEDED]}), attempt=number)
        job = after(job, reconcile(see(job, child=child)).status)
        due = due_again(job)
        assert due is not None
        pauses.append((due - moment(at(0))).total_seconds())
    assert pauses == [10, 20, 40, 80, 160, 320, 360]


def test_what_ends_run_after_run_at_no_price_is_tried_ever_less_often_until_one_lasts() -> None:
    def pause(*run_seconds: float, held: int | None = None) -> float:
        runs = [
            {"number": 1, "reason": "Suspended" if number == held else "PodFailurePolicy", "message": "m",
             "counted": False, "startTime": at(-ran), "endTime": at(0)}
            for number, ran in enumerate(run_seconds)
        ]  # fmt: skip
        due = due_again(make_job(status={"attempts": runs, "attempt": 2}))
        assert due is not None
        return (due - NOW).total_seconds()

    assert [pause(*[5.0] * many) for many in (1, 2, 3, 5, 16)] == [2, 4, 8, 32, 360]
    assert (pause(5, 5, 3600, 5, 5), pause(5, 5, 3600)) == (4, 2)
    # Nothing failed in a run that its user ended.
    assert (pause(5, 5, 5, 5, held=1), pause(5, 5, held=0), pause(5, 5, held=1)) == (4, 2, 0)


def test_while_it_rests_the_job_says_until_when_and_why() -> None:
    job = make_job(backoffLimit=2, status=RAN)
    job = after(job, failed(job, EXCEEDED, make_pod(phase="Failed", exit_code=3)).status)
    obstacle = resting(job, now=NOW + timedelta(seconds=5))
    assert obstacle is not None
    assert obstacle.reason == "BeginTime"
    assert "Attempt 2 starts at 2026-01-01T12:00:10" in obstacle.message
    assert "exit code 3" in obstacle.message
    seen = see(job, obstacle=obstacle)
    assert reconcile(seen).wake_at == NOW + timedelta(seconds=10)
    assert resting(job, now=NOW + timedelta(seconds=10)) is None


def test_rules_stand_in_their_order_behind_the_one_on_disruptions() -> None:
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "ConfigIssue"}]}]
    job = make_job(podFailurePolicy={"rules": rules}, retryPolicy={"exitCodes": [4, 3]})
    assert failure_policy.failure_rules(job) == [
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [3, 4]}},
    ]


def test_exit_codes_are_handed_on_in_their_order_and_once() -> None:
    rule = {"action": "Count", "onExitCodes": {"operator": "In", "values": [9, 3, 9]}}
    (_, ours) = failure_policy.failure_rules(make_job(podFailurePolicy={"rules": [rule]}))
    assert ours["onExitCodes"]["values"] == [3, 9]


RULES = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [8]}}]}


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (1, "exit code 8, which by spec.podFailurePolicy.rules[0] fails the job at once"),
        (2, "exit code 8, which is none of spec.retryPolicy.exitCodes (7, 75)"),
    ],
)
def test_a_failure_that_is_not_tried_again_says_what_of_the_spec_it_hangs_on(number: int, told: str) -> None:
    job = make_job(backoffLimit=1, podFailurePolicy=RULES, retryPolicy={"exitCodes": [75, 7]}, status=RAN)
    status = failed(job, by_rule(number), make_pod(phase="Failed", exit_code=8, started=-60)).status
    assert status.phase == "Failed"
    assert status.message.endswith(told)


def test_where_no_pod_tells_any_more_the_job_controller_does_without_its_own_number_of_the_rule() -> None:
    why = by_rule(1) | {
        "message": "Container main for pod a/x-0 failed with exit code 8 matching FailJob rule at index 1"
    }
    status = failed(make_job(podFailurePolicy=RULES, status=RAN), why).status
    assert status.message.endswith(
        "failed with exit code 8, which by spec.podFailurePolicy.rules[0] fails the job at once"
    )


def test_what_the_api_server_says_of_a_rule_has_the_number_that_the_user_knows() -> None:
    said = 'Job.batch "x" is invalid: spec.podFailurePolicy.rules[1].onExitCodes.containerName: Invalid value: "y"'
    found = refusal(StatusError(Status(code=422, reason="Invalid", message=said)), kind="Job")
    assert "spec.podFailurePolicy.rules[0].onExitCodes" in found.message


def test_time_before_a_suspension_counts_in_all_and_not_in_the_limit_of_a_run() -> None:
    held = condition("Suspended", seconds=-10) | {"observedGeneration": 1}
    job = make_job(
        activeDeadlineSeconds=100,
        maximumExecutionTimeSeconds=120,
        status={"phase": "Suspended", "startTime": at(-60), "conditions": [held]},
    )
    child = make_child(job, suspend=True, status={"conditions": [condition("Suspended", seconds=-10)]})
    outcome = reconcile(see(job, child=child, verdict=LET_GO))
    assert (outcome.status.earlier_run_seconds, outcome.status.start_time) == (50, None)
    (action,) = outcome.actions
    assert isinstance(action, PatchJob)
    assert action.spec["activeDeadlineSeconds"] == 70


@pytest.mark.parametrize(("spec", "phase"), [({"suspend": True}, "Suspended"), ({"cancel": True}, "Cancelled")])
def test_the_run_time_that_is_told_ends_with_the_suspension(spec: dict[str, bool], phase: str) -> None:
    held = condition("Suspended", seconds=-55) | {"observedGeneration": 1}
    status = {"phase": "Suspended", "startTime": at(-60), "elapsed": "0s", "conditions": [held]}
    job = make_job(status=status, **spec)
    child = make_child(job, suspend=True, status={"conditions": [condition("Suspended", seconds=-55)]})
    told = reconcile(see(job, child=child)).status
    assert (told.phase, told.elapsed) == (phase, "5s")


def test_a_job_that_has_used_up_its_time_does_not_start_again() -> None:
    job = make_job(maximumExecutionTimeSeconds=50, status={"earlierRunSeconds": 50})
    status = reconcile(see(job, verdict=LET_GO)).status
    assert (status.phase, status.reason) == ("TimedOut", "DeadlineExceeded")
    assert find_condition(status.conditions, type="Failed") is not None


def test_a_renewed_lease_moves_the_limit_of_its_job() -> None:
    lease = {"durationSeconds": 100, "renewTime": at(-20)}
    job = make_job(reservation=lease, template={"spec": {}})
    child = make_child(job, status={"startTime": at(-60)})
    assert deadline_seconds(job, child=child) == 140


def test_a_reservation_is_a_container_that_waits() -> None:
    job = make_job(reservation={"durationSeconds": 100}, template={"spec": {}})
    (action,) = reconcile(see(job, verdict=LET_GO)).actions
    assert isinstance(action, CreateJob)
    (container,) = action.manifest["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.k8s.io/pause:3.10"
    assert container["resources"]["limits"] == {"dovetail.dev/gpu-milli": "1000"}
    assert action.manifest["spec"]["activeDeadlineSeconds"] == 100
