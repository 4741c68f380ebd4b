"""Both versions of the API on a real API server: the same objects, the same rules, and what a rollback leaves."""

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dovetail import names
from dovetail.api.crd import crds
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.resources import CRDS, GPUJOBS, GPUNODES, GPUQUOTAS, Resource
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail_sandbox import bringup, cluster, progress
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs, manifest
from tests.cluster.test_chart import run

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]
BETA_JOBS = replace(GPUJOBS, version="v1beta1")
BETA_QUOTAS = replace(GPUQUOTAS, version="v1beta1")
SPEC: Manifest = {
    "namespaces": ["nowhere"],
    "limit": {"gpus": 4, "runningJobs": 3},
    "preemptionPolicy": "Never",
    "advanceReservations": [
        {"name": "demo", "startTime": "2997-01-01T08:00:00Z", "endTime": "2997-01-02T08:00:00Z", "gpus": 2}
    ],
}
OLD_SPEC: Manifest = {
    "namespaces": ["nowhere"],
    "per": "Together",
    "limit": {"gpus": 4},
    "runningJobs": 3,
    "mayPreempt": False,
    "reservations": [{"name": "demo", "start": "2997-01-01T08:00:00Z", "end": "2997-01-02T08:00:00Z", "gpus": 2}],
}


@pytest.fixture
async def quota(client: Client) -> AsyncIterator[str]:
    """The name of a quota that the test makes; it is deleted in the end."""
    name = f"versions-{uuid.uuid4().hex[:8]}"
    yield name
    await client.delete(GPUQUOTAS, name=name)


async def until(read: Callable[[], Awaitable[Manifest]], *, holds: Callable[[Manifest], bool]) -> Manifest:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if holds(found := await read()):
                return found
            await asyncio.sleep(0.1)


async def test_a_gpujob_of_v1beta1_runs_and_both_versions_show_it(client: Client, jobs: Jobs, namespace: str) -> None:
    body = manifest("beta", run=1) | {"apiVersion": "dovetail.dev/v1beta1"}
    made = await client.create(BETA_JOBS, body=body, as_type=Manifest, namespace=namespace)
    assert made["apiVersion"] == "dovetail.dev/v1beta1"
    # The webhook is registered for v1alpha1, and is asked all the same.
    assert made["metadata"]["annotations"][names.USER]
    await jobs.phase("Succeeded", "beta")
    beta = await client.get(BETA_JOBS, name="beta", as_type=Manifest, namespace=namespace)
    alpha = await client.get(GPUJOBS, name="beta", as_type=Manifest, namespace=namespace)
    assert alpha == beta | {"apiVersion": "dovetail.dev/v1alpha1"}
    await client.patch(BETA_JOBS, name="beta", patch={"spec": {"cancel": True}}, as_type=Manifest, namespace=namespace)
    assert (await jobs.spec("beta"))["cancel"]


async def test_a_gpunode_is_the_same_in_both_versions(client: Client) -> None:
    alphas, _ = await client.list(GPUNODES, as_type=Manifest)
    node = alphas[0]["metadata"]["name"]
    beta = await client.get(replace(GPUNODES, version="v1beta1"), name=node, as_type=Manifest)
    assert beta["apiVersion"] == "dovetail.dev/v1beta1"
    assert beta["metadata"]["uid"] == alphas[0]["metadata"]["uid"]
    assert beta["status"]["devices"]


async def test_v1beta1_leads_no_user_past_the_rules(mallory: Client, namespace: str) -> None:
    body = manifest("theirs") | {"apiVersion": "dovetail.dev/v1beta1"}
    body["metadata"]["annotations"] = {names.USER: "ada"}
    made = await mallory.create(BETA_JOBS, body=body, as_type=Manifest, namespace=namespace)
    assert made["metadata"]["annotations"][names.USER] == f"system:serviceaccount:{namespace}:mallory"
    with pytest.raises(KubeError, match=names.USER):
        await mallory.patch(
            BETA_JOBS,
            name="theirs",
            patch={"metadata": {"annotations": {names.USER: "ada"}}},
            as_type=Manifest,
            namespace=namespace,
        )
    wrong = manifest("wrong", gpu="-1") | {"apiVersion": "dovetail.dev/v1beta1"}
    with pytest.raises(KubeError, match="gpu"):
        await mallory.create(BETA_JOBS, body=wrong, as_type=Manifest, namespace=namespace)
    await mallory.delete(GPUJOBS, name="theirs", namespace=namespace)


