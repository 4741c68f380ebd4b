"""Objects of an ordinary user that ended scheduling for the whole cluster once, on the real API server.

Each is stored as it is: the API server takes JSON of 10,000 levels and annotations of 256 KiB.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec
import pytest

from dovetail import names
from dovetail.api.resources import GPUJOBS, PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, Invalid
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import PATIENCE_SECONDS, manifest
from tests.cluster.mallory import others_go_on
from tests.cluster.test_admission import unsigned
from tests.cluster.test_chart import run
from tests.cluster.webhooks import without_ours
from tests.core.hostile import FREE_TEXTS, nested
from tests.visibility import Manifest

pytestmark = pytest.mark.cluster

LEVELS: Final = 1_100
DIGITS: Final = 5_000
COMPONENTS: Final = ("operator", "extender", "agent")
# Which of them a user may write on a pod, the chart's policies decide; these are free.
POISON: Final = {names.PRIORITY: "9" * DIGITS, names.COMPLETION_INDEX: "9" * DIGITS, names.PARAMETERS: nested(LEVELS)}
MERGE: Final = "application/merge-patch+json"


async def test_what_a_user_stores_costs_nobody_else_anything(
    client: Client, mallory: Client, namespace: str, sandbox: Cluster
) -> None:
    before = {component: sandbox.pid(component) for component in COMPONENTS}
    # None asks for GPUs, so no webhook looks at them.
    await mallory.create(PODS, body=pod("poisoned", annotations=POISON), as_type=Manifest, namespace=namespace)
    await mallory.create(PODS, body=pod("victim"), as_type=Manifest, namespace=namespace)
    await until_it_runs(client, "victim", namespace=namespace)
    stored = await annotated(mallory, namespace=namespace)
    assert stored.keys() >= POISON.keys()
    assert await stores_managed_fields(mallory, namespace=namespace), "the API server bounds them no more than the rest"
    await others_go_on(client)

    async with as_before_the_limit(client, mallory, namespace=namespace):
        for name, levels in (("deep", LEVELS), ("deeper", 9_000)):
            await store_job(mallory, name, levels=levels, namespace=namespace)
    await others_go_on(client)
    for name in ("deep", "deeper"):
        assert "64 levels deep at most" in await message_of(name, namespace=namespace, sandbox=sandbox)
    assert {component: sandbox.pid(component) for component in COMPONENTS} == before, "none has ended meanwhile"
    said = run("kubectl", "--kubeconfig", sandbox.kubeconfig, "get", "gpujobs", "-n", namespace, "-o", "name").stdout
    assert said.split() == ["gpujob.dovetail.dev/deep", "gpujob.dovetail.dev/deeper"]
    for name in ("deep", "deeper"):
        await mallory.delete(GPUJOBS, name=name, namespace=namespace)


async def annotated(account: Client, *, namespace: str) -> dict[str, str]:
    """What of all annotations that Dovetail reads a user may write on a pod that runs, nested too deeply each."""
    stored: dict[str, str] = {}
    for annotation in FREE_TEXTS:
        text = POISON.get(annotation, nested(LEVELS))
        patch = {"metadata": {"annotations": {annotation: text}}}
        with suppress(Forbidden, Invalid):
            await account.patch(PODS, name="victim", patch=patch, as_type=Manifest, namespace=namespace)
            stored[annotation] = text
    return stored


def pod(name: str, **metadata: Manifest) -> Manifest:
    void = {"name": names.ENV_VISIBLE_DEVICES, "value": names.NO_DEVICES}
    container = {"name": "main", "image": "busybox", "env": [void]}
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [container]}}


async def until_it_runs(client: Client, name: str, *, namespace: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await client.get(PODS, name=name, as_type=Manifest, namespace=namespace)
            if found["status"].get("phase") == "Running":
                return
            await asyncio.sleep(0.1)


async def stores_managed_fields(account: Client, *, namespace: str) -> bool:
    """Give a pod managed fields that are nested too deeply; whether the API server took them."""
    fields = nested(LEVELS, key="f:x").replace("1}", "{}}", 1)
    entry = f'{{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields}}}'
    body = msgspec.Raw(f'{{"metadata":{{"managedFields":[{entry}]}}}}'.encode())
    path = PODS.path(namespace=namespace, name="victim")
    answer = await account._transport.send("PATCH", path=path, body=body, content_type=MERGE, deadline_seconds=None)
    return answer.count(b'"f:x"') >= LEVELS


@asynccontextmanager
async def as_before_the_limit(client: Client, account: Client, *, namespace: str) -> AsyncIterator[None]:
    """The cluster as it was before a webhook bounded how deep a template may be."""
    async with without_ours(client):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await unsigned(account, namespace=namespace):
                await account.delete(GPUJOBS, name="unsigned", namespace=namespace)
        yield
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await unsigned(account, namespace=namespace):  # noqa: ASYNC110 - the API server hears of it by a watch
            await asyncio.sleep(0.1)
    await account.delete(GPUJOBS, name="unsigned", namespace=namespace)


async def store_job(account: Client, name: str, *, levels: int, namespace: str) -> None:
    user = f"system:serviceaccount:{namespace}:mallory"
    job = manifest(name)
    job["metadata"]["annotations"] = {names.USER: user}
    text = json.dumps(job).replace('"busybox"', f'"busybox","x":{nested(levels)}')
    await account._transport.send(
        "POST", path=GPUJOBS.path(namespace=namespace), body=msgspec.Raw(text.encode()), deadline_seconds=None
    )


async def message_of(name: str, *, namespace: str, sandbox: Cluster) -> str:
    """What the job's owner reads."""
    get = ("kubectl", "--kubeconfig", sandbox.kubeconfig, "get", "gpujob", name, "-n", namespace)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (said := (await asyncio.to_thread(run, *get, "-o", "jsonpath={.status.message}")).stdout):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    return said
