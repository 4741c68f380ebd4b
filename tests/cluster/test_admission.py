"""Webhook and policies on the real API server: what is completed, what is refused, and that nobody forges devices."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import EVENTS, GPUJOBS, GPUNODES, NODES, PODS, SERVICEACCOUNTS, Resource
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, NotFound
from dovetail.pods.allocation import Allocation, allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster.accounts import ROLE_BINDINGS, ROLES, connection_of, until_the_rights_count
from tests.cluster.jobs import Jobs, manifest
from tests.cluster.test_chart import rendered, run
from tests.cluster.webhooks import without_ours

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 60
DEPLOYMENTS = Resource(group="apps", plural="deployments", kind="Deployment")
# The older way in.
BINDINGS = Resource(plural="bindings", kind="Binding")
CLUSTER_KINDS = {
    kind: Resource(group=group, plural=plural, kind=kind, namespaced=False)
    for group, kind, plural in (
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings"),
    )
}
ALL = {"name": names.ENV_VISIBLE_DEVICES, "value": "all"}
VOID = {"name": names.ENV_VISIBLE_DEVICES, "value": names.NO_DEVICES}
# What the extender's annotations are refused with, from whomever.
WRITTEN = "is written by Dovetail's extender"
Manifest = dict[str, Any]


@pytest.fixture
async def mallory(client: Client, namespace: str, sandbox: Cluster) -> AsyncIterator[Client]:
    """An ordinary account that its namespace's owner gave all rights on pods, binding and status among them."""
    rules = [
        {
            "apiGroups": [""],
            "resources": ["pods", "pods/binding", "pods/status", "pods/ephemeralcontainers", "bindings"],
            "verbs": ["get", "list", "create", "update", "patch", "delete"],
        },
        {"apiGroups": [names.GROUP], "resources": ["gpujobs"], "verbs": ["get", "create", "patch", "delete"]},
    ]
    subject = {"kind": "ServiceAccount", "name": "mallory", "namespace": namespace}
    role = {"apiGroup": ROLES.group, "kind": "Role", "name": "mallory"}
    named = {"metadata": {"name": "mallory"}}
    await client.create(SERVICEACCOUNTS, body=named, as_type=Manifest, namespace=namespace)
    await client.create(ROLES, body={**named, "rules": rules}, as_type=Manifest, namespace=namespace)
    binding = {**named, "subjects": [subject], "roleRef": role}
    await client.create(ROLE_BINDINGS, body=binding, as_type=Manifest, namespace=namespace)
    async with Client(await connection_of("mallory", client, namespace=namespace, sandbox=sandbox)) as theirs:
        await until_the_rights_count(theirs, namespace=namespace)
        yield theirs


@pytest.fixture(autouse=True)
async def tidy(client: Client, namespace: str) -> AsyncIterator[None]:
    """Devices are free again when the next test begins."""
    yield
    for resource in (DEPLOYMENTS, GPUJOBS):
        for each in (await client.list(resource, as_type=Manifest, namespace=namespace)).items:
            with suppress(NotFound):
                await client.delete(resource, name=each["metadata"]["name"], namespace=namespace)
    for pod in (await client.list(PODS, as_type=Pod, namespace=namespace)).items:
        with suppress(NotFound):
            await client.delete(PODS, name=pod.metadata.name, namespace=namespace, grace_period_seconds=0)


def make_pod(
    name: str = "p", *containers: Manifest, annotations: dict[str, str] | None = None, **spec: Any
) -> Manifest:
    return {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"image": "none", **each} for each in containers or ({"name": "main"},)],
            **spec,
        },
    }


def asking(gpu: str, **more: str) -> dict[str, str]:
    return {names.REQUEST: gpu, **{f"{names.REQUEST}.{name}": text for name, text in more.items()}}


