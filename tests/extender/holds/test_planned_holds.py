"""Holds of planned workers: which events of jobs and pods start and end them. No process, no HTTP."""

from typing import Any

import pytest

from dovetail import names
from dovetail.api.devices import AllocatedDevice
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.refusals import Refusal
from dovetail_extender.holds.planned_workers import ELSEWHERE, OVERTAKEN
from tests.extender.builders import make_pod
from tests.extender.desk import Desk
from tests.extender.holds.test_planned_workers import make_job, make_worker

FIRST, SECOND = "job-train/0", "job-train/1"


def planned(**plan: Any) -> Desk:
    """Two nodes of 8 GPUs, and a plan that sends two workers of 4 GPUs to node a."""
    desk = Desk(a=8, b=8)
    desk.put_job(make_job(("a", 2), **plan))
    return desk


def forged(how: str, worker: int = 1) -> dict[str, Any]:
    """A pod whose annotation names the plan, but which is not a worker of it."""
    match how:
        case "no owner":
            pod = make_worker(worker)
            del pod["metadata"]["ownerReferences"]
        case "the owner is another Job":
            pod = make_worker(worker, owner="else")
        case "the label names another job":
            pod = make_worker(worker)
            pod["metadata"]["labels"] = {names.LABEL_JOB: "else"}
        case "another namespace":
            pod = make_worker(worker)
            pod["metadata"]["namespace"] = "else"
        case "an earlier plan":
            pod = make_worker(worker, generation=0)
        case "a worker that the plan does not have":
            pod = make_worker(2)
    return pod


FORGERIES = [
    "no owner",
    "the owner is another Job",
    "the label names another job",
    "another namespace",
    "an earlier plan",
    "a worker that the plan does not have",
]


@pytest.mark.parametrize("how", FORGERIES)
def test_a_bound_pod_that_is_not_of_the_plan_ends_no_hold(how: str) -> None:
    desk = planned()
    pod = desk.put(forged(how), node="b")
    assert desk.held(FIRST, SECOND) == ["a", "a"]
    desk.put(forged(how), node="b", phase="Failed")
    desk.delete(pod)
    assert desk.held(FIRST, SECOND) == ["a", "a"]


@pytest.mark.parametrize("how", FORGERIES)
def test_a_pod_that_is_not_of_the_plan_and_is_seen_before_it_keeps_no_hold_from_the_worker(how: str) -> None:
    desk = Desk(a=8, b=8)
    desk.put(forged(how), node="b")
    desk.put_job(make_job(("a", 2)))
    assert desk.held(FIRST, SECOND) == ["a", "a"]


@pytest.mark.parametrize(
    ("phases", "held"),
    [
        pytest.param(["Pending unbound"], "a", id="it is not bound yet"),
        pytest.param(["Pending"], "", id="it is bound"),
        pytest.param(["Running"], "", id="it runs"),
        pytest.param(["Running", "Succeeded"], "", id="it has done its work"),
        pytest.param(["Running", "Failed"], "a", id="it has failed and another will come"),
        pytest.param(["Running", "gone"], "a", id="it was deleted and another will come"),
        pytest.param(["Running", "Failed", "gone"], "a", id="it has failed and was deleted"),
        pytest.param(["Running", "Succeeded", "gone"], "", id="it has done its work and was deleted"),
        pytest.param(["Pending unbound", "gone"], "a", id="it was deleted before it was bound"),
        pytest.param(["Running", "Running"], "", id="its status changes while it runs"),
    ],
)
def test_a_workers_room_is_held_unless_it_is_bound_or_has_done_its_work(phases: list[str], held: str) -> None:
    desk = planned()
    for phase in phases:
        if phase == "gone":
            desk.delete(desk.pods["uid-train-1"])
        else:
            name, _, unbound = phase.partition(" ")
            desk.put(make_worker(1), node="" if unbound else "a", phase=name)
    assert desk.held(FIRST, SECOND) == ["a", held]
    assert desk.plans.holding == 1 + bool(held)


def test_a_worker_that_is_bound_before_the_plan_is_seen_needs_no_hold() -> None:
    desk = Desk(a=8, b=8)
    desk.put(make_worker(1), node="a")
    desk.put_job(make_job(("a", 2)))
    assert desk.held(FIRST, SECOND) == ["a", ""]


def test_a_worker_of_the_plan_before_does_not_count_for_the_next_plan() -> None:
    desk = planned()
    desk.put(make_worker(1), node="a")
    desk.put_job(make_job(("b", 2), generation=2))
    assert desk.held(FIRST, SECOND) == ["b", "b"]


