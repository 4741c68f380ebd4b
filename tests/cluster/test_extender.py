"""The extender behind the real kube-scheduler, seen through the API server and over its own port."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import aiohttp
import pytest

from dovetail import names
from dovetail.api.builtin import Event, Node, Pod
from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import EVENTS, GPUNODES, NODES, PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.pods.allocation import Allocation, allocation_in
from dovetail_sandbox import credential
from dovetail_sandbox.cluster import Cluster
from tests.cluster.killing import kill, paused

pytestmark = pytest.mark.cluster

T = TypeVar("T")
PATIENCE_SECONDS = 60
# No node has this model: kube-scheduler finds no node for such pods, and only the test binds them.
NO_NODE = "none"


class Scene:
    """Pods of one namespace, and the extender that decides them."""

    def __init__(self, client: Client, *, namespace: str, sandbox: Cluster) -> None:
        self.client = client
        self.namespace = namespace
        self.sandbox = sandbox

    async def create(
        self, name: str, gpu: str, *, milli: int, model: str = "", policy: str = "Balanced", **spec: Any
    ) -> Pod:
        """A pod that asks for devices; with `model`, of nodes that have it. `spec` goes into its spec."""
        body = {
            "metadata": {"name": name, "annotations": {names.REQUEST: gpu, names.POLICY: policy}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": {names.LABEL_MODEL: model} if model else {},
                "containers": [
                    {"name": "main", "image": "none", "resources": {"limits": {names.GPU_MILLI: str(milli)}}}
                ],
                **spec,
            },
        }
        return await self.client.create(PODS, body=body, as_type=Pod, namespace=self.namespace)

    async def shares(self, count: int, *, milli: int, **more: str) -> list[Pod]:
        """That many pods, each with a share of one device."""
        prefix = uuid.uuid4().hex[:4]
        asked = [self.create(f"{prefix}-{at}", f"{milli / 1000:g}", milli=milli, **more) for at in range(count)]
        return list(await asyncio.gather(*asked))

    async def bound(self, count: int) -> list[Allocation]:
        """The allocations of the namespace once that many pods are bound."""
        found = await until(self._allocations, lambda each: len(each) >= count)
        assert len(found) == count
        return found

    async def is_bound(self, name: str) -> Pod:
        """The pod once it is bound."""
        return await until(
            lambda: self.client.get(PODS, name=name, as_type=Pod, namespace=self.namespace),
            lambda pod: bool(pod.spec.node_name),
        )

    async def events(self, said: str) -> list[str]:
        """What kube-scheduler says of its failed attempts, once one of them says that."""
        return await until(self._failed_scheduling, lambda each: any(said in message for message in each))

    async def ask(self, verb: str, body: dict[str, Any]) -> Any:
        """The extender's own answer."""
        return await ask(self.sandbox, verb, body)

    async def bind(self, pod: Pod, node: str) -> str:
        """The error of the extender's answer; empty when the pod is bound."""
        meta = pod.metadata
        args = {"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": node}
        return str((await self.ask("bind", args))["Error"])

    async def clear(self) -> None:
        """All pods gone, so that the next test finds the devices free."""
        for pod in (await self.client.list(PODS, as_type=Pod, namespace=self.namespace)).items:
            await self.client.delete(PODS, name=pod.metadata.name, namespace=self.namespace, grace_period_seconds=0)

    async def _allocations(self) -> list[Allocation]:
        pods = (await self.client.list(PODS, as_type=Pod, namespace=self.namespace)).items
        found = [allocation_in(pod.metadata.annotations) for pod in pods if pod.spec.node_name]
        return [allocation for allocation in found if allocation is not None]

    async def _failed_scheduling(self) -> list[str]:
        listed = await self.client.list(EVENTS, as_type=Event, namespace=self.namespace)
        return [event.message for event in listed.items if event.reason == "FailedScheduling"]


async def ask(sandbox: Cluster, verb: str, body: dict[str, Any]) -> Any:
    """What the extender of the sandbox answers."""
    url = f"https://127.0.0.1:{sandbox.state().ports['extender.port']}/{verb}"
    async with aiohttp.ClientSession() as http, http.post(url, json=body, ssl=_tls(sandbox.credential)) as response:
        assert response.status == 200, await response.text()
        return await response.json()


