"""What belongs to a GPUJob, as users would like to have it who may not: each forgery is refused or counts for nothing.

Mallory has Kubernetes' own `edit` in one namespace. After each attack a job of another
namespace starts within 5 s, and the audit of this folder is clean.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Event, Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import EVENTS, GPUJOBS, GPUQUOTAS, JOBS, PODS, SERVICEACCOUNTS, Resource
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail_sandbox.cluster import Cluster
from tests.cluster.accounts import ROLE_BINDINGS, connection_of
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs, manifest
from tests.cluster.tenants import new_namespace
from tests.cluster.test_admission import VOID, asking, bound, make_pod

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]
CRONJOBS = Resource(group="batch", plural="cronjobs", kind="CronJob")
REPLICASETS = Resource(group="apps", plural="replicasets", kind="ReplicaSet")
WITHIN_SECONDS = 5.0
CONTROLLER = "only the Job controller (system:serviceaccount:kube-system:job-controller)"
OPERATORS = "is made by Dovetail's operator alone, not by system:serviceaccount:"
ASKS = {"name": "main", "env": [VOID], "resources": {"limits": {names.GPU_MILLI: "8000"}}}
COMPLETE = {"schedulerName": names.SCHEDULER_NAME, "runtimeClassName": names.RUNTIME_CLASS}


@pytest.fixture(autouse=True)
async def others_start(client: Client) -> AsyncIterator[None]:
    """After each attack a job of a namespace that has no part in it starts within 5 s."""
    yield
    async with new_namespace(client, prefix="others") as name:
        others = Jobs(client, namespace=name)
        began = time.monotonic()
        await others.submit(gpu="0.125")
        await others.phase("Running")
        assert time.monotonic() - began < WITHIN_SECONDS
        await others.clear()


@asynccontextmanager
async def account_with(role: str, client: Client, *, namespace: str, sandbox: Cluster) -> AsyncIterator[Client]:
    """An account of the namespace that was given this ClusterRole there, and nothing else."""
    meta = {"metadata": {"name": role}}
    await client.create(SERVICEACCOUNTS, body=meta, as_type=Manifest, namespace=namespace)
    subject = {"kind": "ServiceAccount", "name": role, "namespace": namespace}
    reference = {"apiGroup": ROLE_BINDINGS.group, "kind": "ClusterRole", "name": role}
    binding = {**meta, "subjects": [subject], "roleRef": reference}
    await client.create(ROLE_BINDINGS, body=binding, as_type=Manifest, namespace=namespace)
    async with Client(await connection_of(role, client, namespace=namespace, sandbox=sandbox)) as account:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "forbidden: User" in await refusal(account, GPUJOBS, {"metadata": {}}, namespace=namespace):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield account


@pytest.fixture
async def mallory(client: Client, namespace: str, sandbox: Cluster) -> AsyncIterator[Client]:
    """Has `edit` where the victims work."""
    async with account_with("edit", client, namespace=namespace, sandbox=sandbox) as account:
        yield account


async def refusal(account: Client, resource: Resource, body: Manifest, *, namespace: str) -> str:
    """The sentence with which a new object is refused; empty where it is taken."""
    body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    try:
        await account.create(resource, body=body, as_type=Manifest, namespace=namespace)
    except KubeError as error:
        return str(error)
    return ""


async def patch_refusal(account: Client, resource: Resource, name: str, patch: Manifest, *, namespace: str) -> str:
    """The sentence with which a change is refused; empty where it is taken."""
    try:
        await account.patch(resource, name=name, patch=patch, as_type=Manifest, namespace=namespace)
    except KubeError as error:
        return str(error)
    return ""


def owner(kind: str, name: str, uid: str, *, api_version: str = names.API_VERSION) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def pod_of(job: GPUJob, child: Job, **metadata: Any) -> Manifest:
    """A pod that looks in every way as if it were of the victim's job, but for what `metadata` says."""
    plan = {"job": job.metadata.uid, "generation": 1, "nodes": []}
    meta = {
        "name": "forged",
        "labels": {names.LABEL_JOB: "x", names.LABEL_JOB_NUMBER: "1"},
        "annotations": {**asking("8"), names.PLAN: json.dumps(plan), names.COMPLETION_INDEX: "0"},
        "ownerReferences": [owner("Job", "x", child.metadata.uid, api_version="batch/v1")],
    }
    return make_pod("forged", ASKS, **COMPLETE) | {"metadata": meta | metadata}


