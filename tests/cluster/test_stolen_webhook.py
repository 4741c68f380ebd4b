"""An attacker in the webhook's place answers reviews with any patch: the policies judge what comes out of it.

While a test runs the attacker's server is registered and ours is not. Policies come after every webhook.
"""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS, PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from tests.cluster.jobs import Jobs, manifest
from tests.cluster.test_admission import Manifest, asking, make_pod
from tests.cluster.webhooks import HOOKS, without_ours
from tests.core.process.test_certificate import write_pair

pytestmark = pytest.mark.cluster

MAIN: Final = "/spec/containers/0"
# A JSON pointer writes the slash of a name as ~1.
ALLOCATION: Final = names.ALLOCATION.replace("/", "~1")
VISIBLE: Final = names.per_container(names.VISIBLE_DEVICES, index=0).replace("/", "~1")


def add(path: str, value: Any) -> Manifest:
    return {"op": "add", "path": path, "value": value}


# As our webhook leaves a pod that asks.
COMPLETED: Final[Manifest] = {
    "name": "main",
    "resources": {"limits": {names.GPU_MILLI: "1000"}},
    "env": [
        {
            "name": names.ENV_VISIBLE_DEVICES,
            "valueFrom": {
                "fieldRef": {
                    "fieldPath": f"metadata.annotations['{names.per_container(names.VISIBLE_DEVICES, index=0)}']"
                }
            },
        }
    ],
}
# Each with the words in which the API server refuses what the patch makes of such a pod.
PATCHES: Final = {
    "every card by the variable": (
        [add(f"{MAIN}/env", [{"name": names.ENV_VISIBLE_DEVICES, "value": "all"}])],
        "must have NVIDIA_VISIBLE_DEVICES once",
    ),
    "a device by the annotation": ([add(f"/metadata/annotations/{VISIBLE}", "GPU-0")], "is written by Dovetail's"),
    "an allocation": ([add(f"/metadata/annotations/{ALLOCATION}", "{}")], "is written by Dovetail's"),
    "another scheduler": ([add("/spec/schedulerName", "default-scheduler")], "schedulerName must be dovetail"),
    "a node past the queue": ([add("/spec/nodeName", "v100-0")], "nodeName"),
    "the label of another's job": ([add("/metadata/labels", {names.LABEL_JOB: "theirs"})], names.LABEL_JOB),
    "a card by CDI": ([add("/metadata/annotations/cdi.k8s.io~1x", "nvidia.com/gpu=all")], "cdi.k8s.io/x"),
}


class Thief:
    """Answers every review with `patch`."""

    def __init__(self) -> None:
        self.patch: list[Manifest] = []
        self.asked = 0

    async def review(self, request: web.Request) -> web.Response:
        uid = (await request.json())["request"]["uid"]
        self.asked += 1
        patch = base64.b64encode(json.dumps(self.patch).encode()).decode()
        response = {"uid": uid, "allowed": True, "patchType": "JSONPatch", "patch": patch}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


@pytest.fixture
async def thief(client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[Thief]:
    authority = await asyncio.to_thread(write_pair, tmp_path)
    found, app = Thief(), web.Application()
    app.router.add_post("/", found.review)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    hook = {
        "name": "thief.dovetail.dev",
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/",
            "caBundle": base64.b64encode(authority).decode(),
        },
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
            {"apiGroups": [names.GROUP], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["gpujobs"]},
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    body = {"metadata": {"name": f"thief-{namespace}"}, "webhooks": [hook]}
    async with without_ours(client):
        await client.create(HOOKS, body=body, as_type=Manifest)
        try:
            await until_it_is_asked(client, found, namespace=namespace)
            yield found
        finally:
            await client.delete(HOOKS, name=f"thief-{namespace}")
            await runner.cleanup()


async def until_it_is_asked(client: Client, thief: Thief, *, namespace: str) -> None:
    """And ours is not: the API server hears of both by a watch."""
    limit = time.monotonic() + 60
    while await scheduler_of(client, asks(), namespace=namespace) == names.SCHEDULER_NAME or not thief.asked:
        assert time.monotonic() < limit, "the API server does not ask the other webhook alone"
        await asyncio.sleep(0.05)


def asks() -> Manifest:
    """A pod that our webhook would complete."""
    return make_pod("asks", annotations=asking("1"))


def complete() -> Manifest:
    """A pod as our webhook leaves it."""
    more = {"schedulerName": names.SCHEDULER_NAME, "runtimeClassName": names.RUNTIME_CLASS}
    return make_pod("asks", COMPLETED, annotations=asking("1"), **more)


async def scheduler_of(client: Client, pod: Manifest, *, namespace: str) -> str:
    """The scheduler of a pod after all webhooks; empty where it is refused."""
    try:
        return str((await tried(client, pod, namespace=namespace))["spec"]["schedulerName"])
    except KubeError:
        return ""


async def tried(client: Client, pod: Manifest, *, namespace: str) -> Manifest:
    return await client.create(PODS, body=pod, as_type=Manifest, namespace=namespace, dry_run=True)


@pytest.mark.parametrize("attack", PATCHES)
async def test_what_a_stolen_webhook_makes_of_a_pod_is_refused(
    attack: str, thief: Thief, client: Client, namespace: str
) -> None:
    thief.patch, sentence = [], PATCHES[attack][1]
    await tried(client, complete(), namespace=namespace)  # without the attack it comes in
    thief.patch = PATCHES[attack][0]
    with pytest.raises(KubeError) as refused:
        await tried(client, complete(), namespace=namespace)
    assert sentence in str(refused.value)


async def test_a_stolen_webhook_makes_nobody_else_the_owner_of_a_job(
    thief: Thief, client: Client, namespace: str
) -> None:
    thief.patch = [add("/metadata/annotations", {names.USER: "ada@example.com"})]
    with pytest.raises(KubeError, match=r"annotation dovetail.dev/user is who made the job"):
        await client.create(GPUJOBS, body=manifest("job"), as_type=GPUJob, namespace=namespace)


async def test_once_the_webhook_is_back_a_job_of_another_namespace_starts(client: Client, namespace: str) -> None:
    async with asyncio.timeout(60):
        while await scheduler_of(client, asks(), namespace=namespace) != names.SCHEDULER_NAME:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    jobs = Jobs(client, namespace=namespace)
    try:
        await jobs.submit("honest", gpu=1)
        async with asyncio.timeout(5):
            await jobs.phase("Running", "honest")
    finally:
        await jobs.clear()
