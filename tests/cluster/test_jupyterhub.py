"""JupyterHub's KubeSpawner in a real hub, with the profiles of docs/integrations/jupyterhub.md.

A simulated pod runs no notebook server: a stand-in answers for all of them. The hub's proxy, a program of Node.js,
is replaced by one that keeps its routes to itself; the test calls the hub as its pages do.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from dovetail.kube.client import Client
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.background import free_ports
from tests.cluster import clients
from tests.cluster.clients import Program
from tests.cluster.jobs import Jobs
from tests.cluster.test_pod_groups import all_run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CONFIG = clients.recipe("jupyterhub", language="python")
TOKEN = "of-the-tests"
# What only the test has: its namespace and ports, one user, no proxy, the stand-in of the notebooks.
OF_THE_TEST = """
from jupyterhub.proxy import Proxy

class Routes(Proxy):
    should_start = False
    kept = {{}}

    async def add_route(self, routespec, target, data):
        self.kept[routespec] = {{"routespec": routespec, "target": target, "data": data}}

    async def delete_route(self, routespec):
        self.kept.pop(routespec, None)

    async def get_all_routes(self):
        return self.kept

c.JupyterHub.proxy_class = Routes
c.JupyterHub.hub_port = {hub}
c.JupyterHub.bind_url = "http://127.0.0.1:{proxy}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.load_roles = [
    {{"name": "test", "scopes": ["admin:users", "admin:servers"], "services": ["test"]}}
]
c.JupyterHub.services = [{{"name": "test", "api_token": "{token}"}}]
c.KubeSpawner.namespace = "{namespace}"
c.KubeSpawner.pod_connect_ip = "127.0.0.1"
c.KubeSpawner.port = {notebook}
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 0}}
"""


@dataclass(frozen=True, slots=True)
class Hub:
    """A hub with the user rita, as the pages of the hub call it."""

    program: Program
    session: aiohttp.ClientSession

    async def start(self, profile: str) -> None:
        """Start her notebook with a profile of the recipe; 202: it is on its way."""
        async with self.session.post("users/rita/server", json={"profile": profile}) as answer:
            assert answer.status == 202, await answer.text()

    async def progress(self, *, until: str) -> str:
        """What the spawn page shows, up to a text."""
        seen = ""
        async with asyncio.timeout(clients.CLIENT_SECONDS), self.session.get("users/rita/server/progress") as answer:
            async for line in answer.content:
                if line.startswith(b"data:"):
                    seen += json.loads(line.removeprefix(b"data:")).get("message", "") + "\n"
                if until in seen:
                    return seen
        raise AssertionError(f"the spawn page ends without {until!r}: {seen}")

    async def stop(self) -> None:
        """Press "Stop My Server", until the hub accepts it: it refuses while the pod is being created."""
        async with asyncio.timeout(clients.CLIENT_SECONDS):
            while True:
                async with self.session.delete("users/rita/server") as answer:
                    if answer.status in (202, 204):
                        return
                await asyncio.sleep(0.5)


@pytest.fixture
async def hub(sandbox: Cluster, namespace: str, tmp_path: Path) -> AsyncIterator[Hub]:
    hub, proxy, notebook = free_ports(count=3)
    config = OF_THE_TEST.format(hub=hub, proxy=proxy, notebook=notebook, token=TOKEN, namespace=namespace)
    (tmp_path / "jupyterhub_config.py").write_text(CONFIG + config)
    command = (await clients.program_of("kubespawner"), "-m", "jupyterhub")
    async with (
        _notebooks(port=notebook),
        clients.running(*command, folder=tmp_path, sandbox=sandbox) as program,
        aiohttp.ClientSession(
            f"http://127.0.0.1:{hub}/hub/api/", headers={"Authorization": f"token {TOKEN}"}
        ) as session,
    ):
        await program.prints("JupyterHub is now running")
        async with session.post("users/rita") as answer:
            assert answer.status == 201, await answer.text()
        yield Hub(program, session)


async def test_a_notebook_waits_with_the_reason_on_the_spawn_page_starts_and_stops(
    hub: Hub, client: Client, jobs: Jobs
) -> None:
    await jobs.submit("first", workers=8, gpu="1(V100)")
    await jobs.phase("Running", "first")
    await hub.start("v100")
    await hub.progress(until="Need 1 GPU, only 0 available")
    await jobs.delete("first")
    await hub.progress(until="Server ready")
    (pod,) = await clients.until_pods(client, namespace=jobs.namespace, holds=lambda pods: all_run(pods, count=1))
    allocation = allocation_in(pod.metadata.annotations)
    assert allocation is not None
    assert pod.spec.node_name.startswith("v100-")
    await hub.stop()
    await clients.until_pods(client, namespace=jobs.namespace, holds=lambda pods: not pods)
    await clients.until_nothing_is_held(client, namespace=jobs.namespace)


async def test_a_notebook_that_is_stopped_while_it_waits_leaves_nothing(hub: Hub, client: Client, jobs: Jobs) -> None:
    await jobs.submit("first", workers=8, gpu="1(V100)")
    await jobs.phase("Running", "first")
    await hub.start("v100")
    await hub.progress(until="Need 1 GPU, only 0 available")
    await hub.stop()
    await jobs.delete("first")
    await clients.until_pods(client, namespace=jobs.namespace, holds=lambda pods: not pods)
    await clients.until_nothing_is_held(client, namespace=jobs.namespace)


@asynccontextmanager
async def _notebooks(*, port: int) -> AsyncIterator[None]:
    """The stand-in of every notebook server: it answers whatever the hub asks."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.json_response({})

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield
    finally:
        await runner.cleanup()