def test_one_jobs_workers_do_not_count_for_another_job() -> None:
    desk = planned()
    desk.put_job(make_job(("b", 2), name="other"))
    desk.put(make_worker(0), node="a")
    assert desk.held(FIRST, SECOND, "job-other/0", "job-other/1") == ["", "a", "b", "b"]
    desk.delete_job(make_job(("b", 2), name="other"))
    assert desk.held(SECOND, "job-other/0", "job-other/1") == ["a", "", ""]


def test_a_job_without_a_plan_holds_nothing() -> None:
    desk = Desk(a=8)
    desk.put_job(make_job(generation=0))
    assert desk.plans.holding == 0
    assert desk.filter(make_worker(0)) == ["a"], "it is judged as any other pod"


def test_a_status_that_leaves_the_plan_as_it_is_holds_nothing_a_second_time() -> None:
    desk = planned()
    assert isinstance(desk.bind(make_worker(0), "a"), Claim)
    desk.put_job(make_job(("a", 2), phase="Running"))
    assert desk.held(FIRST, SECOND, "uid-train-0") == ["", "a", "a"]


def test_a_replaced_worker_of_the_same_plan_is_held_on_its_new_node_and_the_others_stay_bound() -> None:
    desk = planned()
    desk.put(make_worker(0), node="a")
    desk.put_job(make_job(("a", 1), ("b", 1)))
    assert desk.held(FIRST, SECOND) == ["", "b"]
    assert desk.filter(make_worker(1)) == ["b"], "its pod names the plan of all workers"


@pytest.mark.parametrize(
    ("generation", "stands", "why"),
    [
        pytest.param(1, True, OVERTAKEN, id="of the plan before"),
        pytest.param(2, False, OVERTAKEN, id="of a plan that was taken back"),
        pytest.param(2, True, ELSEWHERE, id="of the plan that stands"),
    ],
)
def test_a_worker_is_refused_on_another_node(generation: int, stands: bool, why: str) -> None:
    desk = Desk(a=8, b=8)
    desk.put_job(make_job(*[("a", 2)] * stands, generation=2))
    worker = make_worker(0, generation=generation)
    assert desk.why(worker, "b") == why
    found = desk.bind(worker, "b")
    assert isinstance(found, Refusal)
    assert (found.message, found.kind) == (why, "Held")


def test_a_worker_of_a_plan_that_is_not_seen_yet_is_judged_as_any_other_pod() -> None:
    desk = planned()
    assert desk.filter(make_worker(0, generation=2)) == ["b"]


def test_the_last_worker_of_a_plan_has_its_place_and_the_one_after_has_none() -> None:
    desk = planned()
    assert desk.filter(make_worker(1)) == ["a"]
    assert desk.why(make_worker(2), "a") == OVERTAKEN


def test_a_worker_gets_the_devices_that_were_held_for_it() -> None:
    desk = planned()
    held = desk.devices(SECOND)
    assert isinstance(desk.bind(make_worker(1), "a"), Claim)
    assert desk.devices("uid-train-1") == held
    assert desk.held(FIRST, SECOND) == ["a", ""]


def test_while_a_workers_bind_is_under_way_its_room_is_not_held_a_second_time() -> None:
    desk = planned(gpu="2")
    desk.bind(make_worker(1, gpu="2"), "a")
    desk.plans.review()
    desk.put(make_pod("another"), node="a")
    assert desk.held(FIRST, SECOND) == ["a", ""]
    desk.ledger.release("uid-train-1")
    desk.plans.review()
    assert desk.held(FIRST, SECOND) == ["a", "a"], "the bind came to nothing"


def test_a_change_on_one_node_does_not_hold_what_a_bind_takes_on_another() -> None:
    desk = planned()
    desk.bind(make_worker(1), "a")
    desk.ledger.release("uid-train-1")
    desk.put(make_pod("another"), node="b")
    assert desk.held(SECOND) == [""]
    desk.put(make_pod("one-more", limits={"cpu": "1"}), node="a")
    assert desk.held(SECOND) == ["a"]


def test_what_is_not_to_be_had_yet_is_held_when_the_room_is_there() -> None:
    desk = Desk(a=8)
    before = make_pod("before", "8", milli=8000)
    desk.bind(before, "a")
    desk.put_job(make_job(("a", 2)))
    assert desk.held(FIRST, SECOND) == ["", ""]
    assert "Need 4 GPUs, only 0 available" in desk.why(make_worker(0), "a")
    desk.ledger.release("uid-before")
    desk.plans.review()
    assert desk.held(FIRST, SECOND) == ["a", "a"]


def test_a_worker_that_asks_before_the_review_gets_the_room_that_is_there_by_now() -> None:
    desk = Desk(a=8)
    desk.bind(make_pod("before", "8", milli=8000), "a")
    desk.put_job(make_job(("a", 2)))
    desk.ledger.release("uid-before")
    assert desk.filter(make_worker(0)) == ["a"]
    assert desk.held(FIRST, SECOND) == ["a", ""]


