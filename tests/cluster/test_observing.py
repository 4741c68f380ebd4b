"""Next to a plain kube-scheduler and a played device plugin: what a look says, and that nothing foreign is written."""

import asyncio
import json
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dovetail.answers.observe import Observation
from dovetail.api.builtin import Node, Pod
from dovetail.api.resources import (
    CLUSTERROLEBINDINGS,
    GPUNODES,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCEQUOTAS,
    SERVICEACCOUNTS,
    Resource,
)
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, KubeError, NotFound
from dovetail_cli.cluster.connection import Cluster as Connected
from dovetail_cli.observe.look import look, report
from dovetail_sandbox.cluster import Cluster
from tests.cluster.accounts import connection_of
from tests.cluster.sandboxes import sandbox_with

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]
ROOT: Final = Path(__file__).parents[2]
PRESET: Final = ROOT / "helm" / "dovetail" / "presets" / "observe.yaml"
RELEASE: Final = "dovetail-system"
GPU: Final = "nvidia.com/gpu"
CLUSTER_ROLES: Final = Resource(
    group="rbac.authorization.k8s.io", plural="clusterroles", kind="ClusterRole", namespaced=False
)
NODE_SET: Final = """
- {name: a100, count: 3, model: A100, devices: 8, memory_mib: 81920, cpu: 96, memory: 768Gi, resource: nvidia.com/gpu}
- {name: t4, count: 2, model: T4, devices: 4, memory_mib: 16384, cpu: 16, memory: 128Gi, resource: nvidia.com/gpu}
- {name: cpu, count: 1, cpu: 64, memory: 256Gi}
"""
TAINT: Final = {"key": "dedicated", "value": "serving", "effect": "NoSchedule"}
TOLERATION: Final = {"key": "dedicated", "operator": "Exists"}
PATIENCE_SECONDS: Final = 60
# What the API server answers and does not store.
REVIEWS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
READS: Final = frozenset({"get", "list", "watch"})


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A sandbox with the preset: one agent plays those of all nodes, and kube-scheduler alone places pods."""
    nodes = tmp_path_factory.mktemp("observing") / "nodes.yaml"
    nodes.write_text(NODE_SET, encoding="utf-8")
    # The programs of a sandbox have accounts in one namespace.
    options: Manifest = {"values_file": PRESET, "overrides": ["agent.namespace="], "request_log": True}
    with sandbox_with(nodes_file=nodes, **options) as found:
        yield found


@pytest.fixture
async def observer(client: Client, sandbox: Cluster) -> AsyncIterator[Connected]:
    """The account of examples/observe.yaml, in the namespace whose accounts the API server's record is of."""
    kinds = {"ServiceAccount": SERVICEACCOUNTS, "ClusterRole": CLUSTER_ROLES, "ClusterRoleBinding": CLUSTERROLEBINDINGS}
    text = (
        (ROOT / "examples" / "observe.yaml")
        .read_text(encoding="utf-8")
        .replace("namespace: default", f"namespace: {RELEASE}")
    )
    for manifest in yaml.safe_load_all(text):
        try:
            await client.create(
                kinds[manifest["kind"]],
                body=manifest,
                as_type=Manifest,
                namespace=manifest["metadata"].get("namespace"),
            )
        except AlreadyExists:
            continue
    connection = await connection_of("dovetail-observer", client, namespace=RELEASE, sandbox=sandbox)
    async with Client(connection) as account:
        await _until("the observer's rights count", lambda: _may_list(account))
        yield Connected(client=account, namespace=RELEASE)


async def _may_list(account: Client) -> bool:
    try:
        await account.list(NODES, as_type=Node)
        await account.list(PODS, as_type=Pod)
    except KubeError:
        return False
    return True


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace of its own; its pods leave before the next test."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, body={"metadata": {"name": name}}, as_type=Manifest)
    await _until(name, lambda: _account_of(client, name))
    yield name
    for job in (await client.list(JOBS, as_type=Manifest, namespace=name)).items:
        await client.delete(JOBS, name=job["metadata"]["name"], namespace=name, propagation="Background")
    for pod in (await client.list(PODS, as_type=Pod, namespace=name)).items:
        with suppress(NotFound):
            await client.delete(PODS, name=pod.metadata.name, namespace=name)
    await _until(name, lambda: _gone(client, name))


async def _account_of(client: Client, namespace: str) -> bool:
    return bool((await client.list(SERVICEACCOUNTS, as_type=Manifest, namespace=namespace)).items)


async def _gone(client: Client, namespace: str) -> bool:
    return not (await client.list(PODS, as_type=Pod, namespace=namespace)).items


