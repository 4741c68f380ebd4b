"""What the token of one node's agent is good for in a stranger's hands, on the real API server.

The token is bound to the node v100-0, as kubelet asks for it for a DaemonSet's pod; the account has the chart's role.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpunode import GPUNode, Overuse
from dovetail.api.gpunodetenants import GPUNodeTenants
from dovetail.api.resources import CONFIGMAPS, GPUJOBS, GPUNODES, GPUNODETENANTS, PODS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, KubeError
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster import test_admission
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs
from tests.cluster.test_mallory_devices import others_go_on

pytestmark = pytest.mark.cluster

# An agent of the node v100-0 with a token of its own, held to the chart's policy.
agent = test_admission.agent
ITS_NODE = "v100-0"
SECRETS = Resource(plural="secrets", kind="Secret")
SECRET = "the-word-of-another-namespace"
REFUSED = "reported overuse does not end the pod"


async def refused(attempt: Awaitable[Any]) -> bool:
    """Whether RBAC refuses it."""
    try:
        await attempt
    except Forbidden:
        return True
    return False


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await holds():  # noqa: ASYNC110 - others change it
            await asyncio.sleep(0.1)


async def pod_that_shares(client: Client, *, namespace: str, name: str, model: str) -> Pod:
    """A pod of no job with a quarter of a card, and a word in its environment."""
    container = {"name": "main", "image": "busybox", "env": [{"name": "TOKEN", "value": SECRET}]}
    annotations = {names.REQUEST: f"2G,0.25({model})", names.RUN_SECONDS: "100000"}
    body = {"metadata": {"name": name, "annotations": annotations}, "spec": {"containers": [container]}}
    await client.create(PODS, body=body, as_type=Pod, namespace=namespace)
    found = Pod()

    async def runs() -> bool:
        nonlocal found
        found = await client.get(PODS, name=name, as_type=Pod, namespace=namespace)
        return found.status.phase == "Running"

    await until(runs)
    return found


def above(pod: Pod, *, device: str = "") -> Overuse:
    """A report that a pod is above its promise and has to go."""
    allocation = allocation_in(pod.metadata.annotations)
    assert allocation is not None
    return Overuse(
        uid=pod.metadata.uid, namespace=pod.metadata.namespace, name=pod.metadata.name,
        device=device or allocation.devices[0].uuid, index=0, promised_mib=1, used_mib=2,
        since="2026-01-01T00:00:00Z", ends=True, evict=True,
    )  # fmt: skip


async def forge(agent: Client, *overuses: Overuse) -> None:
    """Write these into the status of the token's own node, as its agent would."""
    body = {"status": {"overuses": msgspec.to_builtins(overuses)}}
    await agent.patch(GPUNODES, name=ITS_NODE, patch=body, as_type=GPUNode, subresource="status")


def reasons_of(sandbox: Cluster, *, pod: Pod) -> set[str]:
    """Why the operator said that it did not end that pod."""
    lines = sandbox.log_file("operator").read_text(encoding="utf-8").splitlines()
    told = [line for line in lines if REFUSED in line and pod.metadata.uid in line]
    return {found[1] for line in told if (found := re.search(r'reason"?[=:] ?"?(\w+)', line))}


async def test_it_reads_no_pod_no_secret_and_no_environment(agent: Client, client: Client, namespace: str) -> None:
    await test_admission.until_the_policy_counts(agent)
    pod = await pod_that_shares(client, namespace=namespace, name="web", model="T4")
    reads = [
        agent.list(PODS, as_type=Pod),
        agent.list(PODS, as_type=Pod, field_selector=f"spec.nodeName={ITS_NODE}"),
        agent.get(PODS, name="web", as_type=Pod, namespace=namespace),
        agent.list(SECRETS, as_type=dict[str, Any]),
        agent.list(SECRETS, as_type=dict[str, Any], namespace="dovetail-system"),
        agent.list(CONFIGMAPS, as_type=dict[str, Any], namespace=namespace),
        agent.list(GPUJOBS, as_type=dict[str, Any]),
    ]
    assert [await refused(each) for each in reads] == [True] * len(reads)

    async def told() -> bool:
        found = (await agent.list(GPUNODETENANTS, as_type=dict[str, Any])).items
        assert SECRET not in str(found)
        return pod.metadata.uid in str(found)

    # The names and promises of other nodes' pods it does see: the API server cannot tell one node's objects apart.
    await until(told)


