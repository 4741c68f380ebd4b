"""Why a pod waits for GPUs, where kube-scheduler only names a sum, on a scripted API server."""

import asyncio
import random
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.resources import PODS
from dovetail.kube.client import Client
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.watchers.waiting_pods import WaitingPods
from tests.background import running
from tests.core.kube.api import Answer, Api
from tests.operator_.builders import make_state

LIST = "GET /api/v1/namespaces/team/pods"
NVIDIA = "nvidia.com/gpu"
Manifest = dict[str, Any]


def make_pod(
    name: str = "p", *, gpus: int = 16, resource: str = names.GPU_MILLI, message: str | None = None, **spec: Any
) -> Manifest:
    """A pod that kube-scheduler has refused for a resource."""
    ours = resource == names.GPU_MILLI
    amount = str(gpus * 1000 if ours else gpus)
    said = f"0/2 nodes are available: 2 Insufficient {resource}." if message is None else message
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    main = {"name": "main", "resources": {"limits": {resource: amount}, "requests": {resource: amount}}}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "3"},
        "spec": {"schedulerName": "dovetail" if ours else "default-scheduler", "containers": [main], **spec},
        "status": {"phase": "Pending", "conditions": [condition]},
    }


class Rig:
    """A cluster with two managed nodes of two GPUs each."""

    def __init__(self, api: Api, client: Client, *, managed: bool = True) -> None:
        self.api = api
        self.events: asyncio.Queue[Announcement] = asyncio.Queue()
        state = make_state(a=2, b=2)
        labels = {names.LABEL_MANAGED: "true"} if managed else {}
        node = msgspec.convert({"metadata": {"name": "a", "labels": labels}}, Node)
        self.watcher = WaitingPods(
            client, state=state, nodes={"a": node}, post=self.events.put_nowait, rng=random.Random(7)
        )

    def changed(self, pod: Manifest, *, type_: Any = "MODIFIED") -> None:
        self.watcher.pod_event(type_, msgspec.convert(pod, Pod, strict=False))

    def stored(self, *pods: Manifest) -> None:
        self.api.answer(LIST, *(Answer(body={"metadata": {"resourceVersion": "5"}, "items": [pod]}) for pod in pods))


@pytest.fixture
def rig(api: Api, client: Client) -> Rig:
    return Rig(api, client)


async def test_what_no_node_has_is_said_in_gpus(rig: Rig) -> None:
    rig.stored(make_pod())
    rig.changed(make_pod())
    async with running(rig.watcher.run()):
        told = await rig.events.get()
    assert (told.severity, told.reason, told.of, told.about.name) == ("Warning", "ExceedsCapacity", PODS, "p")
    assert told.message.startswith("Need 16 GPUs, only 2 available on one node")


async def test_nodes_that_the_pod_may_not_use_have_no_gpu_for_it(rig: Rig) -> None:
    pod = make_pod(gpus=1, nodeSelector={"zone": "none"})
    rig.stored(pod)
    rig.changed(pod)
    async with running(rig.watcher.run()):
        assert (await rig.events.get()).reason == "ExceedsCapacity"


async def test_it_is_said_once(rig: Rig) -> None:
    other = make_pod("q")
    rig.stored(make_pod(), other)
    rig.changed(make_pod())
    async with running(rig.watcher.run()):
        await rig.events.get()
        rig.changed(make_pod())
        rig.changed(other)
        assert (await rig.events.get()).about.name == "q"
    assert len(rig.api.of(LIST)) == 2


async def test_a_successor_with_its_name_is_told_again(rig: Rig) -> None:
    rig.stored(make_pod(), make_pod())
    async with running(rig.watcher.run()):
        rig.changed(make_pod())
        await rig.events.get()
        rig.changed(make_pod(), type_="DELETED")
        rig.changed(make_pod())
        assert (await rig.events.get()).about.name == "p"


async def test_one_that_never_asked_dovetail_reads_how_to(rig: Rig) -> None:
    pod = make_pod(gpus=2, resource=NVIDIA)
    rig.stored(pod)
    rig.changed(pod)
    async with running(rig.watcher.run()):
        told = await rig.events.get()
    assert told.reason == "NotAskedOfDovetail"
    assert f"kubectl label namespace team {names.TRANSLATE}=true" in told.message
    assert f'{names.REQUEST}.main: "2"' in told.message


@pytest.mark.parametrize("resource", ["nvidia.com/gpumem", "volcano.sh/vgpu-memory"])
async def test_one_that_waits_for_a_part_in_another_system_s_words_reads_how_to(rig: Rig, resource: str) -> None:
    pod = make_pod(gpus=3000, resource=resource)
    rig.stored(pod)
    rig.changed(pod)
    async with running(rig.watcher.run()):
        told = await rig.events.get()
    assert told.reason == "NotAskedOfDovetail"
    assert f"It asks {resource}: 3000" in told.message
    assert f'{names.REQUEST}.main: "3000M,1" and {names.MODE}: "TimeShared"' in told.message


async def test_where_dovetail_manages_no_node_it_says_nothing_of_others_pods(api: Api, client: Client) -> None:
    rig = Rig(api, client, managed=False)
    foreign, ours = make_pod("foreign", resource=NVIDIA), make_pod("ours")
    rig.stored(foreign, ours)
    async with running(rig.watcher.run()):
        rig.changed(foreign)
        await api.until(LIST, count=1)
        rig.changed(ours)
        assert (await rig.events.get()).about.name == "ours"


@pytest.mark.parametrize(
    "pod",
    [
        make_pod(message="0/2 nodes are available: 2 Insufficient cpu."),
        make_pod(nodeName="a"),
        {**make_pod(), "status": {"phase": "Pending"}},
    ],
)
async def test_others_are_not_even_read(rig: Rig, pod: Manifest) -> None:
    rig.stored(make_pod("q"))
    rig.changed(pod)
    rig.changed(make_pod("q"))
    async with running(rig.watcher.run()):
        assert (await rig.events.get()).about.name == "q"
    assert len(rig.api.of(LIST)) == 1


@pytest.mark.parametrize(
    "stored",
    [
        # It was placed meanwhile, or fits now, or its request cannot be read.
        {**make_pod(), "status": {"phase": "Running"}},
        make_pod(gpus=1),
        {**make_pod(), "metadata": {"name": "p", "namespace": "team", "annotations": {names.REQUEST: "no"}}},
        {**make_pod(), "metadata": {"name": "p", "namespace": "team", "annotations": 7}},
    ],
)
async def test_one_that_waits_no_longer_for_that_is_told_nothing(rig: Rig, stored: Manifest) -> None:
    rig.stored(stored, make_pod("q"))
    async with running(rig.watcher.run()):
        rig.changed(make_pod())
        await rig.api.until(LIST, count=1)
        rig.changed(make_pod("q"))
        assert (await rig.events.get()).about.name == "q"


async def test_one_that_is_gone_is_told_nothing(rig: Rig) -> None:
    empty = Answer(body={"metadata": {"resourceVersion": "5"}, "items": []})
    rig.api.answer(LIST, empty, Answer(body={"metadata": {"resourceVersion": "5"}, "items": [make_pod("q")]}))
    async with running(rig.watcher.run()):
        rig.changed(make_pod())
        await rig.api.until(LIST, count=1)
        rig.changed(make_pod("q"))
        assert (await rig.events.get()).about.name == "q"
