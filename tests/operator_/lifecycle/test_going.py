"""Jobs that somebody has deleted and that a stranger's finalizer keeps: they are followed, and nothing is begun."""

from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Job
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail.jobs.batch_job import is_on_the_way
from dovetail_operator.job.actions import ChangeTask, DeleteJob, PatchJob
from dovetail_operator.job.observation import Observed
from dovetail_operator.lifecycle.reconcile import Outcome, reconcile
from tests.operator_.arrays.test_array_status import make_task, seen_with
from tests.operator_.builders import LET_GO, at, condition, make_child, make_job, make_pod, see

GOING = {"deletionTimestamp": at(-1), "finalizers": ["example.com/hold", "foregroundDeletion"]}
RUNS = {"phase": "Running", "startTime": at(-60), "number": 7}
COMPLETE = {"conditions": [condition("Complete")], "completionTime": at(-5), "succeeded": 1}
FAILED = {"conditions": [condition("Failed", reason="BackoffLimitExceeded", message="Job has failed")], "failed": 1}


def going(*, meta: dict[str, Any] | None = None, **job: Any) -> GPUJob:
    return make_job(meta=GOING if meta is None else meta, **job)


def told(seen: Observed) -> tuple[Any, ...]:
    outcome = reconcile(seen)
    return outcome.status.phase, outcome.status.reason, outcome.actions


def test_one_that_runs_is_followed_to_its_end() -> None:
    job = going(status=RUNS)
    running = reconcile(see(job, make_pod(started=-60), child=make_child(job)))
    assert (running.status.phase, running.status.elapsed) == ("Running", "")
    ended = reconcile(see(job, child=make_child(job, status=COMPLETE)))
    assert (ended.status.phase, ended.status.completion_time) == ("Succeeded", at(-5))


def test_one_that_fails_is_not_tried_again() -> None:
    job = going(status=RUNS, backoffLimit=3)
    outcome = reconcile(see(job, make_pod(phase="Failed", exit_code=4), child=make_child(job, status=FAILED)))
    assert (outcome.status.phase, outcome.status.retries, outcome.actions) == ("Failed", 0, ())
    assert outcome.status.message == "Worker 0 failed on n1: exit code 4"


@pytest.mark.parametrize(
    "child", [None, {"suspend": True}, {"meta": {"deletionTimestamp": at(-1)}}], ids=["no Job", "held", "one that goes"]
)
def test_one_that_waits_is_not_let_go_any_more_and_says_why(child: dict[str, Any] | None) -> None:
    job = going(status={"phase": "Queued", "number": 7})
    seen = see(job, child=None if child is None else child_of(job, **child), verdict=LET_GO)
    assert told(seen) == ("Queued", "Evaluating", ())
    says = "Is being deleted: waiting for the finalizer example.com/hold to be removed"
    assert reconcile(seen).status.message == says


def child_of(job: GPUJob, *, meta: dict[str, Any] | None = None, **spec: Any) -> Job:
    made: dict[str, Any] = values_of(make_child(job, **spec))
    return msgspec.convert({**made, "metadata": {**made["metadata"], **(meta or {})}}, Job)


@pytest.mark.parametrize(("finalizers", "counts"), [(["example.com/hold"], True), (["foregroundDeletion"], False)])
def test_the_queue_counts_on_its_end_only_where_it_is_about_to_go(finalizers: list[str], counts: bool) -> None:
    job = going(meta={**GOING, "finalizers": finalizers}, status=RUNS)
    assert is_on_the_way(job, child=make_child(job)) == counts


def test_one_of_kueue_is_not_given_to_kueue_any_more() -> None:
    meta = {**GOING, "labels": {"kueue.x-k8s.io/queue-name": "team"}}
    assert told(see(going(meta=meta, status={"phase": "Queued", "number": 7}))) == ("Queued", "Evaluating", ())


def test_one_that_runs_may_still_be_cancelled_and_held() -> None:
    cancelled, held = going(status=RUNS, cancel=True), going(status=RUNS, suspend=True)
    assert told(see(cancelled, child=make_child(cancelled))) == ("Cancelled", "Cancelled", (DeleteJob(),))
    assert told(see(held, child=make_child(held))) == ("Suspended", "Held", (PatchJob(spec={"suspend": True}),))


@pytest.mark.parametrize(
    ("meta", "status"),
    [
        ({"deletionTimestamp": at(-1), "finalizers": ["foregroundDeletion"]}, RUNS),
        ({"deletionTimestamp": at(-1), "finalizers": ["orphan"]}, RUNS),
        (GOING, {"phase": "Succeeded", "number": 7, "completionTime": at(-9)}),
    ],
    ids=["in the foreground", "leaving its Job behind", "over"],
)
def test_one_that_is_about_to_go_is_written_no_more(meta: dict[str, Any], status: dict[str, Any]) -> None:
    job = going(meta=meta, status=status, ttlSecondsAfterFinished=0)
    assert reconcile(see(job, child=make_child(job, status=COMPLETE))) == Outcome(status=job.status)


def test_an_array_makes_no_more_tasks_and_goes_on_telling_of_those_it_has() -> None:
    array = going(array={"indexes": "0-2", "parallelism": 2}, status={"phase": "Running", "number": 7})
    outcome = seen_with(array, make_task(array, 0, phase="Succeeded"))
    assert outcome.status.tasks is not None
    assert (outcome.status.tasks.succeeded, outcome.actions) == (1, ())
    cancelled = going(array={"indexes": "0-2"}, cancel=True, status={"phase": "Running", "number": 7})
    (change,) = seen_with(cancelled, make_task(cancelled, 0, phase="Running")).actions
    assert isinstance(change, ChangeTask)