async def bound(client: Client, *, namespace: str, name: str = "p") -> tuple[Pod, Allocation]:
    """The pod once it is bound, and its allocation."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            pod = await client.get(PODS, name=name, as_type=Pod, namespace=namespace)
            allocation = allocation_in(pod.metadata.annotations)
            if pod.spec.node_name and allocation is not None:
                return pod, allocation
            await asyncio.sleep(0.1)


def variable(pod: Pod, name: str = names.ENV_VISIBLE_DEVICES, *, container: int = 0) -> str:
    """The value that kubelet would give a variable: its own, or the annotation that it names."""
    (entry,) = [each for each in pod.spec.containers[container].env if each.name == name]
    if entry.value_from is None or entry.value_from.field_ref is None:
        return entry.value
    path = entry.value_from.field_ref.field_path
    return pod.metadata.annotations[path.removeprefix("metadata.annotations['").removesuffix("']")]


async def test_a_deployment_with_nothing_but_the_annotation_gets_its_share(client: Client, namespace: str) -> None:
    template = make_pod(
        "", {"name": "server"}, {"name": "proxy", "env": [ALL]}, annotations={f"{names.REQUEST}.server": "8G,0.5"}
    )
    template["metadata"]["labels"] = {"app": "x"}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    await client.create(
        DEPLOYMENTS, body={"metadata": {"name": "x"}, "spec": spec}, as_type=Manifest, namespace=namespace
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(pods := (await client.list(PODS, as_type=Pod, namespace=namespace)).items) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    for each in pods:
        pod, allocation = await bound(client, namespace=namespace, name=each.metadata.name)
        (device,) = allocation.devices
        assert (device.share_milli, device.memory_mib) == (500, 8192)
        assert variable(pod) == device.uuid
        assert variable(pod, names.ENV_MPS_MEMORY) == "0=8192M"
        assert variable(pod, container=1) == names.NO_DEVICES


async def test_containers_and_a_sidecar_each_get_what_they_ask(client: Client, namespace: str) -> None:
    side = {"name": "side", "image": "none", "restartPolicy": "Always"}
    warm = {"name": "warm", "image": "none"}
    pod = make_pod(
        "p", {"name": "a"}, {"name": "b"}, initContainers=[side, warm],
        annotations=asking("0.5", b="2x4G,0.25", side="0.125", warm="0.5"),
    )  # fmt: skip
    await client.create(PODS, body=pod, as_type=Pod, namespace=namespace)
    found, allocation = await bound(client, namespace=namespace)
    held = {each.index: each.devices for each in allocation.containers}
    assert {index: [device.share_milli for device in devices] for index, devices in held.items()} == {
        0: [500], 1: [250, 250], 2: [125],
    }  # fmt: skip
    assert variable(found, container=1) == ",".join(device.uuid for device in held[1])
    sees = [init.env[0].value_from for init in found.spec.init_containers]
    assert [each and each.field_ref and each.field_ref.field_path[-3] for each in sees] == ["2", "0"]


async def test_a_request_that_cannot_be_read_is_refused_where_it_is_written(client: Client, namespace: str) -> None:
    with pytest.raises(KubeError, match=r'gpu "8Q,0.5": unknown memory unit "Q" \(allowed: M, G, %\) at character 2'):
        await client.create(PODS, body=make_pod(annotations=asking("8Q,0.5")), as_type=Pod, namespace=namespace)


async def test_a_debugging_container_sees_no_device(mallory: Client, client: Client, namespace: str) -> None:
    await mallory.create(PODS, body=make_pod(annotations=asking("1")), as_type=Pod, namespace=namespace)
    debug = {"name": "debug", "image": "none", "env": [ALL]}
    await mallory.patch(
        PODS, name="p", patch={"spec": {"ephemeralContainers": [debug]}}, as_type=Pod, namespace=namespace,
        subresource="ephemeralcontainers",
    )  # fmt: skip
    pod = await client.get(PODS, name="p", as_type=Manifest, namespace=namespace)
    assert pod["spec"]["ephemeralContainers"][0]["env"] == [VOID]


@pytest.mark.parametrize("annotation", [names.ALLOCATION, f"{names.VISIBLE_DEVICES}.0", f"{names.MPS_MEMORY}.1"])
async def test_nobody_makes_a_pod_that_has_devices_already(client: Client, namespace: str, annotation: str) -> None:
    """Not even an administrator: there is no path by which devices could be chosen past the ledger."""
    with pytest.raises(KubeError, match=f"{annotation} {WRITTEN}"):
        await client.create(PODS, body=make_pod(annotations={annotation: "GPU-1"}), as_type=Pod, namespace=namespace)


@pytest.mark.parametrize("subresource", ["", "status"])
async def test_nobody_changes_the_devices_of_a_pod(mallory: Client, namespace: str, subresource: str) -> None:
    await mallory.create(PODS, body=make_pod(annotations=asking("0.5")), as_type=Pod, namespace=namespace)
    pod, _ = await bound(mallory, namespace=namespace)
    for value in ("GPU-another", None):
        patch = {"metadata": {"annotations": {f"{names.VISIBLE_DEVICES}.0": value}}}
        with pytest.raises(KubeError, match=WRITTEN):
            await mallory.patch(PODS, name="p", patch=patch, as_type=Pod, namespace=namespace, subresource=subresource)
    after, _ = await bound(mallory, namespace=namespace)
    assert after.metadata.annotations == pod.metadata.annotations


async def test_only_the_extender_binds_with_devices(mallory: Client, client: Client, namespace: str) -> None:
    pod = await mallory.create(
        PODS, body=make_pod(annotations=asking("1"), nodeSelector={"none": "such"}), as_type=Pod, namespace=namespace
    )
    name = {"metadata": {"name": "p", "annotations": {f"{names.VISIBLE_DEVICES}.0": "GPU-1"}}}
    body = {**name, "target": {"kind": "Node", "name": "v100-0"}}
    with pytest.raises(KubeError, match=f"{WRITTEN} alone, not by"):
        await mallory.create(BINDINGS, body=body, as_type=Manifest, namespace=namespace)
    for who in (mallory, client):
        with pytest.raises(KubeError, match=f"{WRITTEN} alone, not by"):
            await who.bind(
                pod,
                node="v100-0",
                annotations={f"{names.VISIBLE_DEVICES}.0": "GPU-1"},
                deadline_seconds=PATIENCE_SECONDS,
            )


async def test_another_schedulers_pod_gets_no_devices_of_ours(mallory: Client, namespace: str) -> None:
    main = {"name": "main", "resources": {"limits": {names.GPU_MILLI: "1000"}}}
    with pytest.raises(KubeError, match="a pod with GPUs of Dovetail is scheduled by dovetail"):
        await mallory.create(PODS, body=make_pod("p", main, schedulerName="nobody"), as_type=Pod, namespace=namespace)


async def test_where_no_webhook_completes_a_pod_the_policies_hold(
    client: Client, namespace: str, sandbox: Cluster
) -> None:
    """The Job controller's pods of a GPUJob go past the webhook; their shape is judged all the same."""
    controller = await connection_of("job-controller", client, namespace="kube-system", sandbox=sandbox)
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "none", "controller": True}
    ours = {"labels": {names.LABEL_JOB: "x"}, "ownerReferences": [job]}
    forged = {**ALL, "value": "GPU-1"}
    twice = [VOID, forged]
    stolen = {
        "name": names.ENV_VISIBLE_DEVICES,
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['mine']"}},
    }
    async with Client(controller) as theirs:
        for env in ([forged], twice, [stolen]):
            pod = make_pod("p", {"name": "main", "env": env}, runtimeClassName=names.RUNTIME_CLASS)
            pod["metadata"] |= ours
            with pytest.raises(KubeError, match="container main must have NVIDIA_VISIBLE_DEVICES once, as void or"):
                await theirs.create(PODS, body=pod, as_type=Pod, namespace=namespace)
        pod = make_pod("p", {"name": "main", "env": [VOID], "resources": {"limits": {names.GPU_MILLI: "1000"}}})
        pod["metadata"] |= ours
        with pytest.raises(KubeError, match="schedulerName must be dovetail, not default-scheduler"):
            await theirs.create(PODS, body=pod, as_type=Pod, namespace=namespace)