@pytest.mark.parametrize(("gpu", "node"), [("4", "a"), ("5", "")])
def test_a_plan_may_count_on_the_devices_of_pods_that_are_leaving(gpu: str, node: str) -> None:
    """Whether or not that suffices, the leaving pods keep what they have until they are gone."""
    desk = Desk(a=8)
    desk.bind(make_pod("stays", "4", milli=4000), "a")
    for name in ("one", "two"):
        desk.bind(make_pod(name, "2", milli=2000), "a")
        claim = desk.ledger.claim(f"uid-{name}")
        desk.put(make_pod(name, "2", milli=2000), node="a", deletionTimestamp="2026-01-01T00:00:00Z")
        assert claim is not None
        desk.ledger.commit(claim)
    desk.put_job(make_job(("a", 1), gpu=gpu))
    assert desk.held(FIRST) == [node]
    assert [len(desk.devices(f"uid-{name}")) for name in ("stays", "one", "two")] == [4, 2, 2]


def test_a_plan_takes_free_devices_before_those_of_pods_that_are_leaving() -> None:
    desk = Desk(a=8)
    desk.bind(make_pod("leaves", "4", milli=4000), "a")
    claim = desk.ledger.claim("uid-leaves")
    desk.put(make_pod("leaves", "4", milli=4000), node="a", deletionTimestamp="2026-01-01T00:00:00Z")
    assert claim is not None
    desk.ledger.commit(claim)
    desk.put_job(make_job(("a", 1)))
    assert set(desk.devices(FIRST)).isdisjoint(desk.devices("uid-leaves"))


def test_a_deleted_jobs_pods_are_judged_as_any_other_and_its_room_is_not_held_again() -> None:
    desk = Desk(a=8, b=8)
    desk.bind(make_pod("before", "8", milli=8000), "a")
    job = make_job(("a", 2))
    desk.put_job(job)
    desk.delete_job(job)
    desk.ledger.release("uid-before")
    desk.plans.review()
    desk.put(make_worker(0), node="a", phase="Failed")
    assert desk.held(FIRST, SECOND) == ["", ""]
    assert desk.filter(make_worker(1)) == ["a", "b"]


def test_a_plan_that_cannot_be_read_holds_nothing_and_its_workers_wait() -> None:
    desk = Desk(a=8)
    desk.put_job(make_job(("a", 2), gpu="1X"))
    assert desk.plans.holding == 0
    assert desk.why(make_worker(0), "a") == OVERTAKEN


def test_a_worker_whose_room_is_taken_is_refused_with_the_numbers_and_gets_it_later() -> None:
    desk = Desk(a=8)
    desk.bind(make_pod("before", "8", milli=8000), "a")
    desk.put_job(make_job(("a", 2)))
    found = desk.bind(make_worker(0), "a")
    assert isinstance(found, Refusal)
    assert "Need 4 GPUs, only 0 available" in found.message
    desk.ledger.release("uid-before")
    desk.plans.review()
    assert desk.held(FIRST, SECOND) == ["a", "a"]


def test_a_place_of_the_plan_before_is_held_no_more_when_its_node_has_room() -> None:
    desk = Desk(a=8, b=8)
    for node in ("a", "b"):
        desk.bind(make_pod(f"on-{node}", "8", milli=8000), node)
    desk.put_job(make_job(("a", 2)))
    desk.put_job(make_job(("b", 2), generation=2))
    desk.ledger.release("uid-on-a")
    desk.plans.review()
    assert desk.held(FIRST, SECOND) == ["", ""]
    desk.ledger.release("uid-on-b")
    desk.plans.review()
    assert desk.held(FIRST, SECOND) == ["b", "b"]


def test_a_hold_that_is_older_than_what_is_known_of_its_device_lets_no_other_worker_in_turns_onto_it() -> None:
    """An extender that has just started may read a plan before the pods that are on the node already."""
    desk, turns = Desk(a=1), {"request": "0.5", "mode": "TimeShared"}
    early, late = (make_job(("a", 1), name=name) for name in ("early", "late"))
    for job in (early, late):
        job["status"]["placement"]["worker"] = turns
    desk.put_job(early)
    assert desk.held("job-early/0") == ["a"]
    (device,) = desk.ledger.devices("a")
    for key in ("pod-1", "pod-2", "pod-3"):
        part = AllocatedDevice(index=device.index, uuid=device.uuid, share_milli=250, memory_mib=100)
        desk.ledger.commit(Claim(key=key, node="a", mode="Fractional", devices=(part,)))
    desk.put_job(late)
    assert desk.held("job-late/0") == [""]
    for key in ("pod-1", "pod-2", "pod-3"):
        desk.ledger.release(key)
    desk.plans.review()
    assert desk.held("job-early/0", "job-late/0") == ["a", "a"]
