"""Quotas bind pods that are no GPUJob's: over HTTP, against a real ledger that is fed by watching."""

from typing import Any

import pytest

from dovetail import names
from dovetail.pods.allocation import allocation_in
from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.builders import asking, make_gpunode, make_node, make_pod, make_share
from tests.extender.harness import Face
from tests.extender.holds.test_planned_workers import make_job


def make_quota(name: str = "vision", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"quota-{name}"}, "spec": spec}


async def limit(api: ApiServer, face: Face, **spec: Any) -> None:
    """A quota that the extender knows of."""
    api.put("gpuquotas", make_quota(**spec))
    await eventually(lambda: "vision" in face.extender.quotas.binding)


async def refused(face: Face, pod: dict[str, Any]) -> set[str]:
    """The sentences for which no node takes the pod; empty where one does."""
    answer = await face.filter(pod, "a", "b")
    told: set[str] = set(answer["FailedAndUnresolvableNodes"].values())
    assert bool(answer["NodeNames"]) != bool(told)
    return told


async def run(api: ApiServer, face: Face, name: str, gpu: str = "1", **changes: Any) -> None:
    pod = make_pod(name, gpu, milli=1000 * int(gpu), **changes)
    api.put("pods", pod)
    await eventually(lambda: face.extender.watching.cached(namespace="default", name=name) is not None)
    assert await face.bind(pod, "a") == ""
    await eventually(
        lambda: any(seen.spec.node_name for seen in face.extender.watching.pods() if seen.metadata.name == name)
    )


async def test_a_pod_beyond_its_namespaces_quota_is_told_the_numbers(api: ApiServer, face: Face) -> None:
    await limit(api, face, namespaces=["default"], limit={"gpus": 4})
    await run(api, face, "first", "3")
    sentence = "Namespace default may run 4 GPUs, 3 run, this pod needs 2 (GPUQuota vision)"
    assert await refused(face, make_pod("second", "2", milli=2000)) == {sentence}
    assert await refused(face, make_pod("third", "1")) == set()


async def test_a_quota_that_has_only_a_parent_brings_its_limits(api: ApiServer, face: Face) -> None:
    api.put("gpuquotas", make_quota("all", limit={"gpus": 4}))
    await limit(api, face, namespaces=["default"], parent="all")
    await run(api, face, "first", "3")
    (sentence,) = await refused(face, make_pod("second", "2", milli=2000))
    assert "4 GPUs, 3 run, this pod needs 2" in sentence
    assert await refused(face, make_pod("third", "1")) == set()


async def test_a_share_counts_as_such(api: ApiServer, face: Face) -> None:
    await limit(api, face, per="Namespace", limit={"gpus": 1})
    assert await refused(face, make_share("half")) == set()
    assert await refused(face, make_pod("two", "2", milli=2000)) == {
        "Namespace default may run 1 GPU, 0 run, this pod would never fit, it needs 2 (GPUQuota vision)"
    }


async def test_of_two_that_are_decided_at_once_one_is_bound(api: ApiServer, face: Face) -> None:
    await limit(api, face, limit={"gpus": 1})
    first, second = make_pod("first"), make_pod("second")
    for pod in (first, second):
        api.put("pods", pod)
    await eventually(lambda: len(face.extender.watching.pods()) == 2)
    assert await refused(face, first) == await refused(face, second) == set()
    assert await face.bind(first, "a") == ""
    assert "may run 1 GPU, 1 run" in await face.bind(second, "b")
    assert len(api.bindings) == 1


async def test_what_is_planned_for_gpujobs_counts(api: ApiServer, face: Face) -> None:
    await limit(api, face, namespaces=["default"], limit={"gpus": 4})
    api.put("gpujobs", make_job(("a", 1), gpu="4"))
    await eventually(lambda: face.ledger.claim("job-train/0") is not None)
    (sentence,) = await refused(face, make_pod())
    assert "4 run, this pod needs 1" in sentence


