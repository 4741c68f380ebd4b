from collections.abc import Container
from datetime import timedelta
from typing import Any

import msgspec

from dovetail.api.builtin import Node, Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import QueuePlace, Reason, spec_of
from dovetail.jobs.obstacle import Obstacle
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.queue.start_estimates import estimates
from dovetail_operator.queue.verdict_updates import RENEWAL_SECONDS, RENEWED_JOBS, VerdictPacing
from dovetail_operator.state.state import State
from tests.operator_.builders import NO_ROOM, NOW, at, condition, make_child, make_job, make_pod, make_state


def submit(state: State, name: str, *, child: bool = False, **spec: Any) -> None:
    job = make_job(name, status={"number": 1}, **spec)
    state.store.job_changed(job)
    if child:
        state.store.child_changed(make_child(job, uid=f"uid-child-{name}"))


def verdicts(state: State) -> dict[str, Verdict]:
    return {verdict.key.removeprefix("uid-"): verdict for verdict in decide(state, cycle=survey(state, now=NOW))}


def names(candidates: list[Any]) -> list[str]:
    return [candidate.name.removeprefix("team/") for candidate in candidates]


def test_the_queue_looks_at_those_that_want_to_start() -> None:
    state = make_state(a=8)
    submit(state, "new")
    submit(state, "held", suspend=True)
    submit(state, "invalid", gpu="8X,0.5")
    submit(state, "at-work", child=True)
    state.store.job_changed(make_job("unnumbered"))
    cycle = survey(state, now=NOW)
    assert names(cycle.waiting) == ["new"]
    assert names(cycle.on_the_way) == ["at-work"]
    assert cycle.keys == {"uid-new": "team/new"}


def test_a_template_that_is_no_pods_holds_up_nobody_else() -> None:
    state = make_state(a=1)
    (main,) = spec_of(make_job("x").spec.template)["containers"]
    for name, said in (("list", [1]), ("text", {"nodeAffinity": "x"})):
        submit(state, name, template={"spec": {"containers": [main], "affinity": said}}, priority=99)
    submit(state, "next")
    assert set(verdicts(state)) == {"next"}
    obstacle = state.obstacle_of(state.store.jobs["team/list"], now=NOW)
    assert obstacle is not None
    assert obstacle.reason == "Invalid"
    assert "spec.template.spec.affinity" in obstacle.message


def test_a_job_that_only_keeps_its_workers_apart_chooses_among_no_nodes() -> None:
    state = make_state(a=2)
    (main,) = spec_of(make_job("x").spec.template)["containers"]
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    submit(state, "pair", workers=2, template={"spec": {"containers": [main], "affinity": apart}})
    told = verdicts(state)["pair"]
    assert isinstance(told, Waits)
    assert told.reason == "ExceedsCapacity"
    assert told.message.endswith("with 1 GPU each could ever run together, each on a node of its own")


def test_of_jobs_of_one_second_the_first_that_was_numbered_goes_first() -> None:
    state = make_state(a=1)
    for number, name in enumerate(("train-2", "train-10", "another"), start=1):
        state.store.job_changed(make_job(name, status={"number": number}))
    assert list(verdicts(state)) == ["train-2", "train-10", "another"]


def test_a_job_that_was_refused_by_the_api_server_takes_no_room() -> None:
    state = make_state(a=1)
    submit(state, "refused", priority=20)
    submit(state, "next")
    state.decisions.refuse(state.store.jobs["team/refused"], obstacle=Obstacle(message="no"))
    assert isinstance(verdicts(state)["next"], Admitted)


def test_room_of_a_job_that_was_let_go_is_kept_until_its_pods_are_bound() -> None:
    state = make_state(a=1)
    submit(state, "first", child=True)
    submit(state, "next")
    assert isinstance(verdicts(state)["next"], Waits)


