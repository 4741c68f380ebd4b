"""The gateway in front of a real API server: what each kind of user sees, does and cannot see."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from itertools import groupby
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from dovetail.api.builtin import ConfigMap
from dovetail.api.resources import CONFIGMAPS, SERVICEACCOUNTS
from dovetail.gpu.device_indexes import CONFIGMAP_NAME, read_indexes
from dovetail.kube.client import Client
from dovetail_sandbox import access
from dovetail_sandbox.cluster import Cluster
from tests import commands
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs
from tests.cluster.tenants import CANARY, token_of
from tests.gateway.openapi import table

pytestmark = pytest.mark.cluster

READS = [each for each in table() if each.method == "GET" and each.stream is None]
# Routes of one object that is not there.
NAMED = {"/api/v3/nodes/{name}", "/api/v2/tasks/{id}"}
# What a route cannot be asked without.
NEEDED = {"/api/v3/devices/then": "?at=2026-11-01T00:10:00Z", "/api/v3/moves": "?jobs={namespace}/mine"}


class Gateway:
    """Asks the sandbox's gateway."""

    def __init__(self, session: aiohttp.ClientSession, *, url: str) -> None:
        self.session = session
        self.url = url

    async def ask(self, method: str, path: str, *, token: str = "", body: Any = None) -> tuple[int, Any, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.session.request(method, self.url + path, headers=headers, json=body) as response:
            text = await response.text()
            return response.status, await response.json(content_type=None), text

    async def until(self, path: str, *, token: str, holds: Any) -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                status, found, _ = await self.ask("GET", path, token=token)
                if status == 200 and holds(found):
                    return found
                await asyncio.sleep(0.05)


@pytest.fixture
async def gateway(sandbox: Cluster) -> AsyncIterator[Gateway]:
    async with aiohttp.ClientSession() as session:
        yield Gateway(session, url=sandbox.status().gateway)


async def account(client: Client, *, namespace: str, name: str) -> str:
    """The token of a new account without any right."""
    await client.create(SERVICEACCOUNTS, body={"metadata": {"name": name}}, as_type=dict[str, Any], namespace=namespace)
    return await access.token_of(client, account=name, namespace=namespace, seconds=600)


async def test_no_answer_names_another_tenants_namespace_and_each_user_gets_what_is_theirs(
    sandbox: Cluster, client: Client, gateway: Gateway, namespace: str, canary: str
) -> None:
    await Jobs(client, namespace=namespace).submit("mine", gpu=1)
    await Jobs(client, namespace=canary).submit(f"{CANARY}-job", gpu=1)
    everyone, own = await token_of(sandbox), await token_of(sandbox, namespace=namespace)
    none = await account(client, namespace=namespace, name="nothing")
    gone = await account(client, namespace=namespace, name="gone")
    await client.delete(SERVICEACCOUNTS, name="gone", namespace=namespace)
    ours = f"/api/v3/jobs?namespace={canary}"
    await gateway.until(ours, token=everyone, holds=lambda found: found["items"][:1] and found["items"][0]["devices"])
    await gateway.until("/api/v3/jobs", token=own, holds=lambda found: found["items"][:1])
    for each in READS:
        path = (each.path + NEEDED.get(each.path, "")).format(namespace=namespace, name="mine", id="mine")
        for token, expected in ((own, 200), (none, 403), (gone, 401)):
            status, _, text = await gateway.ask("GET", path, token=token)
            assert CANARY not in text, (path, expected)
            allowed = {expected, 404} if each.path in NAMED and expected == 200 else {expected}
            if each.right.by == "reviews":
                assert status in allowed, (path, text)
    status, found, _ = await gateway.ask("GET", f"/api/v3/jobs/{canary}/{CANARY}-job", token=own)
    assert (status, found["reason"]) == (404, "NotFound")
    status, found, _ = await gateway.ask("GET", "/api/v3/devices", token=own)
    assert [device["others"] for device in found["items"] if device["others"]], "the canary holds a device, as a sum"


async def test_the_commands_ask_the_gateway_for_who_may_not_list_everything(
    sandbox: Cluster, client: Client, gateway: Gateway, namespace: str, canary: str, tmp_path: Path
) -> None:
    await Jobs(client, namespace=canary).submit(f"{CANARY}-job", gpu="4(V100)", workers=2)
    await Jobs(client, namespace=namespace).submit("mine", gpu="4(V100)", workers=2)
    token = await token_of(sandbox, namespace=namespace)
    waits = f"/api/v3/jobs/{namespace}/mine/position"
    await gateway.until(waits, token=token, holds=lambda found: found["position"] is not None)
    kubeconfig = kubeconfig_of(sandbox, token=token, namespace=namespace, folder=tmp_path)

    async def run(*words: str, gateway: str = "") -> tuple[int, str]:
        command = [*commands.dovetail(), *words]
        own = {"DOVETAIL_GATEWAY": gateway, "XDG_CONFIG_HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig)}
        env = {**os.environ, **own}
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, env=env, timeout=120)
        assert CANARY not in done.stdout + done.stderr
        return done.returncode, done.stdout + done.stderr

    code, said = await run("explain", "job", "mine", "--gateway", gateway.url)
    assert (code, "waits" in said, "What would have to change" in said) == (0, True, True), said
    code, said = await run("explain", "job", "mine")
    assert (code, "dovetail config set gateway URL" in said) == (1, True), said
    code, said = await run("quota")
    assert (code, "dovetail config set gateway URL" in said) == (1, True), said
    code, said = await run("quota", "-o", "json", gateway=gateway.url)
    assert (code, json.loads(said)) == (0, []), said
    async with asyncio.timeout(PATIENCE_SECONDS):
        # Jobs of earlier tests may still be leaving the node.
        while "It would start now on a100-0 (2 GPUs)." not in said:
            code, said = await run("gbatch", "--dry-run", "-g", "2(A100)", "true", gateway=gateway.url)
            assert code == 0, said


def kubeconfig_of(sandbox: Cluster, *, token: str, namespace: str, folder: Path) -> Path:
    """The sandbox's kubeconfig with this token as its user."""
    document = yaml.safe_load(sandbox.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    document["contexts"][0]["context"]["namespace"] = namespace
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


async def test_a_job_by_rest_is_the_callers_and_a_retry_makes_no_second_one(
    sandbox: Cluster, client: Client, gateway: Gateway, namespace: str
) -> None:
    token = await token_of(sandbox, namespace=namespace)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "busybox"}]}}
    body = {"namespace": namespace, "name": "made", "spec": {"gpu": 1, "template": template}}
    status, found, _ = await gateway.ask("POST", "/api/v3/jobs", token=token, body=body)
    assert status == 201
    assert found["user"] == f"system:serviceaccount:{namespace}:{access.USER}"
    status, found, _ = await gateway.ask("POST", "/api/v3/jobs", token=token, body=body)
    assert (status, found["reason"]) == (409, "AlreadyExists")
    wrong = {**body, "name": "wrong", "spec": {"gpu": 1, "colour": "red", "template": template}}
    status, found, _ = await gateway.ask("POST", "/api/v3/jobs", token=token, body=wrong)
    assert (status, "colour" in found["detail"]) == (400, True)
    path = f"/api/v3/jobs/{namespace}/made"
    await gateway.until(path, token=token, holds=lambda found: found["row"]["phase"] == "Running")
    status, found, _ = await gateway.ask("GET", f"{path}/explain", token=token)
    assert (status, found["state"]) == (200, "placed")
    await gateway.ask("POST", f"{path}/cancel", token=token)
    await gateway.until(path, token=token, holds=lambda found: found["row"]["phase"] == "Cancelled")


