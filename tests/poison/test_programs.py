"""The real programs against objects that ended them once: they stay ready, and serve what others have stored.

Each object is there before the program lists, and comes once more while it watches.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from dovetail import names
from tests.background import free_ports
from tests.core.hostile import nested
from tests.extender.builders import asking, make_gpunode, make_node, make_pod
from tests.poison.api_server import DEEP, ApiServer

LEVELS = 1_100
DIGITS = 5_000
NODE = "a"
PATIENCE_SECONDS = 60
DEVICE = '{"uuid":"a-0","index":0,"shareMilli":500,"memoryMiB":1024}'
ALLOCATION = f'{{"node":"a","mode":"Fractional","containers":[{{"index":0,"devices":[{DEVICE}]}}],"version":1}}'


def poison_pods() -> list[dict[str, Any]]:
    """Each annotation that was once read without care, in a pod that is on the node; and deep managed fields."""
    hostile = {
        names.PLAN: nested(LEVELS), names.ALLOCATION: nested(LEVELS), names.PRIORITY: "9" * DIGITS,
        names.COMPLETION_INDEX: "9" * DIGITS, names.REQUEST: "9" * DIGITS,
    }  # fmt: skip
    pods = []
    for number, (annotation, text) in enumerate(hostile.items()):
        pod = make_pod(f"mallory-{number}", nodeName=NODE, schedulerName="dovetail")
        pod["metadata"] |= {"namespace": "evil", "annotations": {annotation: text}}
        pods.append(pod)
    deep = make_pod("mallory-deep", nodeName=NODE)
    deep["metadata"] |= {"namespace": "evil", "managedFields": [{"manager": "m", "fieldsV1": DEEP}]}
    return [*pods, deep]


def poison_jobs() -> list[dict[str, Any]]:
    template = {"metadata": {"namespace": "evil", "name": "mallory"}, "spec": {"gpu": "1", "template": {"spec": DEEP}}}
    container = {"name": "main", "image": "x", "args": DEEP}
    inside = {"spec": {"containers": [container]}}
    return [template, {"metadata": {"namespace": "evil", "name": "odd"}, "spec": {"gpu": "1", "template": inside}}]


def healthy_job(name: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    return {"metadata": {"namespace": "team", "name": name}, "spec": {"gpu": "1", "template": template}}


def healthy_pod(name: str) -> dict[str, Any]:
    pod = make_pod(name, gpu="0.5", milli=500, nodeName=NODE)
    pod["metadata"] |= {"namespace": "team"}
    pod["metadata"]["annotations"][names.ALLOCATION] = ALLOCATION
    pod["status"] = {"phase": "Running"}
    return pod


def store_poison(api: ApiServer) -> None:
    for pod in poison_pods():
        api.put("pods", pod)
    for job in poison_jobs():
        api.put("gpujobs", job)
    overuse = {
        "namespace": "evil", "name": "x", "uid": "a/b", "device": "a-0", "index": 0, "promisedMiB": 1, "usedMiB": 2,
        "since": "2026-11-22T00:00:00Z", "evict": True,
    }  # fmt: skip
    gpunode = make_gpunode(NODE)
    gpunode["status"]["overuses"] = [overuse]
    api.put("gpunodes", gpunode)


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as server:
        node = make_node(NODE)
        node["metadata"]["annotations"] = {names.SIMULATED_DEVICES: '{"model":"V100","count":2,"memoryMiB":32768}'}
        server.put("nodes", node)
        store_poison(server)
        yield server


@pytest.fixture
def kubeconfig(api: ApiServer, tmp_path: Path) -> str:
    path = tmp_path / "kubeconfig.yaml"
    cluster, context = {"name": "x", "cluster": {"server": api.url}}, {"cluster": "x", "user": "x"}
    document = {
        "apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [{"name": "x"}],
        "contexts": [{"name": "x", "context": context}], "current-context": "x",
    }  # fmt: skip
    path.write_text(yaml.safe_dump(document))
    return f"--kubeconfig={path}"


class Program:
    """A process of ours, and its health port."""

    def __init__(self, process: asyncio.subprocess.Process, *, port: int, http: aiohttp.ClientSession) -> None:
        self._process = process
        self._http = http
        self.url = f"http://127.0.0.1:{port}"

    async def get(self, path: str) -> tuple[int, str]:
        assert self._process.returncode is None, f"it has ended with {self._process.returncode}"
        with suppress(aiohttp.ClientConnectionError):
            async with self._http.get(f"{self.url}{path}") as response:
                return response.status, await response.text()
        return 0, ""

    async def filter(self, pod: dict[str, Any]) -> Any:
        async with self._http.post(f"{self.url}/filter", json=asking(pod, NODE)) as response:
            return await response.json()

    async def until(self, fulfilled: Callable[[], bool]) -> None:
        """Wait for what the program does, for as long as it is alive."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not fulfilled():
                assert self._process.returncode is None, f"it has ended with {self._process.returncode}"
                await asyncio.sleep(0.05)

    async def until_ready(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self.get("/readyz"))[0] != 200:  # noqa: ASYNC110 - the program has no event for us
                await asyncio.sleep(0.05)

    async def counted(self, kind: str) -> float:
        _status, text = await self.get("/metrics")
        start = f'dovetail_unreadable_objects_total{{kind="{kind}"}} '
        return next((float(line.removeprefix(start)) for line in text.splitlines() if line.startswith(start)), 0.0)


