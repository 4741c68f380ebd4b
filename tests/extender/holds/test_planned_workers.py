"""Plans over HTTP: room is held for the workers of a job before there are pods, and nobody else gets it."""

import json
from typing import Any

import pytest

from dovetail import names
from dovetail_extender.holds.planned_workers import ELSEWHERE, OVERTAKEN
from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_gpunode, make_node, make_pod
from tests.extender.harness import Face, watching


def make_job(
    *nodes: tuple[str, int], name: str = "train", generation: int = 1, gpu: str = "4", **status: Any
) -> dict[str, Any]:
    """A GPUJob whose plan sends so many workers to each of the nodes; none without nodes."""
    placement = {
        "generation": generation,
        "nodes": [{"name": node, "workers": workers} for node, workers in nodes],
        "worker": {"request": gpu},
    }
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"job-{name}"},
        "status": {"plans": generation, **({"placement": placement} if nodes else {}), **status},
    }


def make_worker(
    worker: int = 0,
    *,
    job: str = "train",
    generation: int = 1,
    gpu: str = "4",
    uid: str = "",
    owner: str = "",
    **changes: Any,
) -> dict[str, Any]:
    """The pod of a worker, as the Job controller makes it."""
    pod = make_pod(f"{job}-{worker}{uid}", gpu, milli=1000 * int(gpu), **changes)
    pod["metadata"]["labels"] = {names.LABEL_JOB: job}
    pod["metadata"]["annotations"] |= {
        names.PLAN: json.dumps({"job": f"job-{job}", "generation": generation, "nodes": []}),
        names.COMPLETION_INDEX: str(worker),
    }
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": owner or job, "uid": "uid-child", "controller": True}
    ]
    return pod


async def holds(face: Face, *keys: str) -> None:
    await eventually(lambda: all(face.ledger.is_hold(key) for key in keys))


async def released(face: Face, *keys: str) -> None:
    await eventually(lambda: all(face.ledger.claim(key) is None for key in keys))


async def free_on(face: Face, *nodes: str, gpu: int) -> list[str]:
    """The nodes on which a pod of nobody's plan fits."""
    return (await face.filter(make_pod("plain", str(gpu), milli=1000 * gpu), *nodes))["NodeNames"] or []


async def test_what_is_planned_is_held_before_there_are_pods(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_job(("a", 1), ("b", 2)))
    await holds(face, "job-train/0", "job-train/1", "job-train/2")
    assert [face.ledger.claim(f"job-train/{at}").node for at in range(3)] == ["a", "b", "b"]  # type: ignore[union-attr]
    assert await free_on(face, "a", "b", gpu=1) == ["a"]
    assert await free_on(face, "a", "b", gpu=5) == []


async def test_each_worker_goes_to_its_own_node_and_takes_its_hold(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_job(("a", 1), ("b", 2)))
    await holds(face, "job-train/2")
    for worker, node in enumerate(["a", "b", "b"]):
        pod = make_worker(worker)
        api.put("pods", pod)
        answer = await face.filter(pod, "a", "b")
        assert answer["NodeNames"] == [node]
        assert await face.prioritize(pod, node) == {node: 0}
        assert await face.bind(pod, node) == ""
    await released(face, "job-train/0", "job-train/1", "job-train/2")
    assert face.ledger.totals().promised_milli == 12_000
    assert await free_on(face, "a", "b", gpu=4) == ["a"]


async def test_a_worker_is_not_bound_to_another_node(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_job(("a", 1)))
    await holds(face, "job-train/0")
    pod = make_worker()
    api.put("pods", pod)
    assert (await face.filter(pod, "b"))["FailedNodes"] == {"b": ELSEWHERE}
    assert await face.bind(pod, "b") == ELSEWHERE
    assert face.ledger.is_hold("job-train/0")


