"""A managed node that a DRA driver serves too takes no new work, over HTTP; what runs there stays."""

from typing import Any

import pytest

from dovetail.cluster.dra_drivers import ABSENT_SECONDS
from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_pod
from tests.extender.harness import Face, watching

SENTENCE = "both Dovetail and the DRA driver gpu.nvidia.com hand out the node's GPUs"


def make_slice(name: str = "s", *, driver: str = "gpu.nvidia.com", node: str = "a") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"driver": driver, "nodeName": node}}


@pytest.fixture
async def face(api: ApiServer) -> Any:
    async with watching(api) as face:
        await face.ready()
        yield face


def closed(face: Face) -> bool:
    return bool(face.ledger.obstacle("a"))


async def test_a_slice_closes_the_node_for_new_pods_and_for_binds_that_were_decided(api: ApiServer, face: Face) -> None:
    decided, running = make_pod("decided"), make_pod("running")
    for pod in (decided, running):
        api.put("pods", pod)
        await face.sees(f"default/{pod['metadata']['name']}")
        assert (await face.filter(pod, "a"))["NodeNames"] == ["a"]
    assert await face.bind(running, "a") == ""
    api.put("resourceslices", make_slice())
    await eventually(lambda: closed(face))
    assert (await face.filter(make_pod("new"), "a", "b"))["NodeNames"] == ["b"]
    assert (await face.filter(make_pod("new"), "a"))["FailedAndUnresolvableNodes"] == {"a": SENTENCE}
    assert SENTENCE in await face.bind(decided, "a")
    assert face.ledger.claim("uid-running") is not None


async def test_a_start_lists_the_slices_before_it_answers(api: ApiServer) -> None:
    api.put("resourceslices", make_slice())
    async with watching(api) as face:
        await face.ready()
        assert closed(face)


async def test_a_minute_after_the_slice_has_gone_the_node_takes_pods_again(api: ApiServer, face: Face) -> None:
    api.put("resourceslices", make_slice())
    await eventually(lambda: closed(face))
    api.delete("resourceslices", "s")
    # By the same watch: once it is seen, so is the deletion before it.
    api.put("resourceslices", make_slice("later", node="b"))
    await eventually(lambda: bool(face.ledger.obstacle("b")))
    face.clock.now += ABSENT_SECONDS - 1
    face.extender.background.let_time_pass()
    assert closed(face)
    face.clock.now += 1
    face.extender.background.let_time_pass()
    assert (await face.filter(make_pod(), "a"))["NodeNames"] == ["a"]


async def test_channels_between_nodes_close_nothing(api: ApiServer, face: Face) -> None:
    api.put("resourceslices", make_slice("channels", driver="compute-domain.nvidia.com"))
    api.put("resourceslices", make_slice("gpus", node="b"))
    await eventually(lambda: bool(face.ledger.obstacle("b")))
    assert (await face.filter(make_pod(), "a"))["NodeNames"] == ["a"]