def test_room_is_kept_also_before_the_batch_job_is_there() -> None:
    state = make_state(a=1)
    submit(state, "first")
    state.decisions.set_verdict("uid-first", verdict=Admitted(key="uid-first"))
    submit(state, "next", priority=99)
    found = verdicts(state)
    assert set(found) == {"next"}
    assert isinstance(found["next"], Waits)
    assert (found["next"].reason, found["next"].message) == ("Resources", "Need 1 GPU, only 0 available")


def test_a_bound_pod_counts_once() -> None:
    state = make_state(a=2)
    submit(state, "first", child=True)
    state.store.pod_event("ADDED", make_pod(node="a", devices=1, owner="uid-child-first"))
    submit(state, "next")
    assert isinstance(verdicts(state)["next"], Admitted)


def test_room_of_a_pod_that_has_ended_is_free_before_its_batch_job_knows() -> None:
    state = make_state(a=1)
    submit(state, "first", child=True)
    state.store.pod_event("ADDED", make_pod(phase="Succeeded", node="a", devices=1, owner="uid-child-first"))
    submit(state, "next")
    assert isinstance(verdicts(state)["next"], Admitted)


def test_a_job_is_placed_where_its_pods_may_go() -> None:
    state = make_state(a=1, b=1)
    pool_b = {"metadata": {"name": "b", "labels": {"dovetail.dev/managed": "true", "pool": "b"}}}
    status = {"allocatable": {"cpu": "64", "memory": "256Gi"}, "conditions": [condition("Ready")]}
    state.store.view.node_changed(msgspec.convert({**pool_b, "status": status}, Node))
    spec = {"containers": [{"name": "main"}], "nodeSelector": {"pool": "b"}}
    for name in ("x", "y"):
        submit(state, name, template={"spec": spec})
    found = verdicts(state)
    assert isinstance(found["x"], Admitted)
    assert [claim.node for claim in found["x"].claims] == ["b"]
    assert isinstance(found["y"], Waits)


def renewed(message: str, *, reason: str = "Resources") -> Waits:
    return Waits(key="uid-x", reason=reason, message=message)  # type: ignore[arg-type]


def test_another_reason_is_told_at_once() -> None:
    teller = VerdictPacing()
    assert not teller.hold_back(NO_ROOM, before=None, rank=5000, now=0)
    assert not teller.hold_back(renewed("apart", reason="Fragmentation"), before=NO_ROOM, rank=5000, now=0.1)


def test_other_numbers_are_told_to_the_first_jobs_now_and_then() -> None:
    teller = VerdictPacing()
    teller.hold_back(NO_ROOM, before=None, rank=0, now=0)
    news = renewed("Need 4 GPUs, only 2 available")
    assert teller.hold_back(news, before=NO_ROOM, rank=0, now=RENEWAL_SECONDS - 1)
    assert not teller.hold_back(news, before=NO_ROOM, rank=0, now=RENEWAL_SECONDS)
    assert teller.hold_back(renewed("Need 4 GPUs, only 3 available"), before=news, rank=0, now=RENEWAL_SECONDS + 1)


def test_what_is_held_back_is_told_as_soon_as_it_is_due_and_not_a_whole_renewal_later() -> None:
    teller = VerdictPacing()
    teller.hold_back(NO_ROOM, before=None, rank=0, now=100)
    assert teller.renewed_in(NO_ROOM.key, now=110) == RENEWAL_SECONDS - 10
    # Together with others that are due soon.
    assert 0 < teller.renewed_in(NO_ROOM.key, now=100 + RENEWAL_SECONDS - 0.1) < 10


def test_other_numbers_are_not_told_far_back_in_the_queue() -> None:
    teller = VerdictPacing()
    teller.hold_back(NO_ROOM, before=None, rank=RENEWED_JOBS, now=0)
    assert teller.hold_back(renewed("Need 4 GPUs, only 2 available"), before=NO_ROOM, rank=RENEWED_JOBS, now=1e6)