async def test_the_room_is_held_again_when_a_worker_fails_until_its_successor_is_bound(
    api: ApiServer, face: Face
) -> None:
    api.put("gpujobs", make_job(("a", 2)))
    await holds(face, "job-train/1")
    pod = make_worker(1)
    api.put("pods", pod)
    assert await face.bind(pod, "a") == ""
    await released(face, "job-train/1")
    api.put("pods", pod | {"status": {"phase": "Failed"}})
    await holds(face, "job-train/1")
    successor = make_worker(1, uid="-again")
    api.put("pods", successor)
    assert await face.bind(successor, "a") == ""
    await released(face, "job-train/1")


async def test_a_worker_that_has_done_its_work_leaves_its_room_to_others(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_job(("a", 2)))
    await holds(face, "job-train/1")
    pod = make_worker(1)
    api.put("pods", pod)
    assert await face.bind(pod, "a") == ""
    api.put("pods", pod | {"status": {"phase": "Succeeded"}})
    await eventually(lambda: face.ledger.totals().promised_milli == 4000)
    api.delete("pods", "default/train-1")
    api.put("pods", make_pod("last"))
    await face.sees("default/last")
    assert face.ledger.claim("job-train/1") is None
    assert await free_on(face, "a", gpu=4) == ["a"]


async def test_the_next_plan_replaces_the_one_before(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_job(("a", 2)))
    await holds(face, "job-train/1")
    old = make_worker()
    api.put("pods", old)
    api.put("gpujobs", make_job(("b", 2), generation=2))
    await eventually(lambda: (claim := face.ledger.claim("job-train/0")) is not None and claim.node == "b")
    assert await free_on(face, "a", "b", gpu=8) == ["a"]
    assert (await face.filter(old, "a", "b"))["FailedNodes"] == {"a": OVERTAKEN, "b": OVERTAKEN}
    assert await face.bind(old, "a") == OVERTAKEN
    assert (await face.filter(make_worker(generation=2), "a", "b"))["NodeNames"] == ["b"]


@pytest.mark.parametrize("how", ["the plan is taken back", "the job is deleted"])
async def test_nothing_is_held_any_more_when(how: str, api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_job(("a", 2)))
    await holds(face, "job-train/1")
    if how == "the job is deleted":
        api.delete("gpujobs", "default/train")
    else:
        api.put("gpujobs", make_job())
    await released(face, "job-train/0", "job-train/1")


async def test_a_plan_counts_from_the_status_alone(api: ApiServer, face: Face) -> None:
    """The annotation says a plan, and there is no such job: the pod is one like any other."""
    api.put("gpujobs", make_job(("a", 2), name="other"))
    await holds(face, "job-other/1")
    assert (await face.filter(make_worker(), "a", "b"))["NodeNames"] == ["b"]


@pytest.mark.parametrize("stranger", ["no owner", "another owner", "another job's label"])
async def test_a_pod_that_is_not_of_the_job_has_no_part_in_its_plan(stranger: str, api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_job(("a", 2)))
    await holds(face, "job-train/1")
    pod = make_worker(owner="else") if stranger == "another owner" else make_worker()
    if stranger == "no owner":
        del pod["metadata"]["ownerReferences"]
    if stranger == "another job's label":
        pod["metadata"]["labels"] = {names.LABEL_JOB: "else"}
    api.put("pods", pod)
    assert (await face.filter(pod, "a", "b"))["NodeNames"] == ["b"]
    assert await face.bind(pod, "a") != ""
    assert face.ledger.is_hold("job-train/0")


async def test_a_bound_pod_that_only_says_so_takes_nobody_s_place(api: ApiServer, face: Face) -> None:
    forged = make_worker(1, uid="-forged")
    del forged["metadata"]["ownerReferences"]
    api.put("pods", forged)
    assert await face.bind(forged, "b") == ""
    await face.sees("default/train-1-forged")
    api.put("gpujobs", make_job(("a", 2)))
    await holds(face, "job-train/0", "job-train/1")


