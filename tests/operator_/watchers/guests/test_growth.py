"""Guests that grow while they run: the pods that are more than at the start wait one by one."""

import msgspec

from dovetail import names
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, Placement, PlannedNode, PlannedWorker, job_of
from tests.core.kube.api import Answer, Api
from tests.operator_.watchers.guests.test_keeper import (
    GUESTS,
    PODS,
    RECORDS,
    Rig,
    held,
    listing,
    pod,
    record,
    rig,
    scaled,
)

__all__ = ["rig"]


def running(*, released: tuple[int, ...] = ()) -> GPUJob:
    """The record of two workers on its plan."""
    worker = PlannedWorker(request="1", mode="Exclusive")
    nodes = [PlannedNode(name="a", workers=2)]
    plan = Placement(generation=1, nodes=nodes, worker=worker, released=list(released))
    return record(status={"placement": values_of(plan), "plans": 1, "phase": "Running"})


def own_record(name: str, *, uid: str = "uid-own") -> GPUJob:
    """The record of a pod that waits by itself."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}
    meta = {"name": f"pod-{name}", "namespace": "team", "uid": uid, "resourceVersion": "9", "ownerReferences": [owner]}
    spec = {"gpu": "1", "managedBy": names.GUESTS_MANAGER, "template": {"spec": {"containers": [{"name": "main"}]}}}
    plan = {"generation": 1, "nodes": [{"name": "a", "workers": 1}], "worker": {"request": "1"}}
    return job_of({"metadata": meta, "spec": spec, "status": {"placement": plan, "plans": 1}})


def grown(rig: Rig, *, to: int) -> None:
    """The guest runs with its two pods, and is scaled up."""
    rig.state.store.job_changed(running())
    rig.guest(scaled(held(suspend=False, **{names.PRIORITY: "10"}), to=to))
    for index, name in enumerate(("one", "two")):
        rig.pod(pod(name, gated=False, seat=f"uid-record/{index}"))


async def test_a_pod_beyond_the_plan_waits_under_a_record_of_its_own_in_the_guest_s_name(rig: Rig, api: Api) -> None:
    grown(rig, to=3)
    rig.pod(pod("three"))
    await rig.keep()
    api.answer(f"POST {RECORDS}", Answer(body=values_of(own_record("three")), status=201))
    await rig.keep("team/pod-three")
    (seen,) = api.of(f"POST {RECORDS}")
    meta, spec = seen.body["metadata"], seen.body["spec"]
    assert (meta["name"], meta["annotations"]) == ("pod-three", {names.USER: "ada"})
    assert [(owner["kind"], owner["uid"]) for owner in meta["ownerReferences"]] == [("Pod", "uid-three")]
    assert (spec["gpu"], spec["workers"], spec["managedBy"]) == ("1", 1, names.GUESTS_MANAGER)
    assert not api.of(f"PATCH {PODS}/three"), "it has to wait for its turn"


async def test_its_gate_opens_with_a_seat_of_its_own_record(rig: Rig, api: Api) -> None:
    grown(rig, to=3)
    rig.pod(pod("three"))
    await rig.keep()
    rig.state.store.job_changed(own := own_record("three"))
    api.answer(f"GET {RECORDS}/pod-three", Answer(body=values_of(own)))
    api.answer(f"PATCH {PODS}/three", Answer(body=values_of(pod("three", gated=False, seat="uid-own/0"))))
    written = await rig.keeper.hold(own, suspend=False)
    assert written is not None
    assert api.of(f"PATCH {PODS}/three")[0].body["metadata"]["annotations"][names.SEAT] == "uid-own/0"


async def test_no_more_pods_wait_than_the_guest_asks_for(rig: Rig, api: Api) -> None:
    """Everyone who may create pods in the namespace can give one the run of a guest."""
    grown(rig, to=3)
    for name in ("forged", "three"):
        rig.pod(pod(name))
    rig.keeper._queue.forget("team/job-train")
    await rig.keep()
    assert "team/job-train" in rig.keeper._queue._timers, "no event says that time has passed"
    rig.clock.seconds += 21
    await rig.keep()
    (news,) = rig.said
    assert (news.of.kind, news.about.name) == ("Pod", "three")
    assert news.message == "Stays gated: Job train asks for no more pods, and others have their seats"
    assert [found.guest.metadata.name for found in rig.keeper._guests.added_to("team/job-train")] == ["forged"]


async def test_seats_that_were_given_back_are_asked_for_again_one_by_one(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(running(released=(1,)))
    rig.guest(held(suspend=False))
    rig.pod(pod("one", gated=False, seat="uid-record/0"))
    rig.pod(pod("back"))
    await rig.keep()
    assert not api.of(f"PATCH {PODS}/back")
    assert [found.guest.metadata.name for found in rig.keeper._guests.added_to("team/job-train")] == ["back"]
    await rig.keep()
    assert rig.shown[-1][1].spec.parallelism == 1, "the record keeps the seat of its own pod alone"


async def test_the_replacement_of_a_pod_that_ends_waits_for_its_seat_and_for_no_turn(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(running())
    rig.guest(held(suspend=False))
    rig.pod(pod("one", gated=False, seat="uid-record/0"))
    going = pod("two", gated=False, seat="uid-record/1")
    meta = msgspec.structs.replace(going.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    rig.pod(msgspec.structs.replace(going, metadata=meta))
    rig.pod(pod("next"))
    await rig.keep()
    rig.clock.seconds += 60
    await rig.keep()
    assert (rig.said, rig.keeper._guests.added_to("team/job-train")) == ([], [])
    assert not [seen for seen in api.seen if seen.method != "GET"]


async def test_the_next_operator_knows_a_pod_that_waits_by_itself_by_its_record(rig: Rig) -> None:
    rig.state.store.job_changed(own_record("three"))
    grown(rig, to=3)
    rig.pod(pod("three", gated=False, seat="uid-own/0"))
    assert [found.key for found in rig.keeper._guests.added_to("team/job-train")] == ["team/pod-three"]
    await rig.keep()
    await rig.keep("team/pod-three")
    assert {child.metadata.name: child.spec.parallelism for _, child in rig.shown} == {"job-train": 2, "pod-three": 1}


async def test_a_guest_of_which_nothing_runs_returns_to_the_queue_when_it_asks_for_pods_again(
    rig: Rig, api: Api
) -> None:
    rig.state.store.job_changed(running(released=(0, 1)))
    rig.guest(held(suspend=False))
    rig.pod(pod("one"))
    api.answer(f"PATCH {GUESTS}/train", Answer(body=values_of(held())))
    await rig.keep()
    assert api.of(f"PATCH {GUESTS}/train")[0].body["spec"] == {"suspend": True}


async def test_a_guest_with_a_head_that_runs_grows_again_pod_by_pod(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(running(released=(0, 1)))
    rig.guest(held(suspend=False))
    rig.pod(pod("head", gpus=False, gated=False))
    rig.pod(pod("one"))
    await rig.keep()
    assert not api.of(f"PATCH {GUESTS}/train")
    assert [found.guest.metadata.name for found in rig.keeper._guests.added_to("team/job-train")] == ["one"]


async def test_a_pod_that_waits_by_itself_waits_with_its_guest_again_once_that_is_held(rig: Rig, api: Api) -> None:
    grown(rig, to=3)
    rig.pod(pod("three"))
    await rig.keep()
    rig.state.store.job_changed(own_record("three"))
    rig.guest(held(version=9))
    api.answer(f"DELETE {RECORDS}/pod-three", Answer(body={}))
    await rig.keep("team/pod-three")
    assert api.of(f"DELETE {RECORDS}/pod-three")
    rig.state.store.job_deleted("team/pod-three", uid="uid-own")
    await rig.keep("team/pod-three")
    assert rig.keeper._guests.added_to("team/job-train") == []


async def test_the_record_of_a_pod_that_has_gone_is_deleted(rig: Rig, api: Api) -> None:
    grown(rig, to=3)
    rig.pod(three := pod("three"))
    await rig.keep()
    rig.state.store.job_changed(own_record("three"))
    rig.gone(three)
    api.answer(f"GET {PODS}", listing())
    api.answer(f"DELETE {RECORDS}/pod-three", Answer(body={}))
    await rig.keep("team/pod-three")
    assert api.of(f"DELETE {RECORDS}/pod-three")
