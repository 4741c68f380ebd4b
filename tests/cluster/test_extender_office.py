"""One extender acts: a holder that is stopped while another takes over binds nothing when it goes on."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Lease, Pod
from dovetail.api.resources import LEASES, PODS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden
from dovetail_sandbox import credential
from dovetail_sandbox.cluster import Cluster
from tests.background import free_ports
from tests.cluster.gate import Forward, Gate, Write
from tests.cluster.killing import paused
from tests.cluster.test_extender import NO_NODE, PATIENCE_SECONDS, Scene, scene, until

pytestmark = pytest.mark.cluster

__all__ = ["scene"]

PROGRAM = (sys.executable, "-c", "from dovetail_extender.main import main; raise SystemExit(main())")


@asynccontextmanager
async def another_extender(
    sandbox: Cluster, *, port: int, name: str = "another", config: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """An extender of the test's own with the rights of the sandbox's; it takes its leave at the end."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        f"--kubeconfig={config or kubeconfig(sandbox)}",
        f"--port={port}",
        env={**os.environ, "POD_NAME": name, "POD_NAMESPACE": "dovetail-system"},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        for number in (signal.SIGCONT, signal.SIGTERM):
            process.send_signal(number)
        await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)


@asynccontextmanager
async def without_the_sandbox_s_own(sandbox: Cluster) -> AsyncIterator[None]:
    """The sandbox's extender stays away meanwhile."""
    await asyncio.to_thread(sandbox.stop, "extender")
    try:
        yield
    finally:
        await asyncio.to_thread(sandbox.start, "extender")


def by_way_of(gate: Gate, *, folder: Path) -> Path:
    """The extender's kubeconfig, with the gate in the API server's place."""
    document = yaml.safe_load(kubeconfig(gate.sandbox).read_text())
    document["clusters"][0]["cluster"] = {"server": gate.url}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def kubeconfig(sandbox: Cluster) -> Path:
    return sandbox.kubeconfig.with_name("kubeconfigs") / "extender"


async def lease(client: Client) -> Lease:
    return await client.get(LEASES, name=names.EXTENDER_LEASE, as_type=Lease, namespace="dovetail-system")


async def post(port: int, verb: str, body: dict[str, Any]) -> tuple[int, str]:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        return await post_by(http, verb, body)


async def post_by(http: aiohttp.ClientSession, verb: str, body: dict[str, Any]) -> tuple[int, str]:
    try:
        async with http.post(f"/{verb}", json=body) as response:
            return response.status, await response.text()
    except aiohttp.ClientError as error:
        return 0, str(error)


@asynccontextmanager
async def client_of(sandbox: Cluster) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the sandbox's extender that is connected already: the handshake needs an answer, the request none."""
    url = f"https://127.0.0.1:{sandbox.state().ports['extender.port']}"
    connector = aiohttp.TCPConnector(ssl=credential.client_context(sandbox.credential))
    async with aiohttp.ClientSession(url, connector=connector) as http:
        async with http.get("/livez") as response:
            assert response.status == 200
        yield http


def binding(pod: Pod, *, node: str) -> dict[str, str]:
    meta = pod.metadata
    return {"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": node}


async def test_a_holder_that_was_stopped_binds_nothing_while_another_is_in_office(scene: Scene) -> None:
    first, second = [await scene.create(name, "2", milli=2000, model=NO_NODE) for name in ("first", "second")]
    old, (port,) = scene.sandbox.pid("extender"), free_ports(count=1)
    before = (await lease(scene.client)).spec.lease_transitions
    assert before is not None
    async with client_of(scene.sandbox) as http, paused(old):
        # Its kernel takes the request; the process finds it when it goes on.
        asked = asyncio.create_task(post_by(http, "bind", binding(first, node="a100-0")))
        async with another_extender(scene.sandbox, port=port):
            found = await until(lambda: lease(scene.client), lambda each: each.spec.holder_identity == "another")
            assert found.spec.lease_transitions == before + 1
            answer = await until(
                lambda: post(port, "bind", binding(second, node="v100-0")), lambda each: each[0] == 200
            )
            assert answer == (200, '{"Error":""}')
            os.kill(old, signal.SIGCONT)
            status, said = await asked
            # There is room for it: that its time in office is over is all that keeps it from binding.
            assert "lease" in said or status == 0, said
            assert not (
                await scene.client.get(PODS, name="first", as_type=Pod, namespace=scene.namespace)
            ).spec.node_name
            # kube-scheduler asks only the old one. The other one gets no request and releases the lease.
            await scene.create("third", "0.5", milli=500)
            await scene.is_bound("third")
            assert (await lease(scene.client)).spec.lease_transitions == before + 2
    await asyncio.to_thread(scene.sandbox.wait_ready, ["extender"])


async def test_a_bind_that_was_checked_and_is_sent_when_another_is_in_office_is_refused(
    scene: Scene, tmp_path: Path
) -> None:
    first, second = [await scene.create(name, "2", milli=2000, model=NO_NODE) for name in ("first", "second")]
    port, other_port = free_ports(count=2, taken=scene.sandbox.state().ports.values())
    held, late = asyncio.Event(), asyncio.Event()
    answers: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

    async def stop_the_sender(write: Write, forward: Forward) -> tuple[int, bytes]:
        if not write.path.endswith("/first/binding"):
            return await forward()
        old.send_signal(signal.SIGSTOP)
        held.set()
        await late.wait()
        answer = await forward()
        answers.put_nowait(answer)
        return answer

    gate = Gate(sandbox=scene.sandbox, keeper=stop_the_sender, kubeconfig=kubeconfig(scene.sandbox))
    async with without_the_sandbox_s_own(scene.sandbox), gate.open():
        config = by_way_of(gate, folder=tmp_path)
        async with another_extender(scene.sandbox, port=port, name="old", config=config) as old:
            bind = binding(first, node="a100-0")
            asked = asyncio.create_task(until(lambda: post(port, "bind", bind), lambda each: each[0] == 200))
            await asyncio.wait_for(held.wait(), PATIENCE_SECONDS)
            async with another_extender(scene.sandbox, port=other_port):
                body = binding(second, node="v100-0")
                answer = await until(lambda: post(other_port, "bind", body), lambda each: each[0] == 200)
                assert answer == (200, '{"Error":""}')
                late.set()
                code, said = await asyncio.wait_for(answers.get(), PATIENCE_SECONDS)
                assert (code, b"of the lease dovetail-extender" in said) == (403, True), said
                asked.cancel()
    assert not (await scene.client.get(PODS, name="first", as_type=Pod, namespace=scene.namespace)).spec.node_name


async def test_what_was_sent_in_an_earlier_term_is_refused_whenever_it_arrives(scene: Scene) -> None:
    pod = await scene.create("late", "2", milli=2000, model=NO_NODE)
    term = (await lease(scene.client)).spec.lease_transitions
    assert term is not None
    allocation = '{"version":1,"node":"a100-0","mode":"Exclusive","containers":[]}'
    annotations = {names.ALLOCATION: allocation, names.TERM: str(term - 1)}
    async with Client(load_connection(kubeconfig(scene.sandbox))) as extender:
        with pytest.raises(
            Forbidden, match=f'this Binding is of term "{term - 1}" of the lease {names.EXTENDER_LEASE}'
        ):
            await extender.bind(pod, node="a100-0", annotations=annotations, deadline_seconds=PATIENCE_SECONDS)
        await extender.bind(
            pod, node="a100-0", annotations=annotations | {names.TERM: str(term)}, deadline_seconds=PATIENCE_SECONDS
        )
