from typing import Any

import pytest

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.ranking import Ranking, Rankings
from dovetail.engine.model.settings import Limits, Weights
from dovetail.engine.model.topology import Level
from dovetail.jobs.moves import MoveRules
from dovetail.jobs.obstacle import Obstacle
from dovetail.pods.allocation import Allocation, annotations_of
from dovetail.queue.growing.pools import GrowingRules
from dovetail.queue.inputs.run_ends import RunTimes
from dovetail.queue.preemption.policy import Rules
from dovetail.queue.reshaping.decision import ReshapeRules
from dovetail_operator.job.drain import DrainRules
from dovetail_operator.state.state import State
from tests.operator_.builders import LET_GO, NOW, make_child, make_job, make_pod, make_state


def version(number: int, **meta: str) -> dict[str, str]:
    return {"resourceVersion": str(number), **meta}


def test_an_older_version_of_a_job_is_not_taken_over() -> None:
    state = make_state()
    assert state.store.job_changed(make_job(meta=version(9), priority=1))
    assert state.store.job_changed(make_job(meta=version(10), priority=2))
    assert not state.store.job_changed(make_job(meta=version(10), priority=3))
    assert not state.store.job_changed(make_job(meta=version(9), priority=4))
    assert state.store.jobs["team/x"].spec.priority == 2


def test_a_job_that_came_anew_under_its_name_starts_afresh() -> None:
    state = make_state()
    state.store.job_changed(make_job(meta=version(5)))
    state.decisions.set_number("uid-x", number=3)
    state.decisions.set_verdict("uid-x", verdict=LET_GO)
    state.store.job_changed(make_job(meta=version(6, uid="uid-new")))
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert (seen.number, seen.verdict) == (None, None)
    state.store.job_deleted("team/x", uid="uid-x")
    assert "team/x" in state.store.jobs


def test_a_job_sees_its_own_child_and_that_ones_pods() -> None:
    state = make_state()
    job = make_job()
    state.store.job_changed(job)
    state.store.child_event("ADDED", make_child(job))
    state.store.pod_event("ADDED", make_pod(0))
    state.store.pod_event("ADDED", make_pod(1, owner="uid-an-earlier-child"))
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert seen.child == make_child(job)
    assert [pod.metadata.name for pod in seen.pods] == ["x-0-running"]


def test_another_ones_child_is_not_seen() -> None:
    state = make_state()
    state.store.job_changed(make_job())
    state.store.child_event("ADDED", make_child(make_job(meta={"uid": "uid-earlier"})))
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert seen.child is None


def test_a_child_that_is_gone_is_forgotten_but_not_its_successor() -> None:
    state = make_state()
    job = make_job()
    state.store.job_changed(job)
    state.store.child_event("ADDED", make_child(job, uid="uid-second"))
    state.store.child_event("DELETED", make_child(job, uid="uid-first"))
    assert state.store.child_of(job) is not None
    state.store.child_event("DELETED", make_child(job, uid="uid-second"))
    assert state.store.child_of(job) is None


def test_a_pod_names_the_job_that_it_belongs_to() -> None:
    state = make_state()
    assert state.store.pod_event("ADDED", make_pod()) == "team/x"
    assert state.store.pod_event("DELETED", make_pod()) == "team/x"
    assert state.store.pod_event("ADDED", Pod()) is None


def test_a_refusal_holds_for_the_generation_that_was_refused() -> None:
    state = make_state()
    job = make_job()
    state.store.job_changed(job)
    state.decisions.refuse(job, obstacle=Obstacle(message="no"))
    assert state.obstacle_of(job, now=NOW) == Obstacle(message="no")
    assert state.obstacle_of(make_job(meta={"generation": 2}), now=NOW) is None
    state.decisions.retry(job)
    assert state.obstacle_of(job, now=NOW) is None