def test_what_was_noted_of_a_job_goes_with_it() -> None:
    teller = VerdictPacing()
    teller.hold_back(NO_ROOM, before=None, rank=0, now=100)
    teller.forget_all_but(set())
    assert not teller.hold_back(renewed("Need 4 GPUs, only 2 available"), before=NO_ROOM, rank=0, now=101)


def occupy(state: State, *, gpus: int, seconds: int | None = None, name: str = "runs") -> None:
    """A job that runs on that many devices of node `a` since NOW, with a time limit or without."""
    limit = {} if seconds is None else {"activeDeadlineSeconds": seconds}
    job = make_job(name, status={"number": 1}, gpu=gpus, **limit)
    state.store.job_changed(job)
    state.store.child_changed(make_child(job, uid=f"uid-child-{name}", status={"startTime": at(0)}))
    state.store.pod_event("ADDED", make_pod(node="a", devices=gpus, owner=f"uid-child-{name}"))


def foreseen(state: State) -> dict[str, QueuePlace]:
    found = estimates(state, cycle=survey(state, now=NOW, foresees=True))
    return {each[0].removeprefix("uid-"): each[1] for each in found if each is not None}


def test_of_a_job_that_goes_while_starts_are_foreseen_nothing_is_kept() -> None:
    state = make_state(a=1)
    occupy(state, gpus=1, seconds=3600)
    for name in ("gone", "stays"):
        submit(state, name)
    found = estimates(state, cycle=survey(state, now=NOW, foresees=True))
    assert next(found) is None
    state.store.job_deleted("team/gone", uid="uid-gone")
    assert [each[0] for each in found if each is not None] == ["uid-stays"]
    assert list(state.store.expectations.misses._noted) == ["uid-stays"]


def test_the_first_job_that_waits_keeps_its_room_until_those_that_run_reach_their_limits() -> None:
    state = make_state(a=4)
    occupy(state, gpus=2, seconds=3600)
    submit(state, "large", gpu=4, meta={"creationTimestamp": at(-900)})
    submit(state, "long", activeDeadlineSeconds=7200)
    submit(state, "short", activeDeadlineSeconds=600)
    found = verdicts(state)
    assert isinstance(found["short"], Admitted)
    assert isinstance(found["long"], Waits)
    assert (found["long"].reason, found["long"].message) == (
        "Reserved",
        "Need 1 GPU, only 0 available; 4 GPUs are kept for job 1 (large), which is older",
    )


def test_those_that_wait_have_a_position_each() -> None:
    state = make_state(a=1)
    submit(state, "huge", gpu=8, priority=20)
    for name in ("one", "two", "three"):
        submit(state, name)
    places = [verdict.queue for verdict in verdicts(state).values() if isinstance(verdict, Waits)]
    assert [place and place.position for place in places] == [None, 1, 2]


def test_a_job_that_can_never_run_hides_none_that_waits_for_room() -> None:
    state = make_state(a=1)
    submit(state, "huge", gpu=8, priority=20)
    submit(state, "one")
    submit(state, "two")
    found = verdicts(state)
    assert [isinstance(found[name], Admitted) for name in ("huge", "one", "two")] == [False, True, False]


def test_an_estimate_has_a_time_and_what_it_rests_on() -> None:
    state = make_state(a=4)
    occupy(state, gpus=2, seconds=3600)
    submit(state, "large", gpu=4)
    place = foreseen(state)["large"]
    assert (place.estimated_start, place.basis) == (
        at(3630),
        "1 job has ended on a by then at the latest, by the time limits",
    )
    verdict = next(iter(decide(state, cycle=survey(state, now=NOW), foreseen={"uid-large": place})))
    assert isinstance(verdict, Waits)
    assert verdict.queue is not None
    assert msgspec.structs.replace(verdict.queue, reserved=None) == place


def test_every_job_is_an_arrival_once_and_the_oldest_comes_first() -> None:
    state = make_state(a=4)
    for name, seconds in (("second", -60), ("first", -90), ("third", -30)):
        submit(state, name, meta={"creationTimestamp": at(seconds)})
    jobs = state.store.jobs
    assert [job.metadata.name for job in make_state().store.expectations.new(jobs.values())] == [
        "first", "second", "third",
    ]  # fmt: skip
    foreseen(state)
    assert state.store.expectations.new(jobs.values()) == []


