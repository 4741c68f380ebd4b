"""Jobs that Kueue lets go, and jobs that somebody else looks after."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.jobs.batch_job import wants_admission
from dovetail.jobs.obstacle import Obstacle
from dovetail_operator.job.actions import CreateJob, DeleteJob, JoinQueue
from dovetail_operator.lifecycle.reconcile import reconcile
from tests.operator_.builders import at, condition, make_child, make_job, make_pod, make_state, see

QUEUED = {"labels": {"kueue.x-k8s.io/queue-name": "team"}}
QUEUE = {"labels": {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "high", "own": "x"}}


def test_kueue_gets_a_suspended_job_with_its_labels() -> None:
    outcome = reconcile(see(make_job(meta=QUEUE)))
    (create,) = outcome.actions
    assert isinstance(create, CreateJob)
    assert create.manifest["spec"]["suspend"] is True
    labels = create.manifest["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "team"
    assert labels["kueue.x-k8s.io/priority-class"] == "high"
    assert "own" not in labels
    assert create.manifest["metadata"]["annotations"]["dovetail.dev/handed-to"] == "team"
    assert (outcome.status.phase, outcome.status.reason) == ("Queued", "ExternallyManaged")
    assert "queue team" in outcome.status.message


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_kueue_gets_all_that_is_said_to_it_and_nothing_else_of_the_job(kind: str) -> None:
    said = {f"kueue.x-k8s.io/{name}": name for name in ("podset-required-topology", "max-exec-time-seconds", "other")}
    others = {"own": "x", "kueue": "y", "example.org/kueue.x-k8s.io": "z", "dovetail.dev/handed-to": "forged"}
    (create,) = reconcile(see(make_job(meta={**QUEUED, kind: {**QUEUED.get(kind, {}), **said, **others}}))).actions
    assert isinstance(create, CreateJob)
    found = create.manifest["metadata"][kind]
    assert said.items() <= found.items()
    assert not {"own", "kueue", "example.org/kueue.x-k8s.io"} & found.keys()
    assert "forged" not in found.values()


def test_our_queue_stands_aside_and_never_lets_it_go() -> None:
    job = make_job(meta=QUEUED)
    child = make_child(job, queue="team", suspend=True)
    assert not wants_admission(job, child=child)
    outcome = reconcile(see(job, child=child))
    assert outcome.actions == ()
    assert outcome.status.reason == "ExternallyManaged"


def test_what_kueue_says_of_it_stands_in_its_message() -> None:
    job = make_job(meta=QUEUED)
    seen = see(job, child=make_child(job, queue="team", suspend=True))
    told = "insufficient unused quota for dovetail.dev/gpu-milli in flavor gpus, 1k more needed"
    outcome = reconcile(replace(seen, kueue=told))
    assert outcome.status.message == f"Waits until Kueue lets it go from the queue team: {told}"


def test_another_queue_wants_another_job() -> None:
    job = make_job(meta={"labels": {"kueue.x-k8s.io/queue-name": "other"}})
    outcome = reconcile(see(job, child=make_child(job, queue="team", suspend=True)))
    assert outcome.actions == (DeleteJob(),)
    assert outcome.status.message == "Its Job is recreated for Kueue's queue other"


def test_another_priority_class_of_kueue_wants_another_job() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "higher"}
    job = make_job(meta={"labels": labels})
    assert reconcile(see(job, child=make_child(job, queue="team", suspend=True))).actions == (DeleteJob(),)


def test_a_priority_class_alone_makes_nobody_kueues() -> None:
    job = make_job(meta={"labels": {"kueue.x-k8s.io/priority-class": "high"}})
    child = make_child(job, suspend=True)
    assert wants_admission(job, child=child)
    assert reconcile(see(job, child=child)).actions == ()


def test_what_has_to_wait_for_something_else_is_taken_out_of_kueues_queue() -> None:
    job = make_job(meta=QUEUED)
    obstacle = Obstacle(reason="BeginTime", message="Starts tomorrow")
    outcome = reconcile(see(job, child=make_child(job, queue="team", suspend=True), obstacle=obstacle))
    assert outcome.actions == (DeleteJob(),)
    assert (outcome.status.phase, outcome.status.message) == ("Queued", "Starts tomorrow")


def test_suspended_by_kueue_it_keeps_its_place_while_its_pods_end() -> None:
    job = make_job(meta=QUEUED)
    obstacle = Obstacle(reason="Evaluating", message="Waiting for the workers of the run before to end")
    outcome = reconcile(see(job, child=make_child(job, queue="team", suspend=True), obstacle=obstacle))
    assert (outcome.status.reason, outcome.actions) == ("ExternallyManaged", ())


def test_what_a_rule_failed_while_kueue_suspended_it_waits_in_its_queue_anew() -> None:
    job = make_job(meta=QUEUED, status={"phase": "Running", "startTime": at(-60)})
    ended = [condition("Suspended"), condition("FailureTarget", reason="PodFailurePolicy")]
    child = make_child(job, queue="team", suspend=True, status={"conditions": ended})
    status = reconcile(see(job, child=child)).status
    assert [(each.counted, each.reason) for each in status.attempts] == [(False, "Suspended")]


@pytest.mark.parametrize("meta", [QUEUED, {}], ids=["with its label", "without it by now"])
def test_held_after_it_has_run_it_is_suspended_and_out_of_kueues_queue(meta: dict[str, Any]) -> None:
    job = make_job(meta=meta, suspend=True, status={"phase": "Running", "startTime": at(-60)})
    outcome = reconcile(see(job, make_pod(started=-60), child=make_child(job, queue="team")))
    assert (outcome.status.phase, outcome.status.start_time) == ("Suspended", at(-60))
    assert outcome.actions == (DeleteJob(),)


def test_a_changed_template_counts_from_its_next_start_on() -> None:
    job = make_job(meta=QUEUED)
    child = make_child(job, queue="team", suspend=True)
    made_of = {**child.metadata.annotations, "dovetail.dev/template": "another"}
    old = msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, annotations=made_of))
    outcome = reconcile(see(job, child=old))
    assert outcome.actions == (DeleteJob(),)
    assert outcome.status.message == "Its template was changed: its Job is recreated"


def test_with_a_failed_dependency_it_is_cancelled_as_every_other() -> None:
    job = make_job(meta=QUEUED, onDependencyFailure="Cancel")
    obstacle = Obstacle(reason="DependencyFailed", message="pre failed")
    outcome = reconcile(see(job, child=make_child(job, queue="team", suspend=True), obstacle=obstacle))
    assert (outcome.status.phase, outcome.actions) == ("Cancelled", (DeleteJob(),))


def test_a_job_whose_time_is_used_up_does_not_wait_for_kueue() -> None:
    job = make_job(meta=QUEUED, maximumExecutionTimeSeconds=60, status={"earlierRunSeconds": 60})
    outcome = reconcile(see(job, child=make_child(job, queue="team", suspend=True)))
    assert (outcome.status.phase, outcome.actions) == ("TimedOut", (DeleteJob(),))


def test_one_that_runs_is_left_in_its_queue() -> None:
    job = make_job(meta={"labels": {"kueue.x-k8s.io/queue-name": "other"}})
    outcome = reconcile(see(job, make_pod(started=-5), child=make_child(job, queue="team")))
    assert outcome.actions == ()
    assert outcome.status.phase == "Running"


def test_without_the_label_it_comes_back_to_our_queue() -> None:
    job = make_job()
    outcome = reconcile(see(job, child=make_child(job, queue="team", suspend=True)))
    assert outcome.actions == (DeleteJob(),)
    assert outcome.status.message == "Its Job is recreated for Dovetail's own queue"


@pytest.mark.parametrize("suspend", [True, False])
def test_a_job_that_a_default_queue_has_taken_goes_there_itself(suspend: bool) -> None:
    """Kueue labels every new Job where the namespace has a queue named default, and may let it go at once."""
    job = make_job(status={"phase": "Starting", "reason": "Evaluating"})
    child = make_child(job, queue="default", taken=True, suspend=suspend)
    outcome = reconcile(see(job, make_pod(phase="Pending", node=""), child=child))
    assert outcome.actions == (JoinQueue(queue="default"), DeleteJob())
    assert outcome.status.message == "Kueue took its Job into the queue default"


def test_once_labelled_it_still_needs_a_job_without_our_plan() -> None:
    job = make_job(meta={"labels": {"kueue.x-k8s.io/queue-name": "default"}})
    outcome = reconcile(see(job, child=make_child(job, queue="default", taken=True, suspend=True)))
    assert outcome.actions == (DeleteJob(),)


def test_what_was_taken_and_runs_all_the_same_is_left_running() -> None:
    job = make_job()
    outcome = reconcile(see(job, make_pod(started=-5), child=make_child(job, queue="default", taken=True)))
    assert (outcome.status.phase, outcome.actions) == ("Running", ())


def test_a_cancelled_job_is_not_waited_for_in_kueues_queue() -> None:
    job = make_job(meta=QUEUED, cancel=True)
    outcome = reconcile(see(job, child=make_child(job, queue="team", suspend=True)))
    assert outcome.actions == (DeleteJob(),)
    assert outcome.status.phase == "Cancelled"


def test_suspended_by_kueue_it_waits_again_and_has_lost_no_retry() -> None:
    ran = {"phase": "Running", "attempt": 1, "startTime": at(-50)}
    job = make_job(meta=QUEUED, status=ran, backoffLimit=2)
    outcome = reconcile(see(job, child=make_child(job, queue="team", suspend=True)))
    assert (outcome.status.phase, outcome.status.reason) == ("Queued", "ExternallyManaged")
    assert (outcome.status.attempt, outcome.status.retries) == (1, 0)
    assert outcome.status.earlier_run_seconds == 50
    assert outcome.actions == ()


def test_let_go_by_kueue_it_runs_as_every_other() -> None:
    job = make_job(meta=QUEUED)
    assert reconcile(see(job, make_pod(started=-5), child=make_child(job))).status.phase == "Running"


def test_before_its_time_nothing_is_given_to_kueue() -> None:
    outcome = reconcile(see(make_job(meta=QUEUED), obstacle=Obstacle(reason="Dependency", message="Waits for y")))
    assert outcome.actions == ()
    assert outcome.status.reason == "Dependency"


def test_held_it_is_taken_out_of_kueues_queue() -> None:
    job = make_job(meta=QUEUED, suspend=True)
    outcome = reconcile(see(job, child=make_child(job, suspend=True)))
    assert [type(action) for action in outcome.actions] == [DeleteJob]
    assert outcome.status.phase == "Held"


def test_a_job_that_somebody_else_looks_after_is_left_alone() -> None:
    state = make_state(a=1)
    state.store.job_changed(make_job("theirs", managedBy="example.com/other"))
    state.store.job_changed(make_job("ours", managedBy="dovetail.dev/operator"))
    now = see(make_job()).now
    assert state.observe("team/theirs", now=now) is None
    assert state.observe("team/ours", now=now) is not None
    assert [job.metadata.name for job in state.unnumbered()] == ["ours"]
    assert not wants_admission(state.store.jobs["team/theirs"], child=None)