async def test_while_the_webhook_is_away_pods_that_ask_and_new_jobs_are_refused_and_those_that_exist_go_on(
    client: Client, mallory: Client, namespace: str, sandbox: Cluster
) -> None:
    # The tasks of the array are created by the operator, once it is back and the webhook away.
    await asyncio.to_thread(sandbox.stop, "operator")
    job = manifest("array", array={"indexes": "0-1"})
    await mallory.create(GPUJOBS, body=job, as_type=GPUJob, namespace=namespace)
    await asyncio.to_thread(sandbox.stop, "webhook")
    try:
        await client.create(PODS, body=make_pod("plain"), as_type=Pod, namespace=namespace)
        with pytest.raises(KubeError, match="failed calling webhook"):
            await client.create(PODS, body=make_pod("asks", annotations=asking("1")), as_type=Pod, namespace=namespace)
        with pytest.raises(KubeError, match="failed calling webhook"):
            await mallory.create(GPUJOBS, body=manifest("job"), as_type=GPUJob, namespace=namespace)
        await asyncio.to_thread(sandbox.start, "operator")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "Running" not in [each.status.phase for each in await tasks(client, namespace=namespace)]:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.1)
        users = {each.metadata.annotations[names.USER] for each in await tasks(client, namespace=namespace)}
        assert users == {f"system:serviceaccount:{namespace}:mallory"}
        for spec in ({"priority": 11}, {"suspend": True}, {"cancel": True}):
            await mallory.patch(GPUJOBS, name="array", patch={"spec": spec}, as_type=GPUJob, namespace=namespace)
        with pytest.raises(KubeError, match="failed calling webhook"):
            await mallory.patch(
                GPUJOBS, name="array", patch={"spec": {"activeDeadlineSeconds": 9}}, as_type=GPUJob, namespace=namespace
            )
    finally:
        await asyncio.to_thread(sandbox.start, "operator")
        await asyncio.to_thread(sandbox.start, "webhook")