async def test_nobody_makes_a_pod_that_says_it_is_a_job_s(jobs: Jobs, mallory: Client) -> None:
    await jobs.submit(gpu="0.5")
    await jobs.phase("Running")
    victim = await jobs.client.get(GPUJOBS, name="x", as_type=GPUJob, namespace=jobs.namespace)
    child = await jobs.child()
    plain = asking("8")
    for metadata, what in (
        ({}, "annotation dovetail.dev/plan"),
        ({"annotations": plain}, "label dovetail.dev/job"),
        ({"annotations": plain, "labels": {names.LABEL_RESERVATION: "true"}}, "label dovetail.dev/reservation"),
        ({"labels": {}, "ownerReferences": []}, "annotation dovetail.dev/plan"),
    ):
        told = await refusal(mallory, PODS, pod_of(victim, child, **metadata), namespace=jobs.namespace)
        assert f"{what} is for the pods of GPUJobs: {CONTROLLER}" in told, told
    # Nor a controller of Kubernetes on somebody's behalf.
    template = {"metadata": {"labels": {names.LABEL_JOB: "x", "app": "a"}}, "spec": make_pod()["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    await mallory.create(
        REPLICASETS, body={"metadata": {"name": "a"}, "spec": spec}, as_type=Manifest, namespace=jobs.namespace
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            made = await jobs.client.get(REPLICASETS, name="a", as_type=Manifest, namespace=jobs.namespace)
            failed = [each for each in made["status"].get("conditions", []) if each["type"] == "ReplicaFailure"]
            if failed:
                break
            await asyncio.sleep(0.1)
    assert CONTROLLER in failed[0]["message"]
    # What the Job controller made may lose its label, as garbage collection takes owners off, and gets no other.
    (own,) = await jobs.pods()
    for label, is_taken in (("another", False), (None, True), ("x", False)):
        patch = {"metadata": {"labels": {names.LABEL_JOB: label}}}
        told = await patch_refusal(mallory, PODS, own.metadata.name, patch, namespace=jobs.namespace)
        assert (told == "") == is_taken, told
    # It is the job's all the same, which ends with it.
    await jobs.end_pod(own)
    await jobs.phase("Succeeded")


async def test_only_the_operator_makes_placeholders(mallory: Client, namespace: str) -> None:
    """An autoscaler adds a node for each."""
    labels, what = {names.LABEL_PLACEHOLDER: "some-uid"}, "label dovetail.dev/placeholder is for the pods of GPUJobs"
    marked = make_pod()
    marked["metadata"]["labels"] = labels
    assert what in await refusal(mallory, PODS, marked, namespace=namespace)
    asks = make_pod()
    asks["spec"]["schedulerName"] = names.PLACEHOLDER_SCHEDULER
    asks["spec"]["containers"][0]["resources"] = {"limits": {names.GPU_MILLI: "1000"}}
    told = await refusal(mallory, PODS, asks, namespace=namespace)
    assert 'schedulerName "dovetail-placeholder"' in told, "the webhook is first"
    await mallory.create(PODS, body=make_pod(), as_type=Pod, namespace=namespace)
    assert what in await patch_refusal(mallory, PODS, "p", {"metadata": {"labels": labels}}, namespace=namespace)
    template = {"metadata": {"labels": labels}, "spec": make_pod()["spec"] | {"restartPolicy": "Never"}}
    told = await refusal(
        mallory, JOBS, {"metadata": {"name": "j"}, "spec": {"template": template}}, namespace=namespace
    )
    assert "metadata.labels has dovetail.dev/placeholder" in told


async def test_nobody_makes_or_takes_over_what_the_operator_makes(
    jobs: Jobs, mallory: Client, sandbox: Cluster
) -> None:
    await jobs.submit(gpu="0.5", array={"indexes": "0"})
    await jobs.until("x", lambda status: status.tasks is not None)
    array = await jobs.client.get(GPUJOBS, name="x", as_type=GPUJob, namespace=jobs.namespace)
    owned = [owner("GPUJob", "x", array.metadata.uid)]
    template = make_pod()["spec"] | {"restartPolicy": "Never"}
    job = {"metadata": {"name": "j"}, "spec": {"template": {"metadata": {}, "spec": template}}}
    labelled = {"metadata": {"labels": {names.LABEL_JOB: "x"}}, "spec": template}
    planned = {"metadata": {"annotations": {names.PLAN: "{}"}}, "spec": template}
    task = manifest("x-t9", gpu="0.5")
    for resource, body, what in (
        (JOBS, job | {"metadata": {"name": "j", "ownerReferences": owned}}, "metadata.ownerReferences has GPUJob x"),
        (JOBS, job | {"metadata": {"name": "j", "labels": {names.LABEL_JOB: "x"}}}, "metadata.labels has"),
        (
            JOBS,
            job | {"metadata": {"name": "j", "labels": {"a": "b"}}, "spec": {"template": labelled}},
            "spec.template.metadata.labels has",
        ),
        (JOBS, job | {"spec": {"template": planned}}, "spec.template.metadata.annotations has dovetail.dev/plan"),
        (GPUJOBS, task | {"metadata": {"name": "x-t9", "ownerReferences": owned}}, "metadata.ownerReferences has"),
        (GPUJOBS, task | {"metadata": {"name": "y", "labels": {names.LABEL_ARRAY: "x"}}}, "metadata.labels has"),
    ):
        told = await refusal(mallory, resource, body, namespace=jobs.namespace)
        assert what in told, told
        assert OPERATORS in told, told
    cron = {
        "metadata": {"name": "c"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": labelled}}},
    }
    assert await refusal(mallory, CRONJOBS, cron, namespace=jobs.namespace) == ""
    made = {"metadata": {"name": "c-1"}, "spec": cron["spec"]["jobTemplate"]["spec"]}
    controller = await connection_of("cronjob-controller", jobs.client, namespace="kube-system", sandbox=sandbox)
    async with Client(controller) as account:
        assert "is made by Dovetail's operator alone" in await refusal(account, JOBS, made, namespace=jobs.namespace)
    # What is there cannot be given such an owner or label either; a label of one's own can.
    suspended = job | {"spec": job["spec"] | {"suspend": True}}
    assert await refusal(mallory, JOBS, suspended, namespace=jobs.namespace) == ""
    for patch in (
        {"metadata": {"ownerReferences": owned}},
        {"metadata": {"labels": {names.LABEL_JOB: "x"}}},
        {"spec": {"template": {"metadata": {"labels": {names.LABEL_JOB: "x"}}}}},
    ):
        assert OPERATORS in await patch_refusal(mallory, JOBS, "j", patch, namespace=jobs.namespace)
    own = {"metadata": {"labels": {"team": "a"}}, "spec": {"suspend": False}}
    assert await patch_refusal(mallory, JOBS, "j", own, namespace=jobs.namespace) == ""


async def test_what_a_pod_was_at_bind_outlasts_what_is_written_on_it_later(mallory: Client, namespace: str) -> None:
    await mallory.create(PODS, body=make_pod(annotations=asking("0.25")), as_type=Pod, namespace=namespace)
    _, before = await bound(mallory, namespace=namespace)
    assert (before.priority, before.reservation, before.job) == (10, False, "")
    later = {"metadata": {"annotations": {names.PRIORITY: "255", names.WORKLOAD: "Inference"}}}
    assert await patch_refusal(mallory, PODS, "p", later, namespace=namespace) == ""
    for label in (names.LABEL_RESERVATION, names.LABEL_JOB, names.LABEL_JOB_NUMBER):
        told = await patch_refusal(mallory, PODS, "p", {"metadata": {"labels": {label: "true"}}}, namespace=namespace)
        assert f"label {label} is for the pods of GPUJobs" in told
    plan = {"metadata": {"annotations": {names.PLAN: "{}"}}}
    assert CONTROLLER in await patch_refusal(mallory, PODS, "p", plan, namespace=namespace)
    _, after = await bound(mallory, namespace=namespace)
    assert after == before
    assert await patch_refusal(mallory, PODS, "p", {"metadata": {"labels": {"app": "x"}}}, namespace=namespace) == ""
    await mallory.delete(PODS, name="p", namespace=namespace, grace_period_seconds=0)


@pytest.mark.parametrize("how", ["resources", "annotation"])
async def test_nobody_goes_past_the_scheduler(mallory: Client, client: Client, namespace: str, how: str) -> None:
    asks = make_pod("p", ASKS, **COMPLETE) if how == "resources" else make_pod(annotations=asking("8"))
    named = asks | {"spec": asks["spec"] | {"nodeName": "v100-0"}}
    told = await refusal(mallory, PODS, named, namespace=namespace)
    assert 'nodeName "v100-0": a pod gets its GPUs when it is scheduled' in told, told
    # Nor where no webhook is asked, not even an administrator.
    told = await refusal(client, PODS, named, namespace="kube-system")
    assert 'spec.nodeName is "v100-0": a pod that asks for GPUs of Dovetail is created without it' in told, told
    plain = make_pod("plain", nodeName="v100-0")
    assert await refusal(mallory, PODS, plain, namespace=namespace) == ""


async def test_a_label_leads_no_pod_past_the_webhook(mallory: Client, namespace: str) -> None:
    pod = make_pod("p", {"name": "main", "env": [VOID]}, annotations=asking("8Q"))
    pod["metadata"]["labels"] = {names.LABEL_JOB: "x"}
    assert 'unknown memory unit "Q"' in await refusal(mallory, PODS, pod, namespace=namespace)


async def test_a_stranger_s_tasks_neither_end_another_namespace_s_array_nor_keep_it_waiting(
    jobs: Jobs, client: Client, sandbox: Cluster
) -> None:
    """As the operator's account, for admission lets none but that write such owners: the operator's own check holds."""
    await jobs.submit(gpu="0.125", run=2, array={"indexes": "0-1"})
    array = await jobs.client.get(GPUJOBS, name="x", as_type=GPUJob, namespace=jobs.namespace)
    async with (
        new_namespace(client, prefix="attackers") as theirs,
        Client(load_connection(sandbox.folder / "kubeconfigs" / "operator")) as account,
    ):
        for index in range(2):
            meta = {
                "name": f"x-t{index}",
                "labels": {names.LABEL_ARRAY: "x", names.LABEL_TASK: str(index)},
                "ownerReferences": [owner("GPUJob", "x", array.metadata.uid)],
                "finalizers": ["example.org/stays"],
            }
            forged = manifest(f"x-t{index}", cancel=True) | {"metadata": meta}
            assert await refusal(account, GPUJOBS, forged, namespace=theirs) == ""
        status = await jobs.phase("Succeeded")
        assert status.tasks is not None
        assert (status.tasks.succeeded, status.tasks.failed) == (2, 0)
        for index in range(2):
            patch = {"metadata": {"finalizers": None}}
            await client.patch(GPUJOBS, name=f"x-t{index}", patch=patch, as_type=Manifest, namespace=theirs)


async def test_a_job_that_has_a_task_s_name_is_named_and_keeps_that_task_alone(jobs: Jobs, mallory: Client) -> None:
    assert await refusal(mallory, GPUJOBS, manifest("x-t1", suspend=True), namespace=jobs.namespace) == ""
    await jobs.submit(gpu="0.125", run=0, array={"indexes": "0-2"})
    status = await jobs.until("x", lambda status: status.tasks is not None and status.tasks.succeeded == 2)
    assert "task 1 is not made: A GPUJob named x-t1 exists and is no task of this job" in status.message
    await mallory.delete(GPUJOBS, name="x-t1", namespace=jobs.namespace)
    await jobs.phase("Succeeded")


async def test_nobody_has_a_priority_beyond_what_a_quota_allows(
    jobs: Jobs, mallory: Client, client: Client, namespace: str
) -> None:
    early = manifest("early", gpu="0.125", priority=255, suspend=True)
    assert await refusal(mallory, GPUJOBS, early, namespace=namespace) == ""
    quota = {"metadata": {"name": namespace}, "spec": {"namespaces": [namespace], "maxPriority": 50}}
    await client.create(GPUQUOTAS, body=quota, as_type=Manifest)
    try:
        sentence = f"spec.priority is 51: GPUQuota {namespace} allows 0 to 50"
        above = manifest("above", gpu="0.125", priority=51)
        async with asyncio.timeout(PATIENCE_SECONDS):
            # The API server hears of quotas by a watch of its own.
            while sentence not in (told := await dry_refusal(mallory, above, namespace=namespace)):
                assert told == "", told
                await asyncio.sleep(0.05)
        # What was there before waits, and says so; it may be lowered, and not raised.
        assert await patch_refusal(mallory, GPUJOBS, "early", {"spec": {"suspend": False}}, namespace=namespace) == ""
        status = await jobs.phase("Queued", "early", reason="Quota")
        assert status.message == f"spec.priority is 255: GPUQuota {namespace} allows 0 to 50"
        for priority, is_taken in ((50, True), (51, False), (49, True)):
            patch = {"spec": {"priority": priority}}
            told = await patch_refusal(mallory, GPUJOBS, "early", patch, namespace=namespace)
            assert (told == "") == is_taken, told
        await jobs.phase("Running", "early")
        # The weight of a pod in turns has the same bound.
        pod = make_pod(annotations=asking("0.125") | {names.PRIORITY: "51"})
        await mallory.create(PODS, body=pod, as_type=Pod, namespace=namespace)
        beyond = f"annotation dovetail.dev/gpu-priority is 51: GPUQuota {namespace} allows 0 to 50"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not any(beyond in each.message for each in await events_of(client, "p", namespace=namespace)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await mallory.delete(PODS, name="p", namespace=namespace, grace_period_seconds=0)
    finally:
        await client.delete(GPUQUOTAS, name=namespace)


async def dry_refusal(account: Client, body: Manifest, *, namespace: str) -> str:
    """The sentence with which a GPUJob would be refused."""
    try:
        await account.create(GPUJOBS, body=body, as_type=Manifest, namespace=namespace, dry_run=True)
    except KubeError as error:
        return str(error)
    return ""


async def events_of(client: Client, pod: str, *, namespace: str) -> list[Event]:
    """What is told of a pod."""
    events, _ = await client.list(EVENTS, as_type=Event, namespace=namespace)
    return [each for each in events if each.involved_object.name == pod]
