"""Pods as other programs write them, with `nvidia.com/gpu: N`; quotas, limits and taints that name a vendor."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import EVENTS, NODES, PODS, RESOURCEQUOTAS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, NotFound
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster.tenants import new_namespace
from tests.cluster.test_chart import run

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 60
LIMITRANGES = Resource(plural="limitranges", kind="LimitRange")
NVIDIA = "nvidia.com/gpu"
Manifest = dict[str, Any]


@pytest.fixture
async def translating(client: Client) -> AsyncIterator[str]:
    """A namespace that opts in."""
    async with new_namespace(client, prefix="test", labels={names.TRANSLATE: "true"}) as name:
        yield name


def make_pod(name: str, *containers: Manifest, annotations: Manifest | None = None, **spec: Any) -> Manifest:
    return {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"image": "none", **each} for each in containers],
            **spec,
        },
    }


def asking(name: str, *, gpus: int) -> Manifest:
    return {"name": name, "resources": {"limits": {NVIDIA: str(gpus)}}}


async def create(client: Client, pod: Manifest, *, namespace: str) -> Pod:
    return await client.create(PODS, body=pod, as_type=Pod, namespace=namespace)


async def until(found: Callable[[], Awaitable[Any]], *, what: str) -> Any:
    """What `found` returns, once it is neither None nor empty."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if result := await found():
                    return result
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"not within {PATIENCE_SECONDS} s: {what}")


async def bound(client: Client, *, namespace: str, name: str) -> Pod:
    async def placed() -> Pod | None:
        pod = await client.get(PODS, name=name, as_type=Pod, namespace=namespace)
        return pod if pod.spec.node_name else None

    return await until(placed, what=f"pod {name} is bound")


async def told(client: Client, *, namespace: str, name: str, reason: str) -> str:
    """The message of the event with this reason about the pod."""

    async def message() -> str | None:
        page = await client.list(
            EVENTS, as_type=Manifest, namespace=namespace, field_selector=f"involvedObject.name={name},reason={reason}"
        )
        return next((each["message"] for each in page.items), None)

    return await until(message, what=f"an event {reason} about pod {name}")


async def test_a_plain_request_starts_on_a_managed_node_of_a_namespace_that_opts_in(
    client: Client, translating: str
) -> None:
    await create(client, make_pod("argo", {"name": "wait"}, asking("main", gpus=2)), namespace=translating)
    pod = await bound(client, namespace=translating, name="argo")
    allocation = allocation_in(pod.metadata.annotations)
    assert allocation is not None
    assert [(each.index, len(each.devices)) for each in allocation.containers] == [(1, 2)]
    wait, main = pod.spec.containers
    assert [each.value for each in wait.env if each.name == names.ENV_VISIBLE_DEVICES] == [names.NO_DEVICES]
    assert NVIDIA not in main.resources.limits


async def test_elsewhere_an_event_names_the_cure_and_the_webhook_is_not_asked(client: Client, namespace: str) -> None:
    pod = await create(client, make_pod("plain", asking("main", gpus=1)), namespace=namespace)
    assert pod.spec.containers[0].resources.limits[NVIDIA] == "1"
    message = await told(client, namespace=namespace, name="plain", reason="NotAskedOfDovetail")
    assert f"kubectl label namespace {namespace} {names.TRANSLATE}=true" in message
    assert f'{names.REQUEST}.main: "1"' in message


async def test_what_no_node_has_is_said_in_gpus_and_not_in_thousandths(client: Client, translating: str) -> None:
    await create(client, make_pod("big", asking("main", gpus=16)), namespace=translating)
    message = await told(client, namespace=translating, name="big", reason="ExceedsCapacity")
    assert message.startswith("Need 16 GPUs, only 4 available on one node")


async def test_the_taint_of_gpu_nodes_keeps_no_pod_with_gpus_away(client: Client, translating: str) -> None:
    taint = {"key": NVIDIA, "value": "present", "effect": "NoSchedule"}
    node = await client.get(NODES, name="a100-0", as_type=Manifest)
    others = [each for each in node["spec"].get("taints") or [] if each["key"] != NVIDIA]
    await client.patch(NODES, name="a100-0", patch={"spec": {"taints": [*others, taint]}}, as_type=Manifest)
    try:
        pod = make_pod("tainted", {"name": "main"}, annotations={names.REQUEST: "1(A100)"})
        await create(client, pod, namespace=translating)
        found = await bound(client, namespace=translating, name="tainted")
    finally:
        await client.patch(NODES, name="a100-0", patch={"spec": {"taints": others}}, as_type=Manifest)
    assert found.spec.node_name == "a100-0"


