"""The scale of elastic jobs: who restarts with another number of workers, when, and who goes on."""

from dataclasses import replace
from typing import Any

import pytest

from dovetail.jobs.runs import wants_more
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.preemption.policy import Order
from dovetail.queue.verdicts import Admitted
from dovetail_operator.job.actions import PatchJob
from dovetail_operator.lifecycle.reconcile import Outcome, reconcile
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.queue.scale_ups import ScaleUps
from dovetail_operator.state.state import State
from tests.core.engine.builders import make_ask
from tests.operator_.builders import NOW, at, make_child, make_job, make_pod, make_state
from tests.operator_.queue.test_quotas import make_quota

OTHER = Candidate(key="uid-other", name="team/other", ask=make_ask("1"), nodes=("a",))
ABOUT_TO_RESTART = {
    "planned": "team/other",
    "moving": OTHER,
    "orders": Order(victim="uid-other", by=OTHER, grace_seconds=30.0),
}
SUSPEND = (PatchJob(spec={"suspend": True}),)


def scaled(to: int, *, requested: int = 2, child: dict[str, Any] | None = None, **spec: Any) -> State:
    """Eight GPUs on a node, and an elastic job that runs with two workers of a GPU each, and is scaled then."""
    state = make_state(a=8)
    elastic = {"workers": 2, "requested": requested, "earlierWorkerSeconds": 0}
    status = {"number": 1, "phase": "Running", "startTime": at(-600), "elastic": elastic}
    job = make_job("grows", gpu=1, workers=to, minWorkers=1, status=status, **spec)
    state.store.job_changed(job)
    state.decisions.set_number(job.metadata.uid, number=1)
    state.store.child_changed(make_child(job, completions=2, parallelism=2, **(child or {})))
    for worker in range(2):
        meta = {"labels": {"dovetail.dev/job": "grows"}, "uid": f"pod-{worker}"}
        pod = make_pod(worker, devices=1, node="a", started=-600, meta=meta)
        state.store.pod_event("ADDED", pod)
    return state


def another(state: State, *, gpus: int) -> None:
    """Another job that waits."""
    job = make_job("waits", gpu=gpus)
    state.store.job_changed(job)
    state.decisions.set_number(job.metadata.uid, number=2)


def look(state: State, **more: dict[str, Any]) -> list[str]:
    """One cycle, which has found `more` in addition; the jobs that it marks as changed by their scale."""
    changed: list[str] = []
    cycle = survey(state, now=NOW)
    for verdict in decide(state, cycle=cycle):
        state.decisions.set_verdict(verdict.key, verdict=verdict)
    for field, values in more.items():
        getattr(cycle, field).update(values)
    jobs = [job for job in state.store.jobs.values() if wants_more(job, child=state.store.child_of(job))]
    ScaleUps(state, changed=changed.append).update(cycle, wanted=jobs)
    return changed


def outcome(state: State) -> Outcome:
    seen = state.observe("team/grows", now=NOW)
    assert seen is not None
    return reconcile(seen)


def test_a_job_that_is_to_have_fewer_workers_restarts_at_once() -> None:
    found = outcome(scaled(1))
    assert (found.status.phase, found.actions) == ("Queued", SUSPEND)
    assert found.status.message == "Restarts with 1 workers at most: it runs with 2"


def test_a_job_that_is_to_have_more_workers_restarts_once_there_is_room_for_them() -> None:
    state = scaled(4)
    before = outcome(state)
    assert (before.status.phase, before.actions) == ("Running", ())
    assert before.status.message.startswith("Runs with 2 workers: it restarts with up to 4 when more fit")
    assert look(state) == ["team/grows"]
    found = outcome(state)
    assert found.actions == SUSPEND
    assert found.status.message == "Restarts with up to 4 workers: there is room for more than 2"
    assert look(state) == [], "it is marked once"


@pytest.mark.parametrize("why", ABOUT_TO_RESTART)
def test_a_job_that_is_about_to_restart_for_another_reason_goes_on(why: str) -> None:
    assert look(scaled(4), **{why: {"uid-grows": ABOUT_TO_RESTART[why]}}) == []
    assert look(scaled(4), **{why: {"uid-other": ABOUT_TO_RESTART[why]}}) == ["team/grows"]


@pytest.mark.parametrize(("gpus", "grows"), [("5", True), ("6", False)])
def test_what_is_held_at_the_destination_of_a_move_is_no_room_to_grow(gpus: str, grows: bool) -> None:
    there = replace(OTHER, ask=make_ask(gpus))
    assert look(scaled(4), moving={"uid-other": there}) == ["team/grows"] * grows