# A hundred requests at once do not load the files a hundred times, which would take longer than a handshake may.
_tls = cache(credential.client_context)


async def refuses(sandbox: Cluster, node: str, *, gpu: str, milli: int, reason: str = "") -> None:
    """Return once the extender's own watch has brought it what keeps such a pod off the node."""
    resources = {"limits": {names.GPU_MILLI: str(milli)}}
    metadata = {"name": "probe", "namespace": "default", "uid": "probe", "annotations": {names.REQUEST: gpu}}
    probe = {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": resources}]}}
    question = {"Pod": probe, "Nodes": None, "NodeNames": [node]}

    def refused(answer: dict[str, Any]) -> bool:
        said = answer.get("FailedNodes", {}) | answer.get("FailedAndUnresolvableNodes", {})
        return node in said and reason in said[node]

    await until(lambda: ask(sandbox, "filter", question), refused)


async def until(read: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """What is read, once it is as it should be."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds(found := await read()):  # noqa: ASYNC110 - the API server is polled
            await asyncio.sleep(0.1)
    return found


def shares_by_device(allocations: Sequence[Allocation]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for allocation in allocations:
        sums.update({device.uuid: device.share_milli for device in allocation.devices})
    return sums


@pytest.fixture
async def scene(client: Client, namespace: str, sandbox: Cluster) -> Any:
    scene = Scene(client, namespace=namespace, sandbox=sandbox)
    yield scene
    await scene.clear()


async def test_a_bound_pod_carries_its_devices_in_annotations(scene: Scene) -> None:
    await scene.create("two", "2(V100)", milli=2000)
    allocation = (await scene.bound(1))[0]
    pod = await scene.client.get(PODS, name="two", as_type=Pod, namespace=scene.namespace)
    assert pod.spec.node_name == allocation.node
    assert allocation.node.startswith("v100-")
    uuids = [device.uuid for device in allocation.devices]
    assert len(set(uuids)) == 2
    assert pod.metadata.annotations[names.per_container(names.VISIBLE_DEVICES, index=0)] == ",".join(uuids)


async def test_four_quarters_share_one_device(scene: Scene) -> None:
    """Two nodes have a device 1; where else quarters would go is the policy's to say."""
    for at in range(8):
        await scene.create(f"quarter-{at}", "0.25@cuda:1", milli=250, model="V100")
    allocations = await scene.bound(8)
    assert sorted(shares_by_device(allocations).values()) == [1000, 1000]


async def test_a_model_that_no_node_has_is_told_in_the_event(scene: Scene) -> None:
    await scene.create("wrong", "1(H100)", milli=1000)
    assert any("no GPU of model H100" in message for message in await scene.events("no GPU of model H100"))


async def test_a_request_that_its_resources_contradict_is_refused(scene: Scene) -> None:
    with pytest.raises(KubeError, match=r"dovetail\.dev/gpu-milli"):
        await scene.create("contradiction", "2", milli=1000)


async def test_what_no_single_device_has_left_waits_until_a_share_goes(scene: Scene) -> None:
    """The sums of kube-scheduler would let it in; only the extender knows the devices."""
    await scene.shares(4, milli=600, model="T4")
    await scene.bound(4)
    await scene.create("late", "0.5", milli=500, model="T4")
    await scene.events("no GPU has a share of 0.5 left")
    first = (await scene.client.list(PODS, as_type=Pod, namespace=scene.namespace)).items[0]
    await scene.client.delete(PODS, name=first.metadata.name, namespace=scene.namespace, grace_period_seconds=0)
    await scene.is_bound("late")


async def test_a_device_that_is_not_cordoned_any_more_wakes_a_waiting_pod(scene: Scene) -> None:
    """kube-scheduler does not watch GPUNodes; unwoken, the pod would wait for minutes."""
    listed = await until(
        lambda: scene.client.list(GPUNODES, as_type=GPUNode),
        lambda listed: any(each.metadata.name == "a100-0" for each in listed.items),
    )
    (found,) = [each for each in listed.items if each.metadata.name == "a100-0"]
    cordoned = [found.status.devices[0].uuid]
    await scene.client.patch(GPUNODES, name="a100-0", patch={"spec": {"cordoned": cordoned}}, as_type=GPUNode)
    try:
        await refuses(scene.sandbox, "a100-0", gpu="2(A100)", milli=2000, reason="not cordoned")
        await scene.create("late", "2(A100)", milli=2000)
        await scene.events("fewer than 2 GPUs not cordoned")
    finally:
        await scene.client.patch(GPUNODES, name="a100-0", patch={"spec": {"cordoned": []}}, as_type=GPUNode)
    await scene.is_bound("late")


async def test_a_hold_that_goes_wakes_a_waiting_pod(scene: Scene) -> None:
    await scene.create("holder", "2(A100)", milli=2000, model=NO_NODE)
    body = await scene.client.get(PODS, name="holder", as_type=dict[str, Any], namespace=scene.namespace)
    await scene.ask("prioritize", {"Pod": body, "Nodes": None, "NodeNames": ["a100-0"]})
    await scene.create("late", "2(A100)", milli=2000)
    await scene.events("GPUs are held for other pods")
    await scene.client.delete(PODS, name="holder", namespace=scene.namespace, grace_period_seconds=0)
    await scene.is_bound("late")


async def test_a_hold_that_ends_by_itself_wakes_a_waiting_pod(scene: Scene) -> None:
    """No object changes when a hold's time is over."""
    await scene.create("holder", "2(A100)", milli=2000, model=NO_NODE)
    body = await scene.client.get(PODS, name="holder", as_type=dict[str, Any], namespace=scene.namespace)
    await scene.ask("prioritize", {"Pod": body, "Nodes": None, "NodeNames": ["a100-0"]})
    await scene.create("late", "2(A100)", milli=2000)
    await scene.events("GPUs are held for other pods")
    await scene.is_bound("late")


@pytest.mark.parametrize(
    ("annotation", "said", "reason"),
    [
        pytest.param(names.SIMULATED_FAULTS, '{"0": "XID79FellOffTheBus"}', "fewer than 1 GPU healthy", id="device"),
        pytest.param(names.SIMULATED_STRANGERS, '{"0": {"memoryMiB": 40000}}', "no GPU has the memory", id="stranger"),
    ],
)
async def test_a_device_that_is_well_again_or_left_by_a_stranger_wakes_a_waiting_pod(
    scene: Scene, annotation: str, said: str, reason: str
) -> None:
    """Only the agent's report says so."""

    async def annotate(value: str | None) -> None:
        change = {"metadata": {"annotations": {annotation: value}}}
        await scene.client.patch(NODES, name="a100-0", patch=change, as_type=Node)

    await annotate(said)
    try:
        await until(lambda: scene.client.get(GPUNODES, name="a100-0", as_type=GPUNode), _is_troubled)
        await refuses(scene.sandbox, "a100-0", gpu="1(A100)@cuda:0", milli=1000, reason=reason)
        await scene.create("late", "1(A100)@cuda:0", milli=1000)
        await scene.events(reason)
    finally:
        await annotate(None)
    await scene.is_bound("late")


def _is_troubled(gpunode: GPUNode) -> bool:
    return any(device.health == "Unhealthy" or device.foreign_mib for device in gpunode.status.devices)


async def test_a_burst_fills_the_devices_and_not_more(scene: Scene) -> None:
    """12 devices of 16 GiB or 32 GiB take three shares of 0.3 each; what is over waits."""
    await scene.shares(40, milli=300)
    allocations = await until(scene._allocations, lambda each: len(each) >= 40)
    assert max(shares_by_device(allocations).values()) == 900


async def test_fifty_binds_at_once_each_asked_twice_never_promise_a_share_twice(scene: Scene) -> None:
    pods = await scene.shares(50, milli=300, model=NO_NODE)
    errors = await asyncio.gather(*(scene.bind(pod, "a100-0") for pod in pods for _ in range(2)))
    assert errors[::2].count("") == errors[1::2].count("") == 6
    assert sorted(shares_by_device(await scene.bound(6)).values()) == [900, 900]


@pytest.mark.parametrize("wish", ["t4-0", "t4-1"])
async def test_among_nodes_that_are_equal_to_us_the_pod_s_own_preference_decides(scene: Scene, wish: str) -> None:
    """With PACK, which does not mind how warm the devices still are after what was there before."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [wish]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    affinity = {"nodeAffinity": preferred}
    await scene.create("wishful", "0.5", milli=500, model="T4", policy="Pack", affinity=affinity)
    assert (await scene.bound(1))[0].node == wish


async def test_a_pod_that_was_deleted_before_bind_frees_its_hold(scene: Scene) -> None:
    pod = await scene.create("held", "2", milli=2000, model=NO_NODE)
    body = await scene.client.get(PODS, name="held", as_type=dict[str, Any], namespace=scene.namespace)
    other = {**body, "metadata": {**body["metadata"], "uid": str(uuid.uuid4())}}
    asked = {"Nodes": None, "NodeNames": ["a100-0"]}
    await scene.ask("prioritize", {"Pod": body, **asked})
    held = await scene.ask("filter", {"Pod": other, **asked})
    assert held["FailedNodes"] == {"a100-0": "GPUs are held for other pods"}
    await scene.client.delete(PODS, name="held", namespace=scene.namespace, grace_period_seconds=0)
    await until(lambda: scene.ask("filter", {"Pod": other, **asked}), lambda answer: answer["NodeNames"] == ["a100-0"])
    assert await scene.bind(pod, "a100-0") == "the pod was deleted"


async def test_while_the_extender_is_down_pods_wait_and_go_on_when_it_is_back(scene: Scene) -> None:
    before = await scene.shares(3, milli=400)
    await scene.bound(3)
    await asyncio.to_thread(scene.sandbox.stop, "extender")
    try:
        await scene.shares(5, milli=400)
        await scene.events("connection refused")
        assert len(await scene._allocations()) == len(before)
    finally:
        await asyncio.to_thread(scene.sandbox.start, "extender")
    assert max(shares_by_device(await scene.bound(8)).values()) <= 1000


async def test_a_restart_between_hold_and_bind_promises_nothing_twice(scene: Scene) -> None:
    """The extender forgets the holds: the first bind gets the devices, and no other pod gets the same ones."""
    pods = await scene.shares(3, milli=600, model=NO_NODE)
    for pod in pods[:2]:
        body = await scene.client.get(PODS, name=pod.metadata.name, as_type=dict[str, Any], namespace=scene.namespace)
        await scene.ask("prioritize", {"Pod": body, "Nodes": None, "NodeNames": ["t4-0"]})
    assert "held" in await scene.bind(pods[2], "t4-0")
    await asyncio.to_thread(scene.sandbox.restart, "extender")
    errors = await asyncio.gather(*(scene.bind(pod, "t4-0") for pod in pods))
    assert errors.count("") == 2
    assert sorted(shares_by_device(await scene.bound(2)).values()) == [600, 600]


async def test_a_killed_extender_forgets_no_bound_pod_and_loses_no_waiting_one(scene: Scene) -> None:
    await scene.shares(12, milli=300)
    await until(scene._allocations, lambda each: len(each) >= 3)
    await kill(scene.sandbox, "extender")
    await scene.shares(12, milli=300)
    assert max(shares_by_device(await scene.bound(24)).values()) <= 1000


async def test_while_the_api_server_hangs_filter_answers_and_bind_fails_by_its_deadline(scene: Scene) -> None:
    pod = await scene.create("unlucky", "1", milli=1000, model=NO_NODE)
    body = await scene.client.get(PODS, name="unlucky", as_type=dict[str, Any], namespace=scene.namespace)
    async with paused(scene.sandbox.pid("kube-apiserver")), asyncio.timeout(PATIENCE_SECONDS):
        bind = asyncio.create_task(scene.bind(pod, "a100-0"))
        answer = await scene.ask("filter", {"Pod": body, "Nodes": None, "NodeNames": ["v100-0"]})
        assert answer["NodeNames"] == ["v100-0"] or answer["FailedNodes"]
        assert "no answer within" in await bind
    # Whether the write happened or not, the same bind is safe, and then it is known.
    assert await until(lambda: scene.bind(pod, "a100-0"), lambda error: not error) == ""
    await scene.bound(1)