def test_an_estimate_that_counts_on_a_job_without_a_limit_says_so() -> None:
    state = make_state(a=4)
    occupy(state, gpus=2)
    submit(state, "large", gpu=4)
    place = foreseen(state)["large"]
    assert place.estimated_start == at(86400)
    assert place.basis == "1 job has ended on a by then, if 1 without a time limit run as long as is configured"


def test_a_first_estimate_that_comes_after_the_reason_is_told_after_a_while_like_another_one() -> None:
    teller = VerdictPacing()
    waits = msgspec.structs.replace(NO_ROOM, queue=QueuePlace(position=1))
    teller.hold_back(waits, before=None, rank=0, now=0)
    first = msgspec.structs.replace(NO_ROOM, queue=QueuePlace(position=1, estimated_start=at(60)))
    assert teller.hold_back(first, before=waits, rank=0, now=1)
    assert not teller.hold_back(first, before=waits, rank=0, now=RENEWAL_SECONDS)
    other = msgspec.structs.replace(NO_ROOM, queue=QueuePlace(position=1, estimated_start=at(90)))
    assert teller.hold_back(other, before=first, rank=0, now=RENEWAL_SECONDS + 1)
    assert not teller.hold_back(other, before=first, rank=0, now=2 * RENEWAL_SECONDS)


def verdicts_before(state: State, *, reason: Reason) -> dict[str, Verdict]:
    """A verdict of an earlier cycle on each waiting job, with a message that no verdict has now."""
    return {uid: Waits(key=uid, reason=reason, message="as it was") for uid in survey(state, now=NOW).keys}


def count_renewed(state: State, previous: dict[str, Verdict], *, reasons: Container[Reason] = ()) -> int:
    """How many of the waiting jobs get another verdict."""
    found = decide(state, cycle=survey(state, now=NOW), previous=previous, renewed_reasons=reasons)
    return sum(verdict != previous[verdict.key] for verdict in found)


def test_only_the_first_jobs_get_a_new_message_for_the_same_reason() -> None:
    state = make_state(a=1)
    occupy(state, gpus=1)
    for number in range(RENEWED_JOBS + 2):
        submit(state, f"job-{number:03}")
    previous = verdicts_before(state, reason="Resources")
    assert count_renewed(state, previous) == RENEWED_JOBS
    assert count_renewed(state, previous, reasons={"Resources"}) == RENEWED_JOBS + 2
    cycle = survey(state, now=NOW)
    first = list(previous)[:RENEWED_JOBS]
    assert [verdict.key for verdict in decide(state, cycle=cycle, previous=previous)] == first
    assert count_renewed(state, verdicts_before(state, reason="Quota")) == RENEWED_JOBS + 2


def test_room_of_pods_that_are_about_to_go_is_kept_for_the_first_that_waits() -> None:
    state = make_state(a=3)
    deleted, orphan = (make_pod(worker, node="a", owner="uid-gone") for worker in (0, 1))
    for index, pod in enumerate((deleted, orphan)):
        state.store.pod_event("ADDED", with_device(pod, index=index))
    going = replace_meta(with_device(deleted, index=0), deletion_timestamp=at(30))
    state.store.pod_event("MODIFIED", going)
    submit(state, "large", gpu=3, meta={"creationTimestamp": at(-900)})
    submit(state, "long")
    found = verdicts(state)
    assert isinstance(found["long"], Waits)
    assert found["long"].reason == "Reserved"
    assert foreseen(state)["large"].estimated_start == at(60)


def test_a_stranger_s_pod_that_is_being_deleted_is_about_to_go() -> None:
    state = make_state(a=1)
    stranger = replace_meta(make_pod(node="a", devices=1), deletion_timestamp=at(30), labels={}, owner_references=[])
    state.store.pod_event("ADDED", stranger)
    submit(state, "next")
    assert foreseen(state)["next"].estimated_start == at(60)
    state.store.pod_event("DELETED", stranger)
    assert foreseen(state) == {}


