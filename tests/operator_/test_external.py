"""Jobs that Kueue lets go, and jobs that somebody else looks after."""

from dovetail_operator.actions import CreateJob, DeleteJob
from dovetail_operator.observed import Obstacle, wants_admission
from dovetail_operator.reconcile import reconcile
from tests.operator_.builders import make_child, make_job, make_pod, make_state, see

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
    assert (outcome.status.phase, outcome.status.reason) == ("Queued", "ExternallyManaged")
    assert "queue team" in outcome.status.message


def test_our_queue_stands_aside_and_never_lets_it_go() -> None:
    job = make_job(meta=QUEUE)
    child = make_child(job, suspend=True)
    assert not wants_admission(job, child)
    outcome = reconcile(see(job, child=child))
    assert outcome.actions == ()
    assert outcome.status.reason == "ExternallyManaged"


def test_let_go_by_kueue_it_runs_as_every_other() -> None:
    job = make_job(meta=QUEUE)
    assert reconcile(see(job, make_pod(started=-5), child=make_child(job))).status.phase == "Running"


def test_before_its_time_nothing_is_given_to_kueue() -> None:
    outcome = reconcile(see(make_job(meta=QUEUE), obstacle=Obstacle(reason="Dependency", message="Waits for y")))
    assert outcome.actions == ()
    assert outcome.status.reason == "Dependency"


def test_held_it_is_taken_out_of_kueues_queue() -> None:
    job = make_job(meta=QUEUE, suspend=True)
    outcome = reconcile(see(job, child=make_child(job, suspend=True)))
    assert [type(action) for action in outcome.actions] == [DeleteJob]
    assert outcome.status.phase == "Held"


def test_a_job_that_somebody_else_looks_after_is_left_alone() -> None:
    state = make_state(a=1)
    state.put_job(make_job("theirs", managedBy="example.com/other"))
    state.put_job(make_job("ours", managedBy="dovetail.dev/operator"))
    now = see(make_job()).now
    assert state.observe("team/theirs", now=now) is None
    assert state.observe("team/ours", now=now) is not None
    assert [job.metadata.name for job in state.unnumbered()] == ["ours"]
    assert not wants_admission(state.jobs["team/theirs"], None)