async def test_it_ends_and_changes_nothing_of_another_node(agent: Client, client: Client, namespace: str) -> None:
    await test_admission.until_the_policy_counts(agent)
    pod = await pod_that_shares(client, namespace=namespace, name="web", model="T4")
    tenants = await client.get(GPUNODETENANTS, name=pod.spec.node_name, as_type=GPUNodeTenants)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": namespace}}
    writes = [
        agent.create(
            PODS, body=eviction, as_type=dict[str, Any], namespace=namespace, name="web", subresource="eviction"
        ),
        agent.delete(PODS, name="web", namespace=namespace),
        agent.delete(GPUNODETENANTS, name=pod.spec.node_name),
        agent.update(GPUNODETENANTS, name=pod.spec.node_name, body=tenants, as_type=GPUNodeTenants),
        agent.patch(GPUNODETENANTS, name=ITS_NODE, patch={"spec": {"tenants": []}}, as_type=GPUNodeTenants),
        agent.delete(GPUNODES, name=pod.spec.node_name),
    ]
    assert [await refused(each) for each in writes] == [True] * len(writes)
    with pytest.raises(KubeError, match=f'the agent of node "{ITS_NODE}" may not write for node {pod.spec.node_name}'):
        await agent.patch(
            GPUNODES, name=pod.spec.node_name, patch={"status": {"overuses": []}}, as_type=GPUNode, subresource="status"
        )


async def test_it_makes_the_operator_end_no_pod_and_no_job_of_another_node(
    agent: Client, client: Client, namespace: str, jobs: Jobs, sandbox: Cluster
) -> None:
    await test_admission.until_the_policy_counts(agent)
    elsewhere = await pod_that_shares(client, namespace=namespace, name="web", model="T4")
    await jobs.submit("train", gpu="2G,0.25(T4)")
    await jobs.phase("Running", "train")
    (worker,) = await jobs.pods("train")
    plain_body = {
        "metadata": {"name": "plain"},
        "spec": {"nodeName": ITS_NODE, "containers": [{"name": "main", "image": "busybox"}]},
    }
    plain = await client.create(PODS, body=plain_body, as_type=Pod, namespace=namespace)
    without = Overuse(
        uid=plain.metadata.uid, namespace=namespace, name="plain", device=above(elsewhere).device, index=0,
        promised_mib=1, used_mib=2, since="2026-01-01T00:00:00Z", ends=True, evict=True,
    )  # fmt: skip
    await until_known(client, plain)
    await forge(agent, above(elsewhere), above(worker), without)

    async def judged() -> bool:
        return reasons_of(sandbox, pod=elsewhere) == {"OtherNode"} and reasons_of(sandbox, pod=plain) == {
            "NoAllocation"
        }

    await until(judged)
    for pod in (elsewhere, plain):
        found = await client.get(PODS, name=pod.metadata.name, as_type=Pod, namespace=namespace)
        assert (found.metadata.uid, found.metadata.deletion_timestamp) == (pod.metadata.uid, None)
    assert (await jobs.phase("Running", "train")).reason != "MemoryOverPromise"
    await others_go_on(client)
    await forge(agent)


async def until_known(client: Client, pod: Pod) -> None:
    """Until the operator has told the node's programs of a pod, and so knows it."""

    async def holds() -> bool:
        found = await client.get(GPUNODETENANTS, name=ITS_NODE, as_type=GPUNodeTenants)
        return pod.metadata.uid in {each.uid for each in found.spec.tenants}

    await until(holds)
