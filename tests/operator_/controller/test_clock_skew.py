"""The operator's clock and those of API server and nodes disagree: nothing is ended early, and no time is negative."""

from datetime import timedelta

from dovetail_operator.job.actions import DeleteGPUJob
from dovetail_operator.lifecycle.reconcile import reconcile
from tests.operator_.builders import LET_GO, NOW, at, condition, make_child, make_job, make_pod, see

HOUR = timedelta(hours=1)


def test_a_job_that_began_in_our_future_has_run_for_no_time() -> None:
    job = make_job(status={"number": 7, "phase": "Starting"}, activeDeadlineSeconds=60)
    child = make_child(job, status={"startTime": at(0)})
    outcome = reconcile(see(job, make_pod(started=0), child=child, verdict=LET_GO, now=NOW - HOUR))
    assert (outcome.status.phase, outcome.status.elapsed) == ("Running", "")
    assert not outcome.actions


def test_a_job_that_ended_in_our_future_is_kept_for_its_time_to_live_from_then_on() -> None:
    status = {"number": 7, "phase": "Succeeded", "completionTime": at(0)}
    job = make_job(ttlSecondsAfterFinished=60, status=status)
    early = reconcile(see(job, now=NOW - HOUR))
    assert (early.actions, early.wake_at) == ((), NOW + timedelta(seconds=60))
    assert reconcile(see(job, now=NOW + timedelta(seconds=60))).actions == (DeleteGPUJob(),)


def test_only_the_job_controller_says_that_a_time_limit_is_over() -> None:
    job = make_job(status={"number": 7, "phase": "Running", "startTime": at(0)}, activeDeadlineSeconds=60)
    child = make_child(job, status={"startTime": at(0)})
    late = reconcile(see(job, make_pod(started=0), child=child, now=NOW + 24 * HOUR))
    assert (late.status.phase, late.actions) == ("Running", ())
    over = make_child(job, status={"conditions": [condition("Failed", reason="DeadlineExceeded")]})
    assert reconcile(see(job, child=over, now=NOW - HOUR)).status.phase == "TimedOut"
