"""Two tenants of 20 GiB on a card of 32 GiB, over HTTP: by turns where the node moves memory to the host, else not."""

from typing import Any

import msgspec

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import GPUNode
from dovetail.audit.allocations import audit
from dovetail.pods.allocation import allocation_in
from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_gpunode, make_node, make_pod
from tests.extender.harness import Face


def make_tenant(name: str, *, host_memory: str = "21Gi") -> dict[str, Any]:
    limits = {names.GPU_TURN: "1", names.GPU_MEMORY_MIB: "20480", "memory": host_memory}
    pod = make_pod(name, "20G,1", limits=limits)
    pod["metadata"]["annotations"][names.MODE] = "TimeShared"
    return pod


def put_cards(api: ApiServer, *, checkpoint: bool, turns: bool = True) -> None:
    """One card on each of two nodes; on `a` tenants can be moved to the host if `checkpoint`."""
    for name in ("a", "b"):
        gpunode = make_gpunode(name, gpus=1)
        gpunode["status"]["enforcement"] = {"turns": turns, "checkpoint": checkpoint and name == "a"}
        api.put("gpunodes", gpunode)


async def waiting(api: ApiServer, face: Face, name: str) -> dict[str, Any]:
    pod = make_tenant(name)
    api.put("pods", pod)
    await face.sees(f"default/{name}")
    return pod


async def bind(api: ApiServer, face: Face, name: str, *, node: str) -> None:
    assert await face.bind(await waiting(api, face, name), node) == ""


async def movable(face: Face, *, node: str, as_said: bool) -> None:
    await eventually(lambda: [each.movable for each in face.ledger.devices(node)] == [as_said])


async def test_two_share_a_card_where_their_memory_can_be_moved_and_no_other(api: ApiServer, face: Face) -> None:
    put_cards(api, checkpoint=True)
    await movable(face, node="a", as_said=True)
    for node in ("a", "b"):
        await bind(api, face, f"first-{node}", node=node)
    answer = await face.filter(make_tenant("second"), "a", "b")
    assert answer["NodeNames"] == ["a"]
    refused = await face.filter(make_tenant("second"), "b")
    assert refused["FailedNodes"]["b"] == "no GPU has the memory left with 20480 MiB"
    second = await waiting(api, face, "second")
    assert "the most left on one is 5734 MiB" in await face.bind(second, "b")
    assert await face.bind(second, "a") == ""
    pods = [msgspec.convert(pod, Pod) for pod in api.objects["pods"].values()]
    allocations = {pod.metadata.name: allocation_in(pod.metadata.annotations) for pod in pods}
    told = {name: held is not None and held.movable for name, held in allocations.items()}
    assert told == {"first-a": True, "first-b": False, "second": True}


async def test_whose_container_has_too_little_memory_does_not_overlap(api: ApiServer, face: Face) -> None:
    put_cards(api, checkpoint=True)
    await movable(face, node="a", as_said=True)
    await bind(api, face, "first", node="a")
    small = make_tenant("small", host_memory="20Gi")
    assert (await face.filter(small, "a"))["NodeNames"] is None


async def test_when_the_node_moves_nobody_any_more_who_is_there_stays_and_nobody_joins(
    api: ApiServer, face: Face
) -> None:
    put_cards(api, checkpoint=True)
    await movable(face, node="a", as_said=True)
    for name in ("first", "second"):
        await bind(api, face, name, node="a")
    put_cards(api, checkpoint=True, turns=False)
    await movable(face, node="a", as_said=False)
    assert (await face.filter(make_tenant("third"), "a"))["NodeNames"] is None
    assert {claim.key for claim in face.ledger.claims()} == {"uid-first", "uid-second"}
    report = audit(
        nodes=[msgspec.convert(make_node("a"), Node)],
        gpunodes=[msgspec.convert(each, GPUNode) for each in api.objects["gpunodes"].values()],
        pods=[msgspec.convert(pod, Pod) for pod in api.objects["pods"].values()],
    )
    assert report.items == []
    assert [*report.notes] == [
        (
            "a/0: 40960 MiB are promised by turns, usable are 26214, and the node moves no tenant to the host now: "
            "default/first, default/second"
        )
    ]