async def test_an_allocation_by_rest_holds_its_devices_until_it_is_released(sandbox: Cluster, gateway: Gateway) -> None:
    token, root = await token_of(sandbox), "/api/v1/gpu"
    wanted = {"gpu_count": 2, "gpu_type": "A100", "memory_gb": 80}

    def is_free(found: Any) -> bool:
        return any(node["node_name"] == "a100-0" and node["available_gpus"] == 2 for node in found["available_nodes"])

    # Tests before this one may still hold them, and an allocation waits for 5 s only.
    await gateway.until(f"{root}/status", token=token, holds=is_free)
    status, found, text = await gateway.ask("POST", f"{root}/allocate", token=token, body=wanted)
    assert (status, found["success"]) == (200, True), text
    assert (found["node_name"], found["gpu_config"]["gpu_count"]) == ("a100-0", 2)
    status, refused, _ = await gateway.ask("POST", f"{root}/allocate", token=token, body=wanted)
    assert (status, refused["success"], refused["reason"]) == (409, False, "Resources")
    name = found["allocation_id"]
    status, released, _ = await gateway.ask("DELETE", f"{root}/allocations/{name}", token=token)
    assert (status, released["released"]) == (200, True)
    await gateway.until(f"{root}/status", token=token, holds=is_free)