async def test_a_pod_that_is_seen_before_its_plan_is_judged_as_any_other(api: ApiServer, face: Face) -> None:
    pod = make_worker()
    api.put("pods", pod)
    assert (await face.filter(pod, "a", "b"))["NodeNames"] == ["a", "b"]
    assert await face.bind(pod, "b") == ""
    await face.sees("default/train-0")
    api.put("gpujobs", make_job(("b", 2)))
    await holds(face, "job-train/1")
    assert face.ledger.claim("job-train/0") is None


async def test_after_a_restart_what_is_planned_is_held_but_for_those_who_are_bound(api: ApiServer) -> None:
    bound = make_worker(0)
    async with watching(api) as first:
        await first.ready()
        api.put("gpujobs", make_job(("a", 2)))
        await holds(first, "job-train/1")
        api.put("pods", bound)
        assert await first.bind(bound, "a") == ""
    async with watching(api, identity="two") as second:
        await second.ready()
        await holds(second, "job-train/1")
        assert second.ledger.claim("job-train/0") is None
        assert second.ledger.totals().promised_milli == 8000


async def test_a_plan_may_be_over_devices_of_those_who_are_leaving(api: ApiServer, face: Face) -> None:
    victim = make_pod("victim", "8", milli=8000)
    api.put("pods", victim)
    assert await face.bind(victim, "a") == ""
    victim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    api.put("pods", victim)
    await eventually(
        lambda: (
            (pod := face.extender.watching.cached(namespace="default", name="victim")) is not None
            and pod.metadata.deletion_timestamp is not None
        )
    )
    api.put("gpujobs", make_job(("a", 1)))
    await holds(face, "job-train/0")
    worker = make_worker()
    api.put("pods", worker)
    assert list((await face.filter(worker, "a", "b"))["FailedNodes"]) == ["a", "b"]
    api.delete("pods", "default/victim")
    await eventually(lambda: face.ledger.claim("uid-victim") is None)
    assert await free_on(face, "a", gpu=5) == []
    # The extender looks for whom to wake by itself; a second look at the same time would wake twice.
    await eventually(lambda: api.wakeups == 1)
    assert (await face.filter(worker, "a", "b"))["NodeNames"] == ["a"]
    assert await face.bind(worker, "a") == ""


async def test_room_that_is_not_there_yet_is_held_as_soon_as_it_is(api: ApiServer, face: Face) -> None:
    before = make_pod("before", "8", milli=8000)
    api.put("pods", before)
    assert await face.bind(before, "a") == ""
    api.put("gpujobs", make_job(("a", 1)))
    api.put("pods", make_pod("last"))
    await face.sees("default/last")
    assert face.ledger.claim("job-train/0") is None
    api.delete("pods", "default/before")
    await holds(face, "job-train/0")


async def test_a_bind_that_comes_to_nothing_leaves_the_room_held(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_job(("a", 1)))
    await holds(face, "job-train/0")
    worker = make_worker()
    api.put("pods", worker)
    api.binding_status = 403
    assert await face.bind(worker, "a") != ""
    await face.chores()
    assert face.ledger.is_hold("job-train/0")


async def test_an_index_beyond_the_plan_s_workers_has_no_place(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_job(("a", 1)))
    await holds(face, "job-train/0")
    api.put("pods", pod := make_worker(1))
    assert (await face.filter(pod, "a", "b"))["FailedNodes"] == {"a": OVERTAKEN, "b": OVERTAKEN}
    assert await face.bind(pod, "a") == OVERTAKEN
    assert face.ledger.is_hold("job-train/0")


def waiting_for(*kept: tuple[str, list[str]], name: str = "large") -> dict[str, Any]:
    """A job that waits, and what is kept free for it now."""
    reserved = {
        "time": "2026-01-01T00:00:00Z",
        "nodes": [{"name": node, "workers": 1} for node, _ in kept],
        "kept": [{"name": node, "keeps": keeps} for node, keeps in kept],
    }
    metadata = {"name": name, "namespace": "default", "uid": f"job-{name}"}
    return {"metadata": metadata, "status": {"queue": {"position": 1, "reserved": reserved}}}