async def test_quotas_of_users_bind_no_pod(api: ApiServer, face: Face) -> None:
    api.put("gpuquotas", make_quota("ada", users=["ada"], limit={"gpus": 0}))
    api.put("gpuquotas", make_quota("each", per="User", limit={"gpus": 0}))
    await limit(api, face, limit={"gpus": 8})
    assert await refused(face, make_pod()) == set()


async def test_a_quota_that_is_gone_binds_nobody(api: ApiServer, face: Face) -> None:
    await limit(api, face, limit={"gpus": 0})
    assert await refused(face, make_pod())
    api.delete("gpuquotas", "vision")
    await eventually(lambda: not face.extender.quotas.binding)
    assert await refused(face, make_pod()) == set()


async def test_a_pod_goes_to_the_pools_of_its_namespace_alone(api: ApiServer, face: Face) -> None:
    node = make_node("c")
    node["metadata"]["labels"][names.LABEL_POOL] = "small"
    api.put("gpunodes", make_gpunode("c"))
    api.put("nodes", node)
    await eventually(lambda: "c" in face.ledger.nodes() and bool(face.ledger.devices("c")))
    await limit(api, face, namespaces=["default"], pools=["small"])
    assert (await face.filter(make_pod(), "a", "c"))["NodeNames"] == ["c"]
    answer = await face.filter(make_pod("large", "9", milli=9000), "a", "c")
    told = "not in pool small, to which a GPUQuota keeps namespace default"
    assert answer["FailedAndUnresolvableNodes"]["a"] == told


async def test_what_is_kept_for_a_time_is_kept_from_pods_too_and_gone_with_the_quota(
    api: ApiServer, face: Face
) -> None:
    kept = {"status": {"kept": [{"name": "a", "keeps": ["8"]}]}}
    api.put("gpuquotas", make_quota("class", advanceReservations=[]) | kept)
    await eventually(lambda: face.ledger.claim("quota/class/kept/a/0") is not None)
    assert (await face.filter(make_pod(), "a", "b"))["NodeNames"] == ["b"]
    api.delete("gpuquotas", "class")
    await eventually(lambda: face.ledger.claim("quota/class/kept/a/0") is None)
    assert set((await face.filter(make_pod(), "a", "b"))["NodeNames"]) == {"a", "b"}


def asking_weight(weight: str | None) -> dict[str, Any]:
    pod = make_share("p", 500)
    pod["metadata"]["annotations"] |= {} if weight is None else {names.PRIORITY: weight}
    return pod


async def test_a_pod_that_asks_for_more_weight_than_its_namespace_may_have_is_refused_with_both_numbers(
    api: ApiServer, face: Face
) -> None:
    await limit(api, face, namespaces=["default"], maxPriority=50)
    sentence = "annotation dovetail.dev/gpu-priority is 51: GPUQuota vision allows 0 to 50"
    assert await refused(face, asking_weight("51")) == {sentence}
    api.put("pods", asking_weight("51"))
    assert sentence in await face.bind(asking_weight("51"), "a")
    for weight in ("50", None):
        assert await refused(face, asking_weight(weight)) == set()


@pytest.mark.parametrize(("most", "weight"), [(5, 5), (20, 10)])
async def test_a_pod_that_asks_for_no_weight_gets_what_it_may_have(
    api: ApiServer, face: Face, most: int, weight: int
) -> None:
    await limit(api, face, per="Namespace", maxPriority=most)
    api.put("pods", pod := asking_weight(None))
    assert await face.bind(pod, "a") == ""
    allocation = allocation_in(api.objects["pods"]["default/p"]["metadata"]["annotations"])
    assert allocation is not None
    assert allocation.priority == weight


async def test_a_vendor_s_pod_takes_no_turns_so_its_weight_is_not_asked(api: ApiServer, face: Face) -> None:
    await limit(api, face, namespaces=["default"], maxPriority=5)
    pod = make_pod(limits={"nvidia.com/gpu": "1"})
    pod["metadata"]["annotations"] = {names.PRIORITY: "x"}
    status, _ = await face.ask("filter", asking(pod, "a", "b"))
    assert status == 200