async def tasks(client: Client, *, namespace: str) -> list[GPUJob]:
    jobs = await client.list(GPUJOBS, as_type=GPUJob, namespace=namespace)
    return [each for each in jobs.items if names.LABEL_TASK in each.metadata.labels]


async def test_a_job_that_no_webhook_saw_is_refused_unless_it_names_who_makes_it(
    client: Client, mallory: Client, namespace: str
) -> None:
    """As where an administrator has switched the webhook off, or its configuration is gone."""
    async with without_ours(client), asyncio.timeout(PATIENCE_SECONDS):
        while (sentence := await unsigned(mallory, namespace=namespace)) == "":
            await mallory.delete(GPUJOBS, name="unsigned", namespace=namespace)
    assert 'annotation dovetail.dev/user is who made the job, "system:serviceaccount:' in sentence
    assert 'and not "": Dovetail\'s webhook writes it' in sentence
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await unsigned(mallory, namespace=namespace):  # noqa: ASYNC110 - the API server hears of it by a watch
            await asyncio.sleep(0.1)


async def unsigned(account: Client, *, namespace: str) -> str:
    """The sentence with which a job that does not say its user is refused, empty when it comes in."""
    try:
        await account.create(GPUJOBS, body=manifest("unsigned", suspend=True), as_type=GPUJob, namespace=namespace)
    except KubeError as error:
        return str(error)
    return ""