async def test_what_is_kept_for_a_job_that_waits_is_kept_from_pods_of_no_plan(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", waiting_for(("a", ["6", "1024M,0.250"])))
    await holds(face, "job-large/kept/a/0", "job-large/kept/a/1")
    assert await free_on(face, "a", "b", gpu=2) == ["b"]
    assert await free_on(face, "a", gpu=1) == ["a"]
    api.put("gpujobs", waiting_for(("a", ["2"])))
    await released(face, "job-large/kept/a/1")
    assert await free_on(face, "a", gpu=6) == ["a"]
    api.delete("gpujobs", "default/large")
    await released(face, "job-large/kept/a/0")
    assert await free_on(face, "a", gpu=8) == ["a"]


async def test_a_plan_takes_what_is_kept_since_the_queue_has_reckoned_with_both(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", waiting_for(("a", ["8"])))
    await holds(face, "job-large/kept/a/0")
    api.put("gpujobs", make_job(("a", 1), name="short"))
    await holds(face, "job-short/0")
    assert face.ledger.claim("job-large/kept/a/0") is None
    assert (await face.filter(make_worker(job="short"), "a"))["NodeNames"] == ["a"]


async def test_the_job_that_waited_starts_in_the_room_that_was_kept_for_it(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", waiting_for(("a", ["8"]), name="train"))
    await holds(face, "job-train/kept/a/0")
    api.put("gpujobs", make_job(("a", 1), gpu="8"))
    await holds(face, "job-train/0")
    assert face.ledger.claim("job-train/kept/a/0") is None


async def test_a_plan_that_cannot_be_read_holds_nothing_and_stops_nobody(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_job(("a", 1), gpu="1X"))
    api.put("gpujobs", waiting_for(("a", ["1X", "7"])))
    await holds(face, "job-large/kept/a/1")
    assert await free_on(face, "a", gpu=1) == ["a"]


async def test_a_node_that_comes_after_the_plan_is_held_then(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_job(("c", 1)))
    api.put("nodes", make_node("c"))
    api.put("gpunodes", make_gpunode("c"))
    await eventually(lambda: bool(face.ledger.devices("c")))
    await face.chores()
    await holds(face, "job-train/0")


async def test_what_others_leave_on_a_reserved_node_is_kept_until_the_operator_has_looked(
    api: ApiServer, face: Face
) -> None:
    for name in ("ends", "goes"):
        api.put("pods", pod := make_pod(name, "3", milli=3000))
        assert await face.bind(pod, "a") == ""
    api.put("gpujobs", waiting_for(("a", ["2"])))
    await holds(face, "job-large/kept/a/0")
    api.put("pods", api.objects["pods"]["default/ends"] | {"status": {"phase": "Succeeded"}})
    await holds(face, "job-large/left/uid-ends/0")
    api.delete("pods", "default/goes")
    await holds(face, "job-large/left/uid-goes/0")
    api.delete("pods", "default/ends")
    assert await free_on(face, "a", gpu=1) == []
    face.clock.now += 6
    await face.chores()
    assert await free_on(face, "a", gpu=6) == ["a"]


async def test_the_operator_s_word_on_what_is_kept_takes_the_place_of_what_was_left(api: ApiServer, face: Face) -> None:
    api.put("pods", pod := make_pod("goes", "8", milli=8000))
    assert await face.bind(pod, "a") == ""
    api.put("gpujobs", waiting_for(("a", [])))
    api.put("gpujobs", waiting_for(("b", ["1"]), name="last"))
    await holds(face, "job-last/kept/b/0")
    api.delete("pods", "default/goes")
    await holds(face, "job-large/left/uid-goes/0")
    api.put("gpujobs", waiting_for(("a", ["2"])))
    await released(face, "job-large/left/uid-goes/0")
    await holds(face, "job-large/kept/a/0")
    assert await free_on(face, "a", gpu=6) == ["a"]