@asynccontextmanager
async def started(module: str, *options: str, port: int, reads_pods: bool = False) -> AsyncIterator[Program]:
    """A program of ours; `reads_pods` as agent.readPods has it, where agents meet what users store themselves."""
    code = f"import sys; from {module} import main; sys.exit(main())"
    env = os.environ | {"POD_NAME": "one", "POD_NAMESPACE": "dovetail-system"}
    env |= {"DOVETAIL_AGENTS_READ_PODS": str(reads_pods).lower()}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, *options, env=env)
    try:
        async with aiohttp.ClientSession() as http:
            yield Program(process, port=port, http=http)
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)


async def test_the_extender_answers(api: ApiServer, kubeconfig: str) -> None:
    (port,) = free_ports(count=1)
    async with started("dovetail_extender.main", kubeconfig, f"--port={port}", port=port) as extender:
        await extender.until_ready()
        store_poison(api)
        api.put("pods", healthy_pod("held"))
        answer = await extender.filter(make_pod("healthy"))
        assert answer["NodeNames"] == [NODE]
        assert (await extender.filter(poison_pods()[0]))["NodeNames"] is not None
        await extender.until_ready()
        assert await extender.counted("GPUJob") >= 2
        assert await extender.counted("Pod") == 0, "of each pod everything that matters can be read"


async def test_the_operator_starts_the_other_jobs(api: ApiServer, kubeconfig: str) -> None:
    (port,) = free_ports(count=1)
    api.put("gpujobs", healthy_job("listed"))
    async with started("dovetail_operator.main", kubeconfig, f"--metrics-port={port}", port=port) as operator:
        await operator.until_ready()
        await operator.until(lambda: any(key.startswith("team/listed") for key in api.objects["jobs"]))
        store_poison(api)
        api.put("gpujobs", healthy_job("watched"))
        await operator.until(lambda: any(key.startswith("team/watched") for key in api.objects["jobs"]))
        api.put("pods", healthy_pod("held"))
        await operator.until(lambda: _told(api, "held"))
        await operator.until_ready()
        assert await operator.counted("GPUJob") >= 2


async def test_the_agent_reports_its_node(api: ApiServer, kubeconfig: str) -> None:
    (port,) = free_ports(count=1)
    options = ("--provider=simulated", f"--node={NODE}", f"--metrics-port={port}")
    async with started("dovetail_agent.main", kubeconfig, *options, port=port, reads_pods=True) as agent:
        await agent.until_ready()
        assert api.objects["gpunodes"][NODE]["status"]["provider"] == "simulated"
        before = _writes(api)
        store_poison(api)
        api.put("pods", healthy_pod("held"))
        await agent.until(lambda: _writes(api) > before)
        await agent.until_ready()


async def test_the_mps_supervisor_lists_its_tenants(api: ApiServer, kubeconfig: str, tmp_path: Path) -> None:
    (port,) = free_ports(count=1)
    options = (f"--directory={tmp_path / 'mps'}", f"--node={NODE}", f"--metrics-port={port}", "--program=/bin/false")
    listed = tmp_path / "mps" / "state" / "tenants.json"
    async with started("dovetail_agent.mps.main", kubeconfig, *options, port=port, reads_pods=True) as mps:
        await mps.until(listed.exists)
        store_poison(api)
        api.put("pods", healthy_pod("held"))
        await mps.until(lambda: "uid-held" in listed.read_text())
        assert (await mps.get("/livez"))[0] == 200


def _told(api: ApiServer, name: str) -> bool:
    """Whether the node's programs hear of that pod with its device."""
    tenants = api.objects["gpunodetenants"].get(NODE, {}).get("spec", {}).get("tenants", [])
    return any(each["name"] == name and each.get("devices") for each in tenants)


def _writes(api: ApiServer) -> int:
    return sum(target.plural == "gpunodes" for _method, target in api.writes)
