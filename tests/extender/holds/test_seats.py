"""The seats of a guest's pods over HTTP: of the record's own size, held until the operator releases them."""

from typing import Any

from dovetail import names
from dovetail_extender.holds.planned_workers import OTHER_SIZE
from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_pod
from tests.extender.harness import Face
from tests.extender.holds.test_planned_workers import free_on, holds, make_job, make_worker, released


def make_record(*nodes: tuple[str, int], gpu: str = "2", released: tuple[int, ...] = ()) -> dict[str, Any]:
    """The record of a guest, whose plan has given back the room of some workers."""
    made = make_job(*nodes, gpu=gpu)
    made["status"]["placement"]["released"] = list(released)
    return made


def make_guests_pod(worker: int, *, gpu: str = "2", uid: str = "") -> dict[str, Any]:
    """A pod with a seat of that record; a controller of another kind made it."""
    made = make_worker(worker, gpu=gpu, uid=uid)
    meta = made["metadata"]
    del meta["annotations"][names.COMPLETION_INDEX], meta["ownerReferences"]
    meta["annotations"][names.SEAT] = f"job-train/{worker}"
    return made


async def test_a_worker_that_is_released_gives_its_room_to_others_and_the_rest_stays_held(
    api: ApiServer, face: Face
) -> None:
    api.put("gpujobs", make_record(("a", 4)))
    await holds(face, "job-train/0", "job-train/3")
    assert await free_on(face, "a", gpu=4) == []
    api.put("gpujobs", make_record(("a", 4), released=(2, 3)))
    await released(face, "job-train/2", "job-train/3")
    await holds(face, "job-train/0", "job-train/1")
    assert await free_on(face, "a", gpu=4) == ["a"]


async def test_a_plan_that_is_seen_with_released_workers_holds_the_others_alone(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_record(("a", 3), released=(0,)))
    await holds(face, "job-train/1", "job-train/2")
    assert face.ledger.claim("job-train/0") is None


async def test_the_room_of_a_pod_that_has_succeeded_is_held_until_it_is_released(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_record(("a", 2)))
    await holds(face, "job-train/1")
    pod = make_guests_pod(1)
    api.put("pods", pod)
    assert await face.bind(pod, "a") == ""
    await released(face, "job-train/1")
    api.put("pods", pod | {"status": {"phase": "Succeeded"}})
    await holds(face, "job-train/1")
    api.put("gpujobs", make_record(("a", 2), released=(1,)))
    await released(face, "job-train/1")
    api.delete("pods", "default/train-1")
    await eventually(lambda: face.ledger.claim("uid-train-1") is None)
    assert face.ledger.claim("job-train/1") is None


async def test_a_pod_of_another_size_does_not_get_the_seat_and_its_hold_stays(api: ApiServer, face: Face) -> None:
    api.put("gpujobs", make_record(("a", 1)))
    await holds(face, "job-train/0")
    for gpu in ("8", "1"):
        pod = make_guests_pod(0, gpu=gpu, uid=f"-{gpu}")
        api.put("pods", pod)
        assert (await face.filter(pod, "a", "b"))["FailedNodes"] == {"a": OTHER_SIZE, "b": OTHER_SIZE}
        assert await face.bind(pod, "a") == f"{OTHER_SIZE}: it asks {gpu}, and the seat is 2"
    assert face.ledger.is_hold("job-train/0")


async def test_quotas_count_a_pod_in_a_released_seat_as_any_other(api: ApiServer, face: Face) -> None:
    api.put("gpuquotas", {"metadata": {"name": "q"}, "spec": {"namespaces": ["default"], "limit": {"gpus": 3}}})
    api.put("gpujobs", make_record(("a", 2), released=(1,)))
    await holds(face, "job-train/0")
    pod = make_guests_pod(1)
    api.put("pods", pod)
    why = (await face.filter(pod, "a", "b"))["FailedAndUnresolvableNodes"]["a"]
    assert why == "Namespace default may run 3 GPUs, 2 run, this pod needs 2 (GPUQuota q)"
    own = make_guests_pod(0)
    api.put("pods", own)
    assert (await face.filter(own, "a", "b"))["NodeNames"] == ["a"]


async def test_a_plain_pod_of_a_gpujob_keeps_its_rules(api: ApiServer, face: Face) -> None:
    """Only the operator makes the pods of a GPUJob: their requests are those of the plan."""
    api.put("gpujobs", make_job(("a", 1), gpu="2"))
    await holds(face, "job-train/0")
    pod = make_worker(0, gpu="2")
    api.put("pods", pod)
    assert await face.bind(pod, "a") == ""
    api.put("pods", make_pod("last"))
    await face.sees("default/last")
    assert face.ledger.claim("job-train/0") is None