def test_a_request_that_cannot_be_read_is_an_obstacle_with_a_sentence() -> None:
    state = make_state()
    obstacle = state.obstacle_of(make_job(gpu="8X,0.5"), now=NOW)
    assert obstacle is not None
    assert obstacle.reason == "Invalid"
    assert '"8X,0.5"' in obstacle.message
    assert 'unknown memory unit "X"' in obstacle.message


def test_a_job_keeps_the_number_that_it_shows() -> None:
    state = make_state()
    shown, given, new = make_job("a", status={"number": 4}), make_job("b"), make_job("c")
    for job in (shown, given, new):
        state.store.job_changed(job)
    state.decisions.set_number("uid-b", number=5)
    assert [state.number_of(job) for job in (shown, given, new)] == [4, 5, None]
    assert state.unnumbered() == [new]


NUMBERED = {"labels": {"dovetail.dev/job": "x", "dovetail.dev/job-number": "1"}}


def test_a_job_whose_batch_job_was_deleted_waits_for_the_pods_of_that_run() -> None:
    state = make_state()
    job = make_job(status={"number": 1, "phase": "Running"})
    child, pod = make_child(job), make_pod(meta=NUMBERED)
    state.store.job_changed(job)
    state.store.child_event("ADDED", child)
    state.store.pod_event("ADDED", pod)
    assert state.obstacle_of(job, now=NOW) is None
    state.store.child_event("DELETED", child)
    assert told(state, job) == "Waiting for the workers of the run before to end"
    state.store.pod_event("DELETED", pod)
    assert state.obstacle_of(job, now=NOW) is None


def test_a_job_whose_batch_job_was_deleted_and_its_pods_left_behind_says_which() -> None:
    state = make_state()
    job = make_job(status={"number": 1, "phase": "Running"})
    state.store.job_changed(job)
    state.store.pod_event("ADDED", make_pod(meta=NUMBERED))
    state.store.pod_event("MODIFIED", make_pod(meta={**NUMBERED, "ownerReferences": []}))
    expected = "Pod x-0-running of the run before goes on without its Job: waiting for it to end or to be deleted"
    assert told(state, job) == expected
    assert state.store.pods.leaving(running=()) == []
    state.store.pod_event("MODIFIED", make_pod(phase="Succeeded", meta={**NUMBERED, "ownerReferences": []}))
    assert state.obstacle_of(job, now=NOW) is None


def test_the_pods_of_a_job_that_is_not_its_own_any_more_are_not_what_it_waits_for() -> None:
    state = make_state()
    job = make_job(status={"number": 1, "phase": "Running"})
    state.store.job_changed(job)
    state.store.pod_event("ADDED", make_pod(meta=NUMBERED))
    state.store.child_event("ADDED", make_child(make_job(meta={"uid": "another"})))
    assert state.obstacle_of(job, now=NOW) is None


def test_pods_of_an_earlier_job_of_the_name_or_that_have_ended_are_not_waited_for() -> None:
    state = make_state()
    job = make_job(status={"number": 2})
    state.store.job_changed(job)
    state.store.pod_event("ADDED", make_pod(meta=NUMBERED))
    state.store.pod_event("ADDED", make_pod(1, phase="Failed", meta={"labels": {**NUMBERED["labels"]}}))
    assert state.obstacle_of(job, now=NOW) is None


def test_a_pod_whose_label_was_taken_off_stays_its_jobs() -> None:
    state = make_state()
    job = make_job(status={"number": 1})
    child = make_child(job)
    state.store.job_changed(job)
    state.store.child_event("ADDED", child)
    state.store.pod_event("ADDED", make_pod())
    assert state.store.pod_event("MODIFIED", make_pod(phase="Failed", meta={"labels": {}})) == "team/x"
    assert [pod.status.phase for pod in state.store.pods.pods_of(child)] == ["Failed"]
    assert state.store.pod_event("DELETED", make_pod(meta={"labels": {}})) == "team/x"
    assert state.store.pods.pods_of(child) == ()
    assert not state.store.pods.are_there("team/x")


