"""The webhook's certificate on a real API server, kept with the rights that the chart gives."""

import asyncio
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import CLUSTERROLEBINDINGS, CRDS, PODS, SERVICEACCOUNTS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, KubeError, NotFound
from dovetail_certificates.secret_store import SECRETS, Secret
from dovetail_certificates.trust import MUTATING, Configuration
from dovetail_sandbox import bringup, cluster, progress
from dovetail_sandbox.cluster import Cluster
from tests.chart.generated import CHART, IMAGES
from tests.cluster.accounts import ROLE_BINDINGS, ROLES
from tests.cluster.test_chart import run

pytestmark = pytest.mark.cluster

NAMESPACE = "dovetail-system"
LEAF = "dovetail-webhook"
PATIENCE_SECONDS = 60
Manifest = dict[str, Any]


async def secret_of(client: Client, name: str = LEAF) -> Secret:
    return await client.get(SECRETS, name=name, as_type=Secret, namespace=NAMESPACE)


async def bundles(client: Client) -> set[bytes]:
    configuration = await client.get(MUTATING, name="dovetail", as_type=Configuration)
    return {each.client_config.ca_bundle for each in configuration.webhooks or ()}


async def is_completed(client: Client, *, namespace: str) -> bool:
    """Whether the API server reaches the webhook; nothing is stored."""
    pod = {
        "metadata": {"name": "asks", "annotations": {names.REQUEST: "1"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    try:
        made = await client.create(PODS, body=pod, as_type=Pod, namespace=namespace, dry_run=True)
    except KubeError as error:
        if "failed calling webhook" not in str(error):
            raise
        return False
    return made.spec.scheduler_name == names.SCHEDULER_NAME


@pytest.fixture
async def asked(client: Client, namespace: str) -> AsyncIterator[list[bool]]:
    """Asks the webhook all the time; whether each was answered."""
    answers: list[bool] = []

    async def ask() -> None:
        while True:
            answers.append(await is_completed(client, namespace=namespace))
            await asyncio.sleep(0.05)

    task = asyncio.create_task(ask())
    yield answers
    task.cancel()


async def until_signed_by(client: Client, authority: bytes, *, other_than: bytes = b"") -> Secret:
    """The webhook's Secret, once this CA has signed another certificate than that one."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            await asyncio.sleep(0.2)
            try:
                data = (await secret_of(client)).data or {}
            except KubeError:
                continue
            if data["ca.crt"] == authority and data["tls.crt"] != other_than:
                return await secret_of(client)


async def test_a_deleted_certificate_is_made_again_and_no_request_fails_meanwhile(
    client: Client, asked: list[bool]
) -> None:
    before, trusted = (await secret_of(client)).data, await bundles(client)
    assert before is not None
    await client.delete(SECRETS, name=LEAF, namespace=NAMESPACE)
    await until_signed_by(client, before["ca.crt"], other_than=before["tls.crt"])
    assert await bundles(client) == trusted
    await asyncio.sleep(12)  # longer than it takes the webhook to look at its files
    assert len(asked) > 20
    assert all(asked)


async def test_a_deleted_ca_is_made_again_by_an_upgrade_and_no_request_fails_meanwhile(
    client: Client, sandbox: Cluster, asked: list[bool]
) -> None:
    before = (await secret_of(client)).data
    assert before is not None
    await client.delete(SECRETS, name=f"{LEAF}-ca", namespace=NAMESPACE)
    said = await upgrade_s_hook(sandbox)
    assert "Waiting 30 s until every API server has seen the new CA" in said
    authority = (await secret_of(client, f"{LEAF}-ca")).data
    assert authority is not None
    after = (await until_signed_by(client, authority["ca.crt"])).data
    assert after is not None
    assert after["tls.crt"] != before["tls.crt"]
    # The webhook serves the old one until it has reloaded.
    bundle = one(await bundles(client))
    assert bundle.startswith(authority["ca.crt"])
    assert before["ca.crt"] in bundle
    await asyncio.sleep(12)  # longer than it takes the webhook to look at its files
    assert len(asked) > 20
    assert all(asked)


async def upgrade_s_hook(sandbox: Cluster) -> str:
    """Run what `helm upgrade` runs before it changes anything; what it said."""
    program = Path(sys.executable).with_name("dovetail-trust")
    options = (f"--secret={LEAF}", "--mutating-webhook-configuration=dovetail")
    process = await asyncio.create_subprocess_exec(
        program, f"--kubeconfig={sandbox.kubeconfig}", *options, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said
    return said.decode()


async def test_the_account_that_publishes_the_ca_is_gone_with_its_roles(client: Client) -> None:
    for resource, namespace in (
        (SERVICEACCOUNTS, NAMESPACE),
        (ROLES, NAMESPACE),
        (ROLE_BINDINGS, NAMESPACE),
        (CLUSTERROLEBINDINGS, None),
        (replace(ROLES, plural="clusterroles", kind="ClusterRole", namespaced=False), None),
    ):
        with pytest.raises(NotFound):
            await client.get(resource, name="dovetail-trust", as_type=Manifest, namespace=namespace)
    assert b"BEGIN CERTIFICATE" in one(await bundles(client))


@pytest.fixture(scope="module")
def apart() -> Iterator[Cluster]:
    """A sandbox of its own: Helm takes over every object of the chart, with other values than the tests here need."""
    own = cluster.get(f"helm-{os.getpid()}-{uuid.uuid4().hex[:4]}")
    try:
        yield bringup.up(own.name, report=progress.reporter(), limit_nodes=1)
    finally:
        own.down()


@pytest.fixture
async def administrator(apart: Cluster) -> AsyncIterator[Client]:
    async with Client(load_connection(apart.kubeconfig)) as client:
        yield client


async def test_an_upgrade_and_an_apply_of_the_chart_leave_the_certificate_and_what_is_trusted(
    administrator: Client, apart: Cluster
) -> None:
    """Both ways in which Helm writes: merged by the client (Helm 3), and applied by the server (Helm 4)."""
    text = apart.folder.joinpath("rendered.yaml").read_text(encoding="utf-8")
    hooks = [each for each in yaml.safe_load_all(text) if each and each["kind"] == MUTATING.kind]
    assert "caBundle" not in json.dumps(hooks)
    kubectl = ("kubectl", "--kubeconfig", apart.kubeconfig, "apply", "-f", "-")
    before, secret = await bundles(administrator), await secret_of(administrator)
    for way in (("--server-side", "--force-conflicts", "--field-manager=helm"), ()):
        done = await asyncio.to_thread(run, *kubectl, *way, text=yaml.safe_dump_all(hooks))
        assert done.returncode == 0, done.stderr
        assert await bundles(administrator) == before
    assert (await secret_of(administrator)).data == secret.data
    assert await is_completed(administrator, namespace="default")


def one(found: set[bytes]) -> bytes:
    (only,) = found
    return only


async def test_helm_itself_leaves_what_is_trusted_through_upgrades_and_a_rollback(
    administrator: Client, apart: Cluster
) -> None:
    release = ("--namespace", NAMESPACE, "--kubeconfig", apart.kubeconfig)
    ports = apart.state().ports
    port = ports["webhook.port"]
    values = (
        IMAGES,
        # Another port of the same name would be a second one next to that of the manager who made the Service.
        f"--set=gateway.port={ports['gateway.port']}",
        f"--set=webhook.url=https://127.0.0.1:{port}",
        "--set=simulation.enabled=true",
        "--set=crds.install=false",
        # No simulated node runs a hook: tests/installation does.
        "--no-hooks",
        "--set=history.persistence.enabled=false",
    )
    before, secret = await bundles(administrator), await secret_of(administrator)
    for step in (
        ("upgrade", "--install", "dovetail", CHART, "--take-ownership", "--force-conflicts", *values),
        ("upgrade", "dovetail", CHART, "--force-conflicts", *values, "--set=operator.replicas=1"),
        ("rollback", "dovetail", "1", "--force-conflicts", "--no-hooks"),
    ):
        done = await asyncio.to_thread(run, "helm", *step, *release)
        assert done.returncode == 0, done.stderr
        assert await bundles(administrator) == before, step[0]
    assert (await secret_of(administrator)).data == secret.data
    assert await is_completed(administrator, namespace="default")


async def test_its_account_may_write_that_secret_and_nothing_by_which_api_servers_trust_it(
    client: Client, sandbox: Cluster
) -> None:
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    hook = {"name": "evil.example", "clientConfig": {"url": "https://evil.example"}, "rules": [everything]}
    conversion = {"spec": {"conversion": {"strategy": "Webhook", "webhook": hook}}}
    other = {"metadata": {"name": "other"}}
    kubeconfig = sandbox.folder / "kubeconfigs" / "certificates"
    async with Client(load_connection(kubeconfig)) as certificates:
        for forbidden in (
            certificates.patch(MUTATING, name="dovetail", patch={"webhooks": [hook]}, as_type=Manifest),
            certificates.get(MUTATING, name="dovetail", as_type=Manifest),
            certificates.patch(CRDS, name="gpuquotas.dovetail.dev", patch=conversion, as_type=Manifest),
            certificates.patch(SECRETS, name=f"{LEAF}-ca", patch={}, as_type=Manifest, namespace=NAMESPACE),
            certificates.delete(SECRETS, name=LEAF, namespace=NAMESPACE),
            certificates.list(SECRETS, as_type=Manifest, namespace=NAMESPACE),
            certificates.get(SECRETS, name="other", as_type=Manifest, namespace=NAMESPACE),
            certificates.create(SECRETS, body=other, as_type=Manifest, namespace=NAMESPACE),
            certificates.apply(
                SECRETS, name="other", body=other, as_type=Manifest, field_manager="x", namespace=NAMESPACE
            ),
            certificates.get(SECRETS, name=LEAF, as_type=Manifest, namespace="default"),
        ):
            with pytest.raises(Forbidden):
                await forbidden
        for name in (LEAF, f"{LEAF}-ca"):
            assert (await secret_of(certificates, name)).data