async def test_a_gpuquota_is_the_same_in_both_versions(client: Client, quota: str) -> None:
    body = {"metadata": {"name": quota}, "spec": SPEC}
    await client.create(BETA_QUOTAS, body=body, as_type=Manifest)
    alpha = await client.get(GPUQUOTAS, name=quota, as_type=Manifest)
    assert alpha["spec"] == OLD_SPEC
    read = await client.get(GPUQUOTAS, name=quota, as_type=GPUQuota)
    assert (read.spec.most.gpus, read.spec.running_jobs, read.spec.may_preempt) == (4, 3, False)
    counted = await until(
        lambda: client.get(BETA_QUOTAS, name=quota, as_type=Manifest),
        holds=lambda found: found.get("status", {}).get("observedGeneration") == 1,
    )
    assert counted["spec"] == SPEC | {"per": "Together"}


async def test_an_edit_in_v1beta1_keeps_the_name_that_a_v1alpha1_file_has(client: Client, quota: str) -> None:
    body = {"metadata": {"name": quota}, "spec": {"namespaces": ["nowhere"], "gpus": 4}}
    await client.create(GPUQUOTAS, body=body, as_type=Manifest)
    patch = {"spec": {"limit": {"gpus": 5, "queuedJobs": 9}}}
    edited = await client.patch(BETA_QUOTAS, name=quota, patch=patch, as_type=Manifest)
    assert edited["metadata"]["annotations"] == {names.LIMIT_FORM: "gpus"}
    stored = await client.get(GPUQUOTAS, name=quota, as_type=Manifest)
    assert (stored["spec"]["gpus"], stored["spec"]["queuedJobs"], "limit" in stored["spec"]) == (5, 9, False)
    assert names.LIMIT_FORM not in stored["metadata"].get("annotations", {})


REFUSED = [
    ({"guaranteed": {"gpus": 9}, "limit": {"gpus": 4}}, "guaranteed.gpus must not be above limit.gpus"),
    ({"per": "User", "parent": "all"}, "per must be Together"),
    ({"parent": "no"}, "spec.parent must be another GPUQuota"),
    ({"per": "Everybody"}, "per must be one of"),
    ({"advanceReservations": SPEC["advanceReservations"]}, "namespaces, users and projects must not all be empty"),
    ({"preemptionPolicy": "Ever"}, "preemptionPolicy must be one of Never, PreemptLowerPriority"),
    (
        {
            "users": ["ada"],
            "advanceReservations": [
                SPEC["advanceReservations"][0] | {"endTime": SPEC["advanceReservations"][0]["startTime"]}
            ],
        },
        "endTime must be after startTime",
    ),
]


@pytest.mark.parametrize(("spec", "problem"), REFUSED, ids=[problem for _, problem in REFUSED])
async def test_a_wrong_gpuquota_of_v1beta1_is_refused_in_a_sentence(
    client: Client, spec: Manifest, problem: str
) -> None:
    with pytest.raises(KubeError, match=problem):
        await client.create(BETA_QUOTAS, body={"metadata": {"name": "no"}, "spec": spec}, as_type=Manifest)


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
async def test_kubectl_explain_describes_every_field(sandbox: Cluster, version: str) -> None:
    """`kubectl explain` reads this document."""
    path = f"/openapi/v3/apis/{names.GROUP}/{version}"
    done = await asyncio.to_thread(run, "kubectl", "--kubeconfig", sandbox.kubeconfig, "get", "--raw", path)
    document = json.loads(done.stdout)
    ours = {
        name: schema
        for name, schema in document["components"]["schemas"].items()
        if schema.get("x-kubernetes-group-version-kind", [{}])[0].get("group") == names.GROUP
        and not name.endswith("List")
    }
    assert len(ours) == len(crds())
    assert [path for name, schema in ours.items() for path in undescribed(schema, path=name)] == []