async def _until(what: str, holds: Callable[[], Any], *, seconds: float = PATIENCE_SECONDS) -> None:
    limit = time.monotonic() + seconds
    while not await holds():
        assert time.monotonic() < limit, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.1)


async def create(client: Client, name: str, *, namespace: str, gpus: int, cpu: int = 1, **spec: Any) -> None:
    body = {"metadata": {"name": name}, "spec": pod_spec(gpus=gpus, cpu=cpu, **spec)}
    await client.create(PODS, body=body, as_type=Pod, namespace=namespace)


def pod_spec(*, gpus: int, cpu: int, **spec: Any) -> Manifest:
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": {"cpu": str(cpu), "memory": "1Gi"}, "limits": {GPU: str(gpus)}},
    }
    return {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}


async def run_job(client: Client, name: str, *, namespace: str, gpus: int, cpu: int, seconds: int) -> None:
    """A Job of one pod, which the sandbox ends after some seconds."""
    template = {
        "metadata": {"annotations": {"sandbox.dovetail.dev/run-seconds": str(seconds)}},
        "spec": pod_spec(gpus=gpus, cpu=cpu, restartPolicy="Never"),
    }
    await client.create(
        JOBS, body={"metadata": {"name": name}, "spec": {"template": template}}, as_type=Manifest, namespace=namespace
    )


async def settled(client: Client, *, namespace: str) -> list[Pod]:
    """The pods, once kube-scheduler has bound each or said that it cannot."""

    async def each_is() -> bool:
        pods = (await client.list(PODS, as_type=Pod, namespace=namespace)).items
        return all(pod.spec.node_name or _refused(pod) for pod in pods)

    await _until("kube-scheduler's verdicts", each_is)
    return (await client.list(PODS, as_type=Pod, namespace=namespace)).items


def _refused(pod: Pod) -> bool:
    return any(each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions)


async def patch_node(client: Client, name: str, **spec: Any) -> None:
    await client.patch(NODES, name=name, patch={"spec": spec}, as_type=Node)


@pytest.fixture
async def restricted(client: Client) -> AsyncIterator[None]:
    """One node with a taint, and one cordoned."""
    await patch_node(client, "t4-1", taints=[TAINT])
    await patch_node(client, "a100-2", unschedulable=True)
    yield
    await patch_node(client, "t4-1", taints=[])
    await patch_node(client, "a100-2", unschedulable=False)


@pytest.mark.usefixtures("restricted")
async def test_kube_scheduler_and_the_look_agree_on_what_has_room(
    client: Client, observer: Connected, namespace: str
) -> None:
    draw = random.Random(35)
    for at in range(40):
        more: Manifest = {}
        if draw.random() < 0.2:
            more["tolerations"] = [TOLERATION]
        if draw.random() < 0.2:
            more["nodeSelector"] = {"kubernetes.io/hostname": draw.choice(["t4-0", "t4-1", "a100-2", "nowhere"])}
        gpus, cpu = draw.choice([1, 1, 2, 4, 8, 16]), draw.choice([1, 2, 8, 60])
        await create(client, f"p{at}", namespace=namespace, gpus=gpus, cpu=cpu, **more)
    pods = {pod.metadata.name: pod for pod in await settled(client, namespace=namespace)}
    found = await look(observer)
    waiting = {pod.name: pod for pod in found.pods}
    assert waiting.keys() == {name for name, pod in pods.items() if not pod.spec.node_name}
    # kube-scheduler found no node for any of them.
    assert [(pod.name, pod.message, pod.fits_on) for pod in found.pods if pod.fits_on] == []
    assert {pod.reason for pod in found.pods} >= {"Devices", "TooLarge", "NotAllowed"}
    assert all(pod.scheduler_says.startswith("0/6 nodes are available") for pod in found.pods)
    assert _promised(found) == _bound(list(pods.values()))


def _promised(found: Observation) -> dict[str, float]:
    return {node.node: node.promised for node in found.nodes if node.promised}