async def test_a_job_with_a_deep_template_is_refused_with_a_sentence_and_the_next_one_comes_in(
    mallory: Client, namespace: str, sandbox: Cluster
) -> None:
    create = ("kubectl", "--kubeconfig", sandbox.kubeconfig, "create", "-f", "-")
    path = GPUJOBS.path(namespace=namespace)
    for levels in (65, 1_100, 5_000):
        job = json.dumps(manifest("deep", suspend=True)).replace('"busybox"', f'"busybox","x":{nested(levels)}')
        done = await asyncio.to_thread(run, *create, "--raw", path, text=job)
        assert (done.returncode, "nested" in done.stderr) == (1, True), (levels, done.stderr)
    await mallory.create(GPUJOBS, body=manifest("next", suspend=True), as_type=GPUJob, namespace=namespace)


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.fixture
async def agent(client: Client, namespace: str, sandbox: Cluster) -> AsyncIterator[Client]:
    """An agent as a DaemonSet has it on node v100-0, held to the policy that the chart makes for such agents.

    The sandbox's own agent serves all nodes: the policy is applied under another name and for this account alone.
    """
    account = f"system:serviceaccount:{namespace}:agent"
    text = rendered(simulation="false").replace("system:serviceaccount:dovetail-system:dovetail-agent", account)
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    objects = [
        each for each in yaml.safe_load_all(text.replace("dovetail-agents", f"agents-{namespace}"))
        if each and each["kind"] in kinds and each["metadata"]["name"].startswith("agents-")
    ]  # fmt: skip
    assert [each["kind"] for each in objects] == list(kinds)
    objects.append({
        "metadata": {"name": f"agents-{namespace}"}, "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": ROLES.group, "kind": "ClusterRole", "name": "dovetail-agent"},
        "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": namespace}],
    })  # fmt: skip
    await client.create(SERVICEACCOUNTS, body={"metadata": {"name": "agent"}}, as_type=Manifest, namespace=namespace)
    for each in objects:
        await client.create(CLUSTER_KINDS[each["kind"]], body=each, as_type=Manifest)
    node = await client.get(NODES, name="v100-0", as_type=Node)
    spec = {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "v100-0", "uid": node.metadata.uid}}
    async with Client(await connection_of("agent", client, namespace=namespace, sandbox=sandbox, spec=spec)) as own:
        yield own
    for each in objects:
        await client.delete(CLUSTER_KINDS[each["kind"]], name=each["metadata"]["name"])


NOT_ITS_NODE = 'the agent of node "v100-0" may not write for node v100-1'


async def test_an_agent_writes_for_its_own_node_only(agent: Client) -> None:
    await until_the_policy_counts(agent)
    assert NOT_ITS_NODE in await refused(agent, NODES, "v100-1", {"status": {}}, "status")
    assert await refused(agent, GPUNODES, "v100-0", {"status": {}}, "status") == ""


# Of its Node an agent changes our amounts and nothing else; what it is told otherwise.
OF_ITS_NODE: list[tuple[Manifest, str]] = [
    ({"status": {"capacity": {"dovetail.dev/gpu-turn": "9"}}}, ""),
    ({"status": {"capacity": {"cpu": "9k"}}}, "and no other, such as cpu"),
    ({"status": {"capacity": {"x.y/gpu": "1"}}}, "and no other, such as x.y/gpu"),
    ({"status": {"allocatable": {"memory": None}}}, "and no other, such as memory"),
    ({"status": {"conditions": None}}, "nothing else of its Node, such as conditions"),
    ({"metadata": {"labels": {"a": "b"}}}, "nothing else of its Node, such as labels"),
]


async def test_an_agent_changes_nothing_of_its_node_but_our_amounts(agent: Client) -> None:
    await until_the_policy_counts(agent)
    for patch, sentence in OF_ITS_NODE:
        told = await refused(agent, NODES, "v100-0", patch, "status")
        assert sentence in told, patch
        assert bool(sentence) == bool(told), told


async def test_an_agent_does_not_undo_what_people_decided_of_its_devices(agent: Client) -> None:
    await until_the_policy_counts(agent)
    told = await refused(agent, GPUNODES, "v100-0", {"spec": {"cordoned": ["GPU-1"]}}, "")
    assert "the spec of a GPUNode is for people" in told
    assert await refused(agent, GPUNODES, "v100-0", {"metadata": {"annotations": {"x": None}}}, "") == ""


async def test_an_agent_tells_of_its_own_node_only(agent: Client, namespace: str) -> None:
    await until_the_policy_counts(agent)
    assert "not of Node v100-1" in await telling(agent, kind="Node", name="v100-1", host="v100-0")
    assert "of pods there" in await telling(agent, kind="Pod", name="x", host="v100-1", namespace=namespace)
    assert await telling(agent, kind="Pod", name="x", host="v100-0", namespace=namespace) == ""
    assert await telling(agent, kind="Node", name="v100-0", host="v100-0") == ""