async def test_a_copy_of_a_bound_pod_gets_devices_of_its_own(client: Client, namespace: str, sandbox: Cluster) -> None:
    await create(client, make_pod("main", {"name": "main"}, annotations={names.REQUEST: "8G,0.5"}), namespace=namespace)
    first = await bound(client, namespace=namespace, name="main")
    where = (f"--kubeconfig={sandbox.kubeconfig}", f"--namespace={namespace}")
    copying = ("debug", "main", "--copy-to=copy", "--container=main", "--image=none")
    done = await asyncio.to_thread(run, "kubectl", *where, *copying)
    assert done.returncode == 0, done.stderr
    second = await bound(client, namespace=namespace, name="copy")
    restored = await client.get(PODS, name="main", as_type=Manifest, namespace=namespace)
    restored["metadata"] = {"name": "restored", "annotations": restored["metadata"]["annotations"]}
    del restored["status"], restored["spec"]["nodeName"]
    await create(client, restored, namespace=namespace)
    third = await bound(client, namespace=namespace, name="restored")
    allocations = [allocation_in(pod.metadata.annotations) for pod in (first, second, third)]
    assert all(each is not None and each.containers for each in allocations)


async def test_a_forged_allocation_on_a_pod_that_asks_nothing_is_still_refused(client: Client, namespace: str) -> None:
    forged = make_pod("forged", {"name": "main"}, annotations={names.ALLOCATION: json.dumps({"node": "v100-0"})})
    with pytest.raises(KubeError, match="is written by Dovetail's extender"):
        await create(client, forged, namespace=namespace)


async def test_a_default_of_a_limit_range_is_no_request(client: Client, translating: str) -> None:
    one = {NVIDIA: "1"}
    limits = {"limits": [{"type": "Container", "default": one, "defaultRequest": one}]}
    body = {"metadata": {"name": "gpus"}, "spec": limits}
    await client.create(LIMITRANGES, body=body, as_type=Manifest, namespace=translating)
    pod = make_pod("asks", {"name": "main"}, annotations={names.REQUEST: "0.5"})
    await create(client, pod, namespace=translating)
    await create(client, make_pod("two", {"name": "proxy"}, asking("main", gpus=1)), namespace=translating)
    for name, amount in (("asks", 500), ("two", 1000)):
        found = await bound(client, namespace=translating, name=name)
        allocation = allocation_in(found.metadata.annotations)
        assert allocation is not None
        assert [device.share_milli for each in allocation.containers for device in each.devices] == [amount]


async def test_a_quota_on_the_vendor_s_gpus_counts_those_of_dovetail(client: Client, namespace: str) -> None:
    async def hard(name: str) -> Manifest | None:
        with suppress(NotFound):
            found = await client.get(RESOURCEQUOTAS, name=name, as_type=Manifest, namespace=namespace)
            counted: Manifest = (found.get("status") or {}).get("hard") or {}
            return counted
        return None

    body = {"metadata": {"name": "gpus"}, "spec": {"hard": {f"requests.{NVIDIA}": "1"}}}
    await client.create(RESOURCEQUOTAS, body=body, as_type=Manifest, namespace=namespace)
    await until(lambda: hard("dovetail-gpus"), what="a companion")
    with pytest.raises(
        KubeError, match=r"exceeded quota: dovetail-gpus, requested: requests.dovetail.dev/gpu-milli=4k"
    ):
        await create(
            client, make_pod("four", {"name": "main"}, annotations={names.REQUEST: "4(V100)"}), namespace=namespace
        )
    for name in ("half", "other"):
        await create(client, make_pod(name, {"name": "main"}, annotations={names.REQUEST: "0.5"}), namespace=namespace)
    with pytest.raises(KubeError, match="exceeded quota: dovetail-gpus"):
        await create(
            client, make_pod("third", {"name": "main"}, annotations={names.REQUEST: "0.5"}), namespace=namespace
        )

    patch = {"spec": {"hard": {f"requests.{NVIDIA}": "2"}}}
    await client.patch(RESOURCEQUOTAS, name="gpus", patch=patch, as_type=Manifest, namespace=namespace)

    async def raised() -> bool:
        return (await hard("dovetail-gpus") or {}).get(f"requests.{names.GPU_MILLI}") == "2k"

    await until(raised, what="the limit follows")
    # One whose limits somebody removed is there again.
    await client.delete(RESOURCEQUOTAS, name="dovetail-gpus", namespace=namespace)
    await until(lambda: hard("dovetail-gpus"), what="a companion again")
    other = {"spec": {"hard": {f"requests.{NVIDIA}": None, "pods": "9"}}}
    await client.patch(RESOURCEQUOTAS, name="gpus", patch=other, as_type=Manifest, namespace=namespace)

    async def gone() -> bool:
        return await hard("dovetail-gpus") is None

    await until(gone, what="it goes with the limit")
    await client.patch(RESOURCEQUOTAS, name="gpus", patch=patch, as_type=Manifest, namespace=namespace)
    await until(lambda: hard("dovetail-gpus"), what="a companion once more")
    await client.delete(RESOURCEQUOTAS, name="gpus", namespace=namespace)
    await until(gone, what="it goes with its owner")


async def test_managed_nodes_carry_the_labels_that_programs_read(client: Client) -> None:
    labels = (await client.get(NODES, name="v100-0", as_type=Manifest))["metadata"]["labels"]
    assert (labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.memory"]) == ("4", "32768")
    assert "V100" in labels["nvidia.com/gpu.product"]
