"""The API version on a real API server: its rules, its descriptions, and CRDs that store another one."""

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import yaml

from dovetail import names
from dovetail.api.crd import crds
from dovetail.api.resources import CONFIGMAPS, CRDS, GPUJOBS, GPUQUOTAS, NAMESPACES, SECRETS, SERVICEACCOUNTS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail_sandbox import bringup, cluster, progress
from dovetail_sandbox.cluster import Cluster
from tests.chart.generated import CHART, IMAGES
from tests.cluster.jobs import PATIENCE_SECONDS, manifest
from tests.cluster.test_chart import run

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]
SPEC: Manifest = {
    "namespaces": ["nowhere"],
    "limit": {"gpus": 4, "runningJobs": 3},
    "preemptionPolicy": "Never",
    "advanceReservations": [
        {"name": "demo", "startTime": "2997-01-01T08:00:00Z", "endTime": "2997-01-02T08:00:00Z", "gpus": 2}
    ],
}
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
async def test_a_wrong_gpuquota_is_refused_in_a_sentence(client: Client, spec: Manifest, problem: str) -> None:
    with pytest.raises(KubeError, match=problem):
        await client.create(GPUQUOTAS, body={"metadata": {"name": "no"}, "spec": spec}, as_type=Manifest)


async def test_a_gpuquota_is_stored_as_it_is_written(client: Client) -> None:
    body = {"metadata": {"name": "written"}, "spec": SPEC}
    stored = await client.create(GPUQUOTAS, body=body, as_type=Manifest, dry_run=True)
    assert (stored["apiVersion"], stored["spec"]) == (names.API_VERSION, SPEC | {"per": "Together"})


async def test_kubectl_explain_describes_every_field(sandbox: Cluster) -> None:
    """`kubectl explain` reads this document."""
    path = f"/openapi/v3/apis/{names.API_VERSION}"
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


@pytest.fixture(scope="module")
def bare() -> Iterator[Cluster]:
    """A control plane without Dovetail: the CRDs of the shared sandbox are not to change under it."""
    own = cluster.get(f"versions-{os.getpid()}-{uuid.uuid4().hex[:4]}")
    try:
        yield bringup.up(own.name, report=progress.reporter(), limit_nodes=1, bare=True)
    finally:
        own.down()


def of_another_version(crd: Manifest) -> Manifest:
    """The CRD as a development snapshot had it: v1alpha1 stored, v1beta1 served too."""
    (beta,) = crd["spec"]["versions"]
    return crd | {"spec": crd["spec"] | {"versions": [beta | {"name": "v1alpha1"}, beta | {"storage": False}]}}


@pytest.fixture
async def snapshot(bare: Cluster) -> AsyncIterator[Client]:
    """A control plane whose CRDs store v1alpha1, with one GPUJob."""
    async with Client(load_connection(bare.kubeconfig)) as client:
        for crd in crds():
            body = yaml.safe_load(yaml.safe_dump(of_another_version(crd)))
            await client.apply(CRDS, name=crd["metadata"]["name"], body=body, as_type=Manifest, field_manager="test")
        body = manifest("x") | {"apiVersion": f"{names.GROUP}/v1alpha1"}
        old = replace(GPUJOBS, version="v1alpha1")
        await until(lambda: client.create(old, body=body, as_type=Manifest, namespace="default"))
        yield client
        for crd in crds():
            await client.delete(CRDS, name=crd["metadata"]["name"])
        await until_gone(client)


async def until(write: Callable[[], Awaitable[Manifest]]) -> None:
    """Write as soon as the API server serves the CRD."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(KubeError):
                await write()
                return
            await asyncio.sleep(0.1)


async def until_gone(client: Client) -> None:
    """Wait for the end of the CRDs, which the API server deletes after their objects."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if not [name for name, _ in await every_object(client) if name.endswith(f".{names.GROUP}")]:
                return
            await asyncio.sleep(0.1)


async def every_object(client: Client) -> list[tuple[str, str]]:
    """The CRDs, and what a release would create first: by name, what neither a status nor a restart changes."""
    found = []
    for resource in (CRDS, SERVICEACCOUNTS, CONFIGMAPS, SECRETS, NAMESPACES):
        items, _ = await client.list(resource, as_type=Manifest)
        for each in items:
            known = each["metadata"]
            found.append((known["name"], f"{known['uid']} {known.get('generation')} {known.get('labels')}"))
    return sorted(found)


@pytest.mark.parametrize("crds_too", ["true", "false"])
async def test_helm_refuses_crds_that_store_another_version_with_the_line_to_type_and_changes_nothing(
    bare: Cluster, snapshot: Client, crds_too: str
) -> None:
    before = await every_object(snapshot)
    words = (
        "upgrade",
        "--install",
        "dovetail",
        CHART,
        "--namespace",
        "default",
        IMAGES,
        f"--set=crds.install={crds_too}",
    )
    done = await asyncio.to_thread(run, "helm", *words, "--kubeconfig", bare.kubeconfig)
    assert done.returncode != 0
    assert "stores v1alpha1, which this version of Dovetail does not read, and nothing was changed" in done.stderr
    assert "kubectl delete crd --selector app.kubernetes.io/name=dovetail" in done.stderr
    assert await every_object(snapshot) == before


async def test_without_helm_the_api_server_refuses_them(bare: Cluster, snapshot: Client) -> None:
    before = await every_object(snapshot)
    words = ("apply", "--server-side", "--force-conflicts", "-f", CHART / "crd-files" / "gpujobs.yaml")
    done = await asyncio.to_thread(run, "kubectl", "--kubeconfig", bare.kubeconfig, *words)
    assert done.returncode != 0
    assert 'status.storedVersions[0]: Invalid value: "v1alpha1"' in done.stderr
    assert await every_object(snapshot) == before