def test_a_job_that_was_to_grow_goes_on_once_another_one_waits_for_the_room() -> None:
    state = scaled(4)
    assert look(state) == ["team/grows"]
    another(state, gpus=7)
    assert look(state) == []
    assert (state.decisions.scale_ups, outcome(state).actions) == (frozenset(), ())


def test_one_job_grows_at_a_time() -> None:
    state = scaled(4)
    elastic = {"workers": 1, "requested": 1, "earlierWorkerSeconds": 0}
    status = {"number": 2, "phase": "Running", "startTime": at(-600), "elastic": elastic}
    other = make_job("other", gpu=1, workers=2, minWorkers=1, status=status)
    state.store.job_changed(other)
    state.decisions.set_number(other.metadata.uid, number=2)
    state.store.child_changed(make_child(other, uid="uid-of-other", completions=1, parallelism=1))
    meta = {"labels": {"dovetail.dev/job": "other"}, "uid": "pod-other", "name": "other-0"}
    state.store.pod_event("ADDED", make_pod(devices=3, node="a", started=-600, meta=meta, owner="uid-of-other"))
    assert len(look(state)) == 1
    assert len(state.decisions.scale_ups) == 1
    assert look(state) == [], "it is the same job"


def test_a_job_that_started_with_fewer_than_it_requested_goes_on() -> None:
    state = scaled(4, requested=4)
    assert (look(state), outcome(state).actions) == ([], ())


def test_a_run_keeps_what_was_requested_when_it_was_planned() -> None:
    elastic = outcome(scaled(4)).status.elastic
    assert elastic is not None
    assert (elastic.workers, elastic.requested) == (2, 2)


def test_without_room_for_one_more_worker_a_job_goes_on() -> None:
    state = scaled(4)
    job = make_job("large", gpu=6)
    state.store.job_changed(job)
    state.decisions.set_number(job.metadata.uid, number=2)
    assert (look(state), outcome(state).actions) == ([], ())
    assert isinstance(state.decisions.verdicts["uid-large"], Admitted)


@pytest.mark.parametrize(("size", "to"), [(1, 2), (1, 3), (1, 4), (1, 6), (2, 2), (2, 4), (2, 6)])
@pytest.mark.parametrize("others", range(7))
def test_a_job_grows_where_its_own_room_and_what_is_free_hold_another_group(others: int, to: int, size: int) -> None:
    groups = {"topology": {"subGroups": {"size": size, "required": "host"}}} if size > 1 else {}
    state = scaled(to, **groups)
    if others:
        job = make_job("others", gpu=others)
        state.store.job_changed(job)
        state.decisions.set_number(job.metadata.uid, number=2)
    grows = 2 + size <= min(to, 8 - others)
    assert look(state) == (["team/grows"] if grows else [])


def test_while_another_job_waits_for_capacity_a_job_goes_on() -> None:
    state = scaled(4)
    another(state, gpus=7)
    assert look(state) == []


def test_a_job_that_waits_for_what_the_cluster_does_not_have_keeps_no_one_from_growing() -> None:
    state = scaled(4)
    another(state, gpus=9)
    assert look(state) == ["team/grows"]


@pytest.mark.parametrize(("limit", "changed"), [(2, []), (3, ["team/grows"])])
def test_a_job_grows_within_its_quota_alone(limit: int, changed: list[str]) -> None:
    state = scaled(4)
    state.store.quotas.update(make_quota("team", namespaces=["team"], limit={"gpus": limit}))
    assert look(state) == changed


def test_a_gang_of_subgroups_grows_by_a_subgroup() -> None:
    quota = make_quota("team", namespaces=["team"], limit={"gpus": 3})
    state = scaled(4, topology={"subGroups": {"size": 2, "required": "rack"}})
    state.store.quotas.update(quota)
    assert look(state) == []


def test_the_reserve_of_a_quota_is_kept_and_its_report_too() -> None:
    state = scaled(4)
    reserve = {"gpus": 6, "leaveWithinSeconds": 0}
    state.store.quotas.update(make_quota("chat", namespaces=["chat"], guaranteed={"gpus": 6}, reserve=reserve))
    assert look(state) == []
    ready = state.store.quotas.reserves["chat"]
    assert (ready.gpus, ready.ready) == (6, 6)


def test_the_status_of_an_elastic_job_has_the_selector_of_its_pods() -> None:
    assert outcome(scaled(2)).status.selector == "dovetail.dev/job=grows"
    state = make_state(a=1)
    state.store.job_changed(make_job("grows", gpu=1))
    assert outcome(state).status.selector == ""