TRAINING = {"model": "m", "num_classes": 2, "train_path": "/t", "val_path": "/v", "save_path": "/s"}


@pytest.fixture
async def tasks(sandbox: Cluster, gateway: Gateway) -> AsyncIterator["TaskCalls"]:
    """v2 as the sandbox's user; the tasks that a test has started are deleted."""
    calls = TaskCalls(gateway, token=await token_of(sandbox))
    yield calls
    for name in calls.started:
        await gateway.ask("DELETE", f"/api/v3/jobs/default/{name}", token=calls.token)


class TaskCalls:
    """Calls of v2."""

    def __init__(self, gateway: Gateway, *, token: str) -> None:
        self.gateway = gateway
        self.token = token
        self.started: list[str] = []

    async def post(self, path: str, *, body: Any = None) -> Any:
        status, found, text = await self.gateway.ask("POST", f"/api/v2/{path}", token=self.token, body=body)
        assert status == 200, text
        return found

    async def train(self, **fields: Any) -> Any:
        found = await self.post("training/start", body=TRAINING | fields)
        self.started.append(found["task_id"])
        return found

    async def until(self, path: str, *, holds: Any) -> Any:
        return await self.gateway.until(f"/api/v2/{path}", token=self.token, holds=holds)

    async def until_is(self, name: str, status: str) -> Any:
        return await self.until(f"tasks/{name}", holds=lambda found: found["status"] == status)

    async def device(self, node: str, index: int) -> Any:
        shown = await self.until("resources/gpu", holds=lambda found: found["available"])
        return next(row for row in shown["devices"] if (row["node"], row["index"]) == (node, index))


async def test_devices_are_numbered_node_by_node_and_no_other_device_exists(client: Client, tasks: TaskCalls) -> None:
    shown = await tasks.until("resources/gpu", holds=lambda found: found["available"])
    stored = await client.get(CONFIGMAPS, name=CONFIGMAP_NAME, as_type=ConfigMap, namespace="dovetail-system")
    numbers = read_indexes(stored.data)
    # Nodes that other tests have added and removed have numbers of their own.
    nodes = {row["node"] for row in shown["devices"]}
    there = [at for at in range(len(numbers)) if numbers[at].node in nodes]
    # In the order of names are the nodes that report within two seconds: on a busy machine, not all of them.
    of_nodes = [list(rows) for _, rows in groupby((numbers[at] for at in there), key=lambda device: device.node)]
    assert len(of_nodes) == len(nodes)
    assert all(rows == sorted(rows) for rows in of_nodes)
    known = f"{shown['count']} GPUs (cuda:{there[0]}, cuda:{there[1]}, "
    status, refused, _ = await tasks.gateway.ask(
        "POST", "/api/v2/training/start", token=tasks.token, body=TRAINING | {"device": f"cuda:{len(numbers)}"}
    )
    assert (status, refused["reason"]) == (422, "NoSuchDevice")
    assert f"does not exist: this cluster has {known}" in refused["detail"]


async def test_a_task_runs_on_the_device_that_it_names_and_a_cancel_is_idempotent(tasks: TaskCalls) -> None:
    device = await tasks.device("v100-0", 1)
    started = await tasks.train(device=device["device_name"], lr=0.1)
    running = await tasks.until_is(started["task_id"], "running")
    assert (started["device"], running["device"], running["node"]) == (*[device["device_name"]] * 2, "v100-0")

    def is_promised(found: Any) -> bool:
        return any(row["id"] == device["id"] and row["allocated_memory_gb"] == 4 for row in found["devices"])

    await tasks.until("resources/gpu", holds=is_promised)
    for _ in range(2):
        await tasks.post(f"tasks/{started['task_id']}/cancel")
    await tasks.until_is(started["task_id"], "cancelled")
    await tasks.post(f"tasks/{started['task_id']}/cancel")


async def test_a_higher_limit_starts_the_task_that_waits_for_it(tasks: TaskCalls) -> None:
    name = (await tasks.device("v100-0", 2))["device_name"]
    first = await tasks.train(device=name)
    await tasks.until_is(first["task_id"], "running")
    second = await tasks.train(device=name)
    assert (second["status"], second["device"]) == ("pending", name)
    changed = await tasks.post("resources/config", body={"max_concurrent": {name: {"training": 2}}})
    assert changed["limits"][name] == {"training": 2, "inference": 3}
    await tasks.until_is(second["task_id"], "running")
    await tasks.post("resources/config", body={"max_concurrent": {name: {"training": 1}}})