def _bound(pods: Sequence[Pod]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for pod in pods:
        if pod.spec.node_name:
            asked = float(pod.spec.containers[0].resources.limits[GPU])
            sums[pod.spec.node_name] = sums.get(pod.spec.node_name, 0.0) + asked
    return sums


async def test_what_it_says_would_start_a_pod_starts_it(client: Client, observer: Connected, namespace: str) -> None:
    await patch_node(client, "t4-1", taints=[TAINT])
    here = {"nodeSelector": {"kubernetes.io/hostname": "t4-0"}}
    await create(client, "holder", namespace=namespace, gpus=4, **here)
    await settled(client, namespace=namespace)
    await create(client, "waits", namespace=namespace, gpus=2, **here)
    await create(client, "tainted", namespace=namespace, gpus=2, nodeSelector={"kubernetes.io/hostname": "t4-1"})
    await settled(client, namespace=namespace)
    changes = {pod.name: pod.changes for pod in (await look(observer)).pods}
    assert f"2 nvidia.com/gpu more on t4-0, held by {namespace}/holder" in changes["waits"]
    assert "a toleration of dedicated=serving:NoSchedule: t4-1 has room" in changes["tainted"]
    await client.delete(PODS, name="holder", namespace=namespace)
    await patch_node(client, "t4-1", taints=[])

    async def both_run() -> bool:
        return all(pod.spec.node_name for pod in (await client.list(PODS, as_type=Pod, namespace=namespace)).items)

    await _until("both start", both_run)
    assert (await look(observer)).pods == []


async def test_a_quota_that_refuses_pods_is_shown(client: Client, observer: Connected, namespace: str) -> None:
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {f"requests.{GPU}": "1"}}}
    await client.create(RESOURCEQUOTAS, body=quota, as_type=Manifest, namespace=namespace)
    job = {
        "metadata": {"name": "train"},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "none", "resources": {"limits": {GPU: "1"}}}],
                }
            },
        },
    }

    async def is_counted() -> bool:
        listed = (await client.list(RESOURCEQUOTAS, as_type=Manifest, namespace=namespace)).items
        return all(each.get("status", {}).get("hard") for each in listed)

    await _until("the quota counts", is_counted)
    await client.create(JOBS, body=job, as_type=Manifest, namespace=namespace)

    async def is_shown() -> bool:
        found = [each for each in (await look(observer)).refused if each.namespace == namespace]
        return [each.owner for each in found] == ["Job/train"]

    await _until("the refusal is shown", is_shown)


@pytest.mark.timeout(300)
async def test_a_replay_in_kube_schedulers_order_meets_its_starts(
    client: Client, observer: Connected, namespace: str
) -> None:
    """60 pods in 30 s on 32 devices, of which most wait for others to end."""
    draw = random.Random(7)
    for at in range(60):
        gpus, cpu = draw.choice([1, 2, 2, 4, 4, 8]), draw.choice([1, 2, 4])
        await run_job(client, f"p{at}", namespace=namespace, gpus=gpus, cpu=cpu, seconds=draw.randint(5, 25))
        await asyncio.sleep(draw.expovariate(2.0))

    async def have_ended() -> bool:
        pods = (await client.list(PODS, as_type=Pod, namespace=namespace)).items
        return len(pods) == 60 and all(pod.status.phase == "Succeeded" for pod in pods)

    await _until("all pods end", have_ended, seconds=200)
    found = await report(observer)
    items = [each for each in found.items if each.namespace == namespace]
    assert len(items) == 60
    waits = [each for each in items if each.waited > found.within_seconds]
    assert len(waits) >= 10, "without a queue there is nothing to meet"
    assert found.reproduced >= 0.95


async def test_the_release_and_a_look_write_nothing_foreign(
    client: Client, sandbox: Cluster, observer: Connected, namespace: str
) -> None:
    for at in range(6):
        await create(client, f"p{at}", namespace=namespace, gpus=4)
    await settled(client, namespace=namespace)
    await look(observer)

    async def reported() -> bool:
        gpunodes = (await client.list(GPUNODES, as_type=Manifest)).items
        return sum(len(each.get("status", {}).get("devices", ())) for each in gpunodes) == 32

    await _until("the agent's reports", reported)
    writes = [event for event in requests(sandbox) if event["verb"] not in READS]
    own = [event for event in writes if event["objectRef"].get("apiGroup") == "dovetail.dev"]
    assert [said(event) for event in writes if event not in own and not _is_review(event)] == []
    assert {(event["objectRef"]["resource"], account(event)) for event in own} == {("gpunodes", "dovetail-agent")}
    assert {account(event) for event in requests(sandbox)} >= {
        "dovetail-agent",
        "dovetail-gateway",
        "dovetail-observer",
    }
    assert [said(event) for event in writes if account(event) == "dovetail-observer"] == []


def requests(sandbox: Cluster) -> list[Manifest]:
    """The API server's record of all requests of the accounts of the release's namespace."""
    lines = sandbox.request_log.read_text(encoding="utf-8").splitlines()
    # The last line may still be being written.
    return [json.loads(line) for line in lines if line.endswith("}")]


def account(event: Manifest) -> str:
    return str(event["user"]["username"]).rpartition(":")[2]


def said(event: Manifest) -> str:
    about = event["objectRef"]
    return (
        f"{account(event)} {event['verb']} {about['resource']}/{about.get('subresource', '')} {about.get('name', '')}"
    )


def _is_review(event: Manifest) -> bool:
    return event["objectRef"].get("apiGroup") in REVIEWS