async def telling(agent: Client, *, kind: str, name: str, host: str, namespace: str = "default") -> str:
    about = {"kind": kind, "name": name, **({"namespace": namespace} if kind == "Pod" else {})}
    body = {
        "metadata": {"generateName": "x-"}, "involvedObject": about, "reason": "Test", "type": "Normal",
        "source": {"component": "dovetail-agent", "host": host},
    }  # fmt: skip
    try:
        await agent.create(EVENTS, body=body, as_type=Manifest, namespace=namespace)
    except KubeError as error:
        return str(error)
    return ""


async def until_the_policy_counts(agent: Client) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        # A refusal in other words is that of one whose rights do not count yet.
        while NOT_ITS_NODE not in await refused(agent, GPUNODES, "v100-1", {"status": {}}, "status"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def refused(agent: Client, resource: Resource, name: str, patch: Manifest, subresource: str) -> str:
    """The sentence with which a write of an agent's is refused, empty when it is not."""
    try:
        await agent.patch(resource, name=name, patch=patch, as_type=Manifest, subresource=subresource)
    except KubeError as error:
        return str(error)
    return ""


async def test_a_job_carries_the_name_of_who_made_it_for_good(mallory: Client, namespace: str) -> None:
    job = manifest("x", suspend=True)
    job["metadata"]["annotations"] = {names.USER: "somebody-else"}
    made = await mallory.create(GPUJOBS, body=job, as_type=GPUJob, namespace=namespace)
    assert made.metadata.annotations[names.USER] == f"system:serviceaccount:{namespace}:mallory"
    for value in ("somebody-else", None):
        patch = {"metadata": {"annotations": {names.USER: value}}}
        with pytest.raises(KubeError, match="is who made the job"):
            await mallory.patch(GPUJOBS, name="x", patch=patch, as_type=GPUJob, namespace=namespace)


async def test_the_operator_tells_a_pod_that_it_makes_way_and_changes_nothing_else_of_it(
    client: Client, namespace: str, sandbox: Cluster
) -> None:
    jobs = Jobs(client, namespace=namespace)
    await jobs.submit(gpu="0.125")
    await jobs.phase("Running")
    (pod,) = await jobs.pods()
    noticed: Manifest = {"metadata": {"annotations": {names.PREEMPTING_AT: "2026-01-01T00:00:00Z"}}}
    others: list[Manifest] = [
        {"metadata": {"annotations": {"team.example/note": "x"}}},
        {"metadata": {"labels": {"team": "other"}}},
        {"status": {"phase": "Failed"}},
        {"metadata": {"annotations": {names.ALLOCATION: "{}"}}},
    ]
    where = {"as_type": Manifest, "namespace": namespace, "subresource": "status"}
    async with Client(load_connection(sandbox.folder / "kubeconfigs" / "operator")) as theirs:
        await theirs.patch(PODS, name=pod.metadata.name, patch=noticed, **where)
        for patch in others:
            with pytest.raises(KubeError, match=r"nothing else of a pod|is written by Dovetail"):
                await theirs.patch(PODS, name=pod.metadata.name, patch=patch, **where)
    await jobs.clear()


async def test_the_operator_tells_no_pod_that_is_no_job_s(client: Client, namespace: str, sandbox: Cluster) -> None:
    await client.create(PODS, body=make_pod(), as_type=Manifest, namespace=namespace)
    patch = {"metadata": {"annotations": {names.PREEMPTING_AT: "2026-01-01T00:00:00Z"}}}
    async with Client(load_connection(sandbox.folder / "kubeconfigs" / "operator")) as theirs:
        with pytest.raises(KubeError, match="nothing else of a pod"):
            await theirs.patch(PODS, name="p", patch=patch, as_type=Manifest, namespace=namespace, subresource="status")
