"""A real kube-scheduler outside the release calls the extender over mutual TLS, and is refused without a proof."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import EVENTS, PODS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail_sandbox import bringup, cluster, progress
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.installed import chart
from dovetail_sandbox.programs import locate
from tests.authority import Authority, Pair
from tests.background import free_ports

pytestmark = pytest.mark.cluster

SERVER = "dovetail-extender.dovetail-system.svc"
CLIENT = "dovetail-extender-client"
PATIENCE_SECONDS = 60
EXTENDER = (sys.executable, "-c", "from dovetail_extender.main import main; raise SystemExit(main())")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A sandbox without the chart's scheduler, an extender with certificates, and the CA of both sides."""

    sandbox: Cluster
    authority: Authority
    port: int
    folder: Path

    def renew(self) -> None:
        """Give the extender a new certificate."""
        self.authority.sign(SERVER).write(self.folder / "server", authority=self.authority.certificate)

    @asynccontextmanager
    async def scheduler(self, client: Pair | None, *, trusted: bytes | None = None) -> AsyncIterator[Path]:
        """A kube-scheduler with the chart's configuration and this client's certificate; the folder of its files."""
        folder = self.folder / uuid.uuid4().hex
        folder.mkdir()
        authority = trusted or self.authority.certificate
        if client is None:
            (folder / "ca.crt").write_bytes(authority)
        else:
            client.write(folder, authority=authority)
        (port,) = free_ports(count=1)
        config = self._config(folder, with_client=client is not None)
        programs = locate.resolve(["kube-scheduler"], report=progress.reporter())
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                programs["kube-scheduler"], f"--config={config}", f"--secure-port={port}", stdout=log, stderr=log
            )
            try:
                yield folder
            finally:
                process.kill()
                await process.wait()

    def _config(self, folder: Path, *, with_client: bool) -> Path:
        """What the chart prints, with the paths of this machine."""
        values = {
            "image.registry": "x", "attach.enabled": True, "attach.url": f"https://127.0.0.1:{self.port}",
            "attach.clientFolder": str(folder),
        }  # fmt: skip
        helm = locate.resolve(["helm"], report=progress.reporter())["helm"]
        files = chart.render(helm=helm, values=values).files_of("ConfigMap", name="dovetail-scheduler")
        config: dict[str, Any] = yaml.safe_load(files["scheduler.yaml"])
        config["clientConnection"] = {"kubeconfig": str(self.sandbox.kubeconfig)}
        config["leaderElection"] = {"leaderElect": False}
        # The sandbox has another kube-scheduler for all other pods.
        config["profiles"] = [each for each in config["profiles"] if each["schedulerName"] == names.SCHEDULER_NAME]
        if not with_client:
            tls = config["extenders"][0]["tlsConfig"]
            del tls["certFile"], tls["keyFile"]
        path = folder / "scheduler.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path


@pytest.fixture(scope="module")
def attached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attached]:
    """An extender as the chart runs it in attach mode, on a sandbox of its own."""
    own = cluster.get(f"attach-{os.getpid()}-{uuid.uuid4().hex[:4]}")
    folder = tmp_path_factory.mktemp("attached")
    port, metrics_port = free_ports(count=2)
    try:
        up = bringup.up(own.name, report=progress.reporter(), limit_nodes=1, without=["kube-scheduler"])
        # Its own extender ends; this one has the same account.
        up.stop("extender")
        made = Attached(sandbox=up, authority=Authority(), port=port, folder=folder)
        made.renew()
        options = (
            f"--kubeconfig={up.folder / 'kubeconfigs' / 'extender'}",
            f"--port={port}", f"--metrics-port={metrics_port}",
            f"--certificates={folder / 'server'}", f"--client-name={CLIENT}",
        )  # fmt: skip
        with (
            (folder / "extender.log").open("wb") as log,
            subprocess.Popen(
                [*EXTENDER, *options], stdout=log, stderr=log, env={**os.environ, "POD_NAMESPACE": "dovetail-system"}
            ) as extender,
        ):
            try:
                asyncio.run(until_ready(metrics_port))
                yield made
            finally:
                extender.terminate()
    finally:
        own.down()


async def until_ready(port: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS), aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(f"http://127.0.0.1:{port}/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


@pytest.fixture
async def admin(attached: Attached) -> AsyncIterator[Client]:
    async with Client(load_connection(attached.sandbox.kubeconfig)) as client:
        yield client


async def make_pod(client: Client) -> str:
    name = f"pod-{uuid.uuid4().hex[:8]}"
    body = {
        "metadata": {"name": name, "annotations": {names.REQUEST: "0.1"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    await client.create(PODS, body=body, as_type=Pod, namespace="default")
    return name


async def node_of(client: Client, name: str) -> str:
    return (await client.get(PODS, name=name, as_type=Pod, namespace="default")).spec.node_name


async def until_bound(client: Client, name: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await node_of(client, name):  # noqa: ASYNC110 - another program binds it
            await asyncio.sleep(0.1)


async def messages(client: Client, name: str) -> str:
    """What the events say about a pod."""
    found = await client.list(
        EVENTS, as_type=dict[str, Any], namespace="default", field_selector=f"involvedObject.name={name}"
    )
    return "\n".join(f"{each.get('reason')}: {each.get('message')}" for each in found.items)


async def test_a_kube_scheduler_with_its_certificate_places_pods(attached: Attached, admin: Client) -> None:
    async with attached.scheduler(attached.authority.sign(CLIENT)):
        await until_bound(admin, await make_pod(admin))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        # The extender closes the connection: Go reports the alert, the end or the reset, whichever it sees first.
        ("no certificate", "/filter"),
        ("expired", "/filter"),
        ("of another CA", "/filter"),
        ("another name", "code 403"),
        ("the extender is of another CA", "certificate signed by unknown authority"),
    ],
)
async def test_without_a_proof_no_pod_is_placed(attached: Attached, admin: Client, case: str, said: str) -> None:
    pair = {
        "no certificate": None,
        "expired": attached.authority.sign(CLIENT, days=-1),
        "of another CA": Authority().sign(CLIENT),
        "another name": attached.authority.sign("someone"),
        "the extender is of another CA": attached.authority.sign(CLIENT),
    }[case]
    trusted = Authority("another").certificate if case == "the extender is of another CA" else None
    async with attached.scheduler(pair, trusted=trusted) as folder:
        name = await make_pod(admin)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while said not in await messages(admin, name) and said not in (folder / "log").read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        assert not await node_of(admin, name)
        await admin.delete(PODS, name=name, namespace="default")


async def test_a_rotation_of_both_certificates_under_load_fails_no_bind(attached: Attached, admin: Client) -> None:
    async with attached.scheduler(attached.authority.sign(CLIENT)) as folder:
        made = []
        for _ in range(4):
            made += [await make_pod(admin) for _ in range(2)]
            attached.renew()
            attached.authority.sign(CLIENT).write(folder, authority=attached.authority.certificate)
            # Longer than the extender's time between two looks at its files, in sum.
            await asyncio.sleep(3)
        for name in made:
            await until_bound(admin, name)
        said = "\n".join([await messages(admin, name) for name in made])
        assert "Failed" not in said