def undescribed(schema: Manifest, *, path: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        if not field.get("description"):
            yield f"{path}.{name}"
        yield from undescribed(field, path=f"{path}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(field.get(key), dict):
                yield from undescribed(field[key], path=f"{path}.{name}[]")


@asynccontextmanager
async def without_the_webhook(sandbox: Cluster) -> AsyncIterator[None]:
    await asyncio.to_thread(sandbox.stop, "webhook")
    try:
        yield
    finally:
        await asyncio.to_thread(sandbox.start, "webhook")


async def failed_conversions(sandbox: Cluster) -> float:
    """What the API server counts of conversions of GPUQuotas that failed."""
    done = await asyncio.to_thread(run, "kubectl", "--kubeconfig", sandbox.kubeconfig, "get", "--raw", "/metrics")
    return sum(
        sample.value
        for family in text_string_to_metric_families(done.stdout)
        for sample in family.samples
        if sample.name == "apiserver_crd_conversion_webhook_duration_seconds_count"
        and (sample.labels["crd_name"], sample.labels["succeeded"]) == ("gpuquotas.dovetail.dev", "false")
    )


async def test_while_the_webhook_is_away_v1alpha1_works_and_v1beta1_says_why_not(
    client: Client, quota: str, sandbox: Cluster
) -> None:
    await client.create(BETA_QUOTAS, body={"metadata": {"name": quota}, "spec": SPEC}, as_type=Manifest)
    async with without_the_webhook(sandbox):
        patch = {"spec": {"runningJobs": 7}}
        changed = await client.patch(GPUQUOTAS, name=quota, patch=patch, as_type=Manifest)
        with pytest.raises(KubeError, match=r"conversion webhook for .* Kind=GPUQuota failed"):
            await client.get(BETA_QUOTAS, name=quota, as_type=Manifest)
        assert await failed_conversions(sandbox) > 0, "what the alert DovetailConversionFails reads"
        # The operator still writes its status, though the object was made in v1beta1.
        await until(
            lambda: client.get(GPUQUOTAS, name=quota, as_type=Manifest),
            holds=lambda found: found.get("status", {}).get("observedGeneration") == changed["metadata"]["generation"],
        )
    found = await client.get(BETA_QUOTAS, name=quota, as_type=Manifest)
    assert found["spec"]["limit"]["runningJobs"] == 7


@pytest.fixture(scope="module")
def bare() -> Iterator[Cluster]:
    """A control plane without Dovetail: the CRDs of the shared sandbox are not to change under it."""
    own = cluster.get(f"versions-{os.getpid()}-{uuid.uuid4().hex[:4]}")
    try:
        yield bringup.up(own.name, report=progress.reporter(), limit_nodes=1, bare=True)
    finally:
        own.down()


async def install(client: Client, *, versions: int) -> None:
    """The CRDs with the first so many versions, as their files have them; those that are served answer."""
    for crd in crds():
        spec = crd["spec"] | {"versions": crd["spec"]["versions"][:versions]}
        body = yaml.safe_load(yaml.safe_dump(crd | {"spec": spec}))
        await client.apply(
            CRDS, name=crd["metadata"]["name"], body=body, as_type=Manifest, field_manager="test", force=True
        )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while await serves(client, BETA_JOBS) != (versions == 2) or not await serves(client, GPUJOBS):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def serves(client: Client, resource: Resource) -> bool:
    try:
        await client.list(resource, as_type=Manifest)
    except KubeError:
        return False
    return True


async def test_a_rollback_to_crds_without_v1beta1_keeps_every_object(bare: Cluster) -> None:
    body = manifest("x") | {"apiVersion": "dovetail.dev/v1beta1"}
    async with Client(load_connection(bare.kubeconfig)) as client:
        await install(client, versions=2)
        made = await client.create(BETA_JOBS, body=body, as_type=Manifest, namespace="default")
        await install(client, versions=1)
        kept = await client.get(GPUJOBS, name="x", as_type=Manifest, namespace="default")
        assert kept["spec"] == made["spec"]
        patch = {"metadata": {"annotations": {"dovetail.dev/rolled-back": "true"}}}
        await client.patch(GPUJOBS, name="x", patch=patch, as_type=Manifest, namespace="default")
        applied = await client.apply(
            GPUJOBS, name="x", body=manifest("x"), as_type=Manifest, field_manager="x", force=True, namespace="default"
        )
        assert applied["metadata"]["uid"] == made["metadata"]["uid"]
        await install(client, versions=2)
        again = await client.get(BETA_JOBS, name="x", as_type=Manifest, namespace="default")
        assert again["metadata"]["uid"] == made["metadata"]["uid"]