def replace_meta(pod: Pod, **fields: Any) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **fields))


def with_device(pod: Pod, *, index: int) -> Pod:
    """The pod with one device of node `a`."""
    held = [AllocatedDevice(uuid=f"GPU-a-{index}", index=index, share_milli=1000, memory_mib=100)]
    allocation = Allocation(node="a", mode="Exclusive", containers=[ContainerAllocation(index=0, devices=held)])
    return replace_meta(pod, annotations=annotations_of(allocation))


def test_a_passing_job_without_a_limit_is_planned_and_counted_off_the_nodes_that_are_kept() -> None:
    state = make_state(a=4, b=4)
    occupy(state, gpus=3, seconds=3600)
    blocker = make_job("blocker", status={"number": 1}, gpu=3, activeDeadlineSeconds=7200)
    state.store.job_changed(blocker)
    state.store.child_changed(make_child(blocker, uid="uid-child-blocker", status={"startTime": at(0)}))
    state.store.pod_event("ADDED", make_pod(node="b", devices=3, owner="uid-child-blocker", created=-60))
    submit(state, "large", gpu=4, meta={"creationTimestamp": at(-900)})
    submit(state, "long")
    verdict = verdicts(state)["long"]
    assert isinstance(verdict, Admitted)
    assert [claim.node for claim in verdict.claims] == ["b"]
    state.decisions.set_verdict("uid-long", verdict=verdict)
    (on_the_way,) = (each for each in survey(state, now=NOW).on_the_way if each.name == "team/long")
    assert on_the_way.nodes == ("b",)


def test_a_job_does_not_start_before_the_time_that_it_names() -> None:
    state = make_state(a=1)
    submit(state, "later", beginTime=at(60), dependencies=[{"name": "first"}])
    submit(state, "now", beginTime=at(0))
    assert set(verdicts(state)) == {"now"}
    seen = state.observe("team/later", now=NOW)
    assert seen is not None
    outcome = reconcile(seen)
    assert (outcome.status.reason, outcome.status.message) == (
        "BeginTime",
        "Starts at 2026-01-01T12:01:00Z at the earliest",
    )
    assert outcome.wake_at == NOW + timedelta(seconds=60)


def test_a_time_that_is_none_is_told_and_stops_no_other_job() -> None:
    state = make_state(a=1)
    submit(state, "wrong", beginTime="2026-02-31T25:61:00Z")
    submit(state, "right")
    assert set(verdicts(state)) == {"right"}
    obstacle = state.obstacle_of(state.store.jobs["team/wrong"], now=NOW)
    assert obstacle is not None
    assert obstacle.message.startswith('beginTime "2026-02-31T25:61:00Z" is no time')


def test_a_plan_on_devices_of_a_pod_that_is_being_deleted_is_not_doubted() -> None:
    state = make_state(a=1)
    ending = make_pod(5, node="a", devices=1, owner="uid-gone", meta={"labels": {}, "ownerReferences": []})
    state.store.pod_event("ADDED", ending)
    submit(state, "first")
    (found,) = verdicts_on_an_empty_node("first")
    state.decisions.set_verdict("uid-first", verdict=found)
    taken = survey(state, now=NOW)
    list(decide(state, cycle=taken))
    assert list(taken.doubts) == ["uid-first"], "the pod stays"
    state.store.pod_event("MODIFIED", replace_meta(ending, deletion_timestamp=at(30)))
    leaving = survey(state, now=NOW)
    list(decide(state, cycle=leaving))
    assert leaving.doubts == {}


def verdicts_on_an_empty_node(name: str) -> list[Verdict]:
    """The verdict on a job that finds node `a` empty."""
    state = make_state(a=1)
    submit(state, name)
    return list(verdicts(state).values())