def told(state: State, job: GPUJob) -> str:
    found = state.obstacle_of(job, now=NOW)
    assert found is not None
    assert found.reason == "Evaluating"
    return found.message


@pytest.mark.parametrize(
    "meta", [{"ownerReferences": []}, {"labels": {}}, {"namespace": "elsewhere"}, {"labels": {"dovetail.dev/job": "y"}}]
)
def test_a_pod_that_only_says_so_is_no_job_s(meta: dict[str, Any]) -> None:
    state = make_state()
    state.store.job_changed(job := make_job(status={"number": 1}))
    state.store.child_changed(make_child(job, uid="uid-child"))
    state.store.pod_event("ADDED", make_pod(meta=NUMBERED, owner="uid-child"))
    assert state.store.is_of_a_job("uid-pod-0--50")
    forged = make_pod(meta={**NUMBERED, "uid": "uid-forged", **meta}, owner="uid-child")
    state.store.pod_event("ADDED", forged)
    assert not state.store.is_of_a_job("uid-forged")


def test_a_pod_that_only_has_its_label_keeps_no_job_waiting() -> None:
    state = make_state()
    state.store.job_changed(job := make_job(status={"number": 1}))
    state.store.pod_event("ADDED", make_pod(meta={**NUMBERED, "ownerReferences": []}))
    assert state.obstacle_of(job, now=NOW) is None


def test_a_pod_whose_batch_job_is_no_gpujob_s_is_not_ended_with_one() -> None:
    state = make_state()
    state.store.job_changed(make_job(status={"number": 1}))
    state.store.pod_event("ADDED", make_pod(meta=NUMBERED, owner="uid-of-a-job-of-somebody-s-own"))
    assert not state.store.is_of_a_job("uid-pod-0--50")


def test_a_pod_that_its_batch_job_left_behind_is_known_by_its_allocation_after_a_restart() -> None:
    state = make_state(a=1)
    state.store.job_changed(job := make_job(status={"number": 1, "phase": "Running"}))
    held = Allocation(node="a", mode="Exclusive", containers=[], priority=10, job="x")
    left = {**NUMBERED, "ownerReferences": [], "annotations": annotations_of(held)}
    state.store.pod_event("ADDED", make_pod(meta=left))
    assert "goes on without its Job" in told(state, job)


def test_a_new_configuration_counts_for_jobs_that_were_read_before() -> None:
    state = make_state(a=1)
    job = make_job(workers=2, topology={"required": "row"})
    state.store.job_changed(job)
    before = state.requests.read(job).obstacle
    state.configure(
        rankings=Rankings(by_namespace={"team": Ranking(policy="Pack", weights=Weights(cpu=9))}),
        limits=Limits(training_per_device=3, inference_per_device=5),
        run_times=RunTimes(default_seconds=60),
        preemption=Rules(gap=7),
        cpu_fallback={"team": 30},
        growing=GrowingRules(after_seconds=5),
        drain=DrainRules(restarts=True),
        moves=MoveRules(mode="Plan"),
        reshape=ReshapeRules(enabled=True),
        levels=(Level(name="row", label="example.com/row"),),
    )
    assert (state.growing.rules.after_seconds, state.drain.restarts, state.moves.mode, state.reshape.enabled) == (
        5,
        True,
        "Plan",
        True,
    )
    ask, ledger = state.requests.ask_of(job), state.store.view.ledger
    assert before is not None
    assert "no such level is configured" in before.message
    assert ask is not None
    assert ask.topology is not None
    assert (ask.policy, ask.topology.required) == ("Pack", "row")
    assert (ledger.limits.training_per_device, ledger.limits.inference_per_device) == (3, 5)
    assert (ask.weights.cpu, state.run_times.default_seconds, state.preemption.gap) == (9, 60, 7)
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert seen.cpu_after_seconds == 30
