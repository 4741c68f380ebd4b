"""Preempt over HTTP: who is to leave is chosen by device, and the room is kept for whom they leave."""

from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_gpunode, make_node, make_pod, make_share
from tests.extender.harness import Face, watching


class Scene:
    """One node `n` with two devices, and pods of priority 0 on it."""

    def __init__(self, api: ApiServer, face: Face) -> None:
        self.api = api
        self.face = face

    async def start(self, *, gpus: int = 2) -> None:
        self.api.put("nodes", make_node("n"))
        self.api.put("gpunodes", make_gpunode("n", gpus=gpus))
        await eventually(lambda: "n" in self.face.ledger.nodes() and len(self.face.ledger.devices("n")) == gpus)

    async def runs(self, name: str, milli: int = 500, *, meta: dict[str, Any] | None = None, **spec: Any) -> None:
        pod = (
            make_share(name, milli, **spec) if milli < 1000 else make_pod(name, str(milli // 1000), milli=milli, **spec)
        )
        pod["metadata"] |= meta or {}
        self.api.put("pods", pod)
        assert await self.face.bind(pod, "n") == ""
        await self.is_seen_bound(name, namespace=pod["metadata"]["namespace"])

    async def filled_with_halves(self) -> None:
        """a and b on one device, c and d on the other."""
        for name in "abcd":
            await self.runs(name)
        assert self.device_of("a") == self.device_of("b") != self.device_of("c") == self.device_of("d")

    def device_of(self, name: str) -> str:
        claim = self.face.ledger.claim(f"uid-{name}")
        assert claim is not None
        return claim.devices[0].uuid

    async def victims(self, pod: dict[str, Any], *picked: str, violations: int = 0) -> set[str] | None:
        """Who is to leave `n` where kube-scheduler picked those; None when that does not help."""
        pods = [{"UID": f"uid-{name}"} for name in picked]
        status, answer = await self.face.ask("preempt", {
            "Pod": pod, "NodeNameToVictims": None,
            "NodeNameToMetaVictims": {"n": {"Pods": pods, "NumPDBViolations": violations}},
        })  # fmt: skip
        assert status == 200, answer
        found = answer["NodeNameToMetaVictims"].get("n")
        if found is None:
            return None
        assert found["NumPDBViolations"] == 0
        return {pod["UID"].removeprefix("uid-") for pod in found["Pods"]}

    def change(self, name: str, **status: Any) -> None:
        pod = self.api.objects["pods"][f"default/{name}"]
        pod["status"] = pod["status"] | status
        self.api.put("pods", pod)

    def leaves(self, name: str) -> None:
        pod = self.api.objects["pods"][f"default/{name}"]
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.api.put("pods", pod)

    async def nominated(self, pod: dict[str, Any], node: str = "n") -> None:
        self.api.put("pods", pod)
        self.change(pod["metadata"]["name"], nominatedNodeName=node)
        await eventually(lambda: self.face.ledger.claim(pod["metadata"]["uid"]) is not None)

    def seen(self, name: str, *, namespace: str = "default") -> Pod:
        pod = self.face.extender.watching.cached(namespace=namespace, name=name)
        assert pod is not None
        return pod

    async def is_seen_bound(self, name: str, *, namespace: str = "default") -> None:
        await self.face.sees(f"{namespace}/{name}")
        await eventually(lambda: bool(self.seen(name, namespace=namespace).spec.node_name))


def urgent(name: str = "urgent", gpu: str = "1", *, priority: int = 100) -> dict[str, Any]:
    return make_pod(name, gpu, milli=1000 * int(gpu), priority=priority)


@pytest.fixture
async def scene(api: ApiServer, face: Face) -> Scene:
    scene = Scene(api, face)
    await scene.start()
    return scene


@pytest.mark.parametrize("picked", ["ac", "bd", "ad", "abc"])
async def test_two_halves_of_one_device_leave_for_a_whole_one_whomever_the_sums_pick(scene: Scene, picked: str) -> None:
    await scene.filled_with_halves()
    assert await scene.victims(urgent(), *picked) in ({"a", "b"}, {"c", "d"})


async def test_whom_kube_scheduler_picked_is_kept_to_where_that_helps(scene: Scene) -> None:
    await scene.filled_with_halves()
    assert await scene.victims(urgent(), "c", "d") == {"c", "d"}
    assert await scene.victims(urgent(), "a", "b") == {"a", "b"}


async def test_the_less_important_leave(scene: Scene) -> None:
    for name, priority in (("a", 50), ("b", 1), ("c", 2), ("d", 2)):
        await scene.runs(name, priority=priority)
    assert await scene.victims(urgent(), "a", "b", "c", "d") == {"c", "d"}


async def test_no_more_leave_than_must(scene: Scene) -> None:
    await scene.runs("whole", 1000)
    await scene.runs("share", 300)
    assert await scene.victims(urgent(), "whole", "share") in ({"whole"}, {"share"})


async def test_pods_of_gpujobs_are_never_offered(scene: Scene) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    await scene.runs("job", 1000, meta={"labels": {names.LABEL_JOB: "train"}, "ownerReferences": [owner]})
    await scene.runs("plain", 1000)
    assert await scene.victims(urgent(), "job") == {"plain"}
    assert await scene.victims(urgent(gpu="2"), "job", "plain") is None


async def test_pods_with_devices_of_another_namespace_are_never_offered(scene: Scene) -> None:
    """The namespace is the boundary between tenants, and any of them may name `system-cluster-critical`."""
    await scene.runs("own", 1000)
    await scene.runs("theirs", 1000, meta={"namespace": "team-b"})
    critical = 2_000_000_000
    assert await scene.victims(urgent(priority=critical), "own", "theirs") == {"own"}
    assert await scene.victims(urgent(gpu="2", priority=critical), "own", "theirs") is None


@pytest.mark.parametrize(
    "meta",
    [
        {"labels": {names.LABEL_JOB: "train"}},
        {"ownerReferences": [{"apiVersion": names.API_VERSION, "kind": "GPUJob", "name": "train", "uid": "u"}]},
        {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u", "controller": True}]},
    ],
)
async def test_a_pod_that_only_says_it_is_a_job_s_is_offered_as_any_other(scene: Scene, meta: dict[str, Any]) -> None:
    await scene.runs("forged", 2000, meta=meta)
    assert await scene.victims(urgent(), "forged") == {"forged"}


async def test_pods_of_the_same_or_a_higher_priority_are_never_offered(scene: Scene) -> None:
    await scene.runs("same", 1000, priority=100)
    await scene.runs("higher", 1000, priority=101)
    assert await scene.victims(urgent(), "same", "higher") is None


async def test_a_node_where_nobody_s_leaving_helps_is_left_out(scene: Scene) -> None:
    await scene.runs("a", 1000)
    assert await scene.victims(urgent(gpu="4"), "a") is None
    assert await scene.victims(make_pod("wrong", "1(A100)", priority=100), "a") is None


async def test_a_node_with_room_needs_nobody_s_leaving(scene: Scene) -> None:
    await scene.runs("a", 1000)
    assert await scene.victims(urgent(), "a") is None, "a node without victims would fail kube-scheduler's attempt"


async def test_who_was_picked_for_something_else_than_devices_leaves_as_well(scene: Scene) -> None:
    await scene.filled_with_halves()
    plain = make_pod("plain", limits={"cpu": "1"})
    scene.api.put("pods", plain)
    assert await scene.face.bind(plain, "n") == ""
    await scene.is_seen_bound("plain")
    assert await scene.victims(urgent(), "a", "b", "plain") == {"a", "b", "plain"}
    assert await scene.victims(urgent(), "a", "b") == {"a", "b"}


async def test_who_leaves_already_is_the_first_to_leave(scene: Scene) -> None:
    await scene.filled_with_halves()
    for name in "cd":
        scene.leaves(name)
    await eventually(lambda: scene.seen("d").metadata.deletion_timestamp is not None)
    assert await scene.victims(urgent(), "a", "b") == {"c", "d"}


async def test_no_budget_is_broken_whatever_kube_scheduler_would_break(scene: Scene) -> None:
    await scene.filled_with_halves()
    assert await scene.victims(urgent(), "a", "b", violations=2) == {"a", "b"}
    meta = {"name": "all", "namespace": "default"}
    scene.api.put("poddisruptionbudgets", {"metadata": meta, "spec": {"selector": {}}, "status": {}})
    await eventually(lambda: bool(scene.face.extender.watching.budgets()))
    assert await scene.victims(make_pod("other", priority=100), "a", "b", violations=2) is None


async def test_whole_pods_as_without_node_cache_are_read_too(scene: Scene) -> None:
    await scene.filled_with_halves()
    given = [scene.api.objects["pods"][f"default/{name}"] for name in "ab"]
    body = {"Pod": urgent(), "NodeNameToVictims": {"n": {"Pods": given, "NumPDBViolations": 1}}}
    status, answer = await scene.face.ask("preempt", body)
    assert status == 200
    assert sorted(pod["UID"] for pod in answer["NodeNameToMetaVictims"]["n"]["Pods"]) == ["uid-a", "uid-b"]
    assert answer["NodeNameToMetaVictims"]["n"]["NumPDBViolations"] == 0


async def test_a_request_that_cannot_be_read_helps_nowhere(scene: Scene) -> None:
    await scene.filled_with_halves()
    assert await scene.victims(make_pod("odd", "nonsense", priority=100), "a") is None
    status, _ = await scene.face.ask("preempt", {"Pod": None})
    assert status == 400


async def test_preempt_changes_nothing(scene: Scene) -> None:
    await scene.filled_with_halves()
    before = scene.face.ledger.totals()
    await scene.victims(urgent(), "a", "c")
    assert scene.face.ledger.totals() == before


async def test_a_nominated_pod_keeps_the_room_of_its_victims_by_device(scene: Scene) -> None:
    await scene.filled_with_halves()
    pod = urgent()
    assert await scene.victims(pod, "c", "d") == {"c", "d"}
    device = scene.device_of("c")
    await scene.nominated(pod)
    assert scene.device_of("urgent") == device
    for name in "cd":
        scene.api.delete("pods", f"default/{name}")
    await eventually(lambda: len(scene.face.ledger.claims()) == 3)
    refused = await scene.face.filter(make_share("next", 500), "n")
    assert refused["FailedNodes"] == {"n": "GPUs are held for other pods"}
    assert (await scene.face.filter(pod, "n"))["NodeNames"] == ["n"], "it does not stand in its own way"
    assert await scene.face.bind(pod, "n") == ""


async def test_a_nominated_pod_that_we_did_not_choose_for_gets_what_the_leaving_leave(scene: Scene) -> None:
    await scene.filled_with_halves()
    for name in "ab":
        scene.leaves(name)
    await scene.nominated(urgent())
    assert scene.device_of("urgent") == scene.device_of("a")


async def test_an_extender_that_starts_keeps_the_room_of_who_is_nominated_already(api: ApiServer) -> None:
    api.put("pods", urgent() | {"status": {"phase": "Pending", "nominatedNodeName": "a"}})
    async with watching(api) as face:
        await face.ready()
        await face.chores()
        assert [claim.node for claim in face.ledger.claims()] == ["a"]


async def test_room_is_kept_as_soon_as_somebody_leaves(scene: Scene) -> None:
    await scene.filled_with_halves()
    pod = urgent()
    scene.api.put("pods", pod)
    scene.change("urgent", nominatedNodeName="n")
    await eventually(lambda: len(scene.face.extender.nominations) == 1)
    assert scene.face.ledger.claim("uid-urgent") is None
    for name in "ab":
        scene.api.delete("pods", f"default/{name}")
    await eventually(lambda: scene.face.ledger.claim("uid-a") is None and scene.face.ledger.claim("uid-b") is None)
    await scene.face.chores()
    assert scene.face.ledger.claim("uid-urgent") is not None


@pytest.mark.parametrize("how", ["gone", "elsewhere", "no longer nominated"])
async def test_the_room_of_a_nominated_pod_is_free_when_it_is(scene: Scene, how: str) -> None:
    pod = urgent(gpu="2")
    await scene.nominated(pod)
    assert (await scene.face.filter(make_pod("next"), "n"))["NodeNames"] is None
    if how == "gone":
        scene.api.delete("pods", "default/urgent")
    elif how == "elsewhere":
        assert await scene.face.bind(pod, "a") == ""
    else:
        scene.change("urgent", nominatedNodeName="")
    await eventually(lambda: not scene.face.ledger.claims_on("n"))
    assert (await scene.face.filter(make_pod("next"), "n"))["NodeNames"] == ["n"]


async def test_a_nominated_pod_keeps_its_room_when_its_attempt_elsewhere_came_to_nothing(scene: Scene) -> None:
    pod = urgent(gpu="2")
    await scene.nominated(pod)
    await scene.face.prioritize(pod, "a", "b")
    assert not scene.face.ledger.claims_on("n")
    scene.face.clock.now += 31
    await scene.face.chores()
    assert scene.face.ledger.claims_on("n")


async def test_a_pod_of_a_higher_priority_may_take_the_room_of_a_nominated_one(scene: Scene) -> None:
    await scene.nominated(urgent("lower", gpu="2"))
    higher = urgent("higher", gpu="2", priority=200)
    scene.api.put("pods", higher)
    for pod in (urgent("same", gpu="2"), make_pod("plain")):
        assert (await scene.face.filter(pod, "n"))["NodeNames"] is None
    assert (await scene.face.filter(higher, "n"))["NodeNames"] == ["n"]
    assert await scene.face.bind(higher, "n") == ""
    assert [claim.key for claim in scene.face.ledger.claims_on("n")] == ["uid-higher"]


async def both_full(scene: Scene) -> dict[str, Any]:
    """Halves on all devices of nodes n and m, and an urgent pod for which those on a device of n are to leave."""
    await scene.filled_with_halves()
    scene.api.put("nodes", make_node("m"))
    scene.api.put("gpunodes", make_gpunode("m", gpus=1))
    await eventually(lambda: len(scene.face.ledger.devices("m")) == 1)
    for name in "xy":
        pod = make_share(name, 500)
        scene.api.put("pods", pod)
        assert await scene.face.bind(pod, "m") == ""
        await scene.is_seen_bound(name)
    pod = urgent()
    assert await scene.victims(pod, "c", "d") == {"c", "d"}
    return pod


async def victims_on_m(scene: Scene, pod: dict[str, Any]) -> set[str]:
    picked = {"m": {"Pods": [{"UID": "uid-x"}, {"UID": "uid-y"}], "NumPDBViolations": 0}}
    body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": picked}
    status, answer = await scene.face.ask("preempt", body)
    assert status == 200, answer
    return {each["UID"] for each in answer["NodeNameToMetaVictims"].get("m", {"Pods": []})["Pods"]}


async def test_nobody_else_is_evicted_while_we_have_not_seen_the_victims_gone(scene: Scene) -> None:
    pod = await both_full(scene)
    pod["status"] = {"phase": "Pending", "nominatedNodeName": "n"}
    assert await victims_on_m(scene, pod) == set()
    scene.face.clock.now += 11
    assert await victims_on_m(scene, pod) == {"uid-x", "uid-y"}, "they were not evicted after all"


async def test_a_victim_that_is_gone_shows_which_node_was_chosen(scene: Scene) -> None:
    pod = await both_full(scene)
    scene.api.delete("pods", "default/c")
    await eventually(lambda: scene.face.ledger.claim("uid-c") is None)
    assert await victims_on_m(scene, pod) == set()


async def test_others_are_evicted_where_the_room_of_all_victims_was_not_to_be_had(scene: Scene) -> None:
    pod = await both_full(scene)
    pod["status"] = {"phase": "Pending", "nominatedNodeName": "n"}
    for name in "cd":
        scene.api.delete("pods", f"default/{name}")
    await eventually(lambda: len(scene.face.ledger.claims_on("n")) == 2)
    assert await victims_on_m(scene, pod) == {"uid-x", "uid-y"}
