"""Devices that must not be trusted: cordoned by hand, used by strangers, or ill; and the doctor's round."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Event, Node
from dovetail.api.gpujob import GPUJobStatus
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpunodetenants import GPUNodeTenants
from dovetail.api.resources import EVENTS, GPUNODES, GPUNODETENANTS, NODES
from dovetail.kube.client import Client
from dovetail_agent.guards.strangers_feature import GRACE
from dovetail_sandbox.cluster import Cluster
from tests import commands
from tests.cluster.gate import PROGRAM
from tests.cluster.jobs import Jobs, condition

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 60
FIRST, SECOND = "t4-0", "t4-1"


@pytest.fixture
async def dovetail(sandbox: Cluster) -> AsyncIterator[Callable[..., Any]]:
    """`dovetail …` as a person types it: exit code and output. In the end no T4 is cordoned."""

    async def run(*words: str, kubeconfig: Path | None = None) -> tuple[int, str]:
        command = [*commands.dovetail(), *words, "--kubeconfig", str(kubeconfig or sandbox.kubeconfig)]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode()

    yield run
    await run("uncordon", f"{FIRST}:all", f"{SECOND}:all")


@pytest.fixture
async def annotate(client: Client) -> AsyncIterator[Callable[..., Any]]:
    """Give a T4 node strangers or faults; in the end it has none."""

    async def set_to(node: str, annotation: str, value: object) -> None:
        text = None if value is None else json.dumps(value)
        await client.patch(NODES, name=node, patch={"metadata": {"annotations": {annotation: text}}}, as_type=Node)

    yield set_to
    for node in (FIRST, SECOND):
        for annotation in (names.SIMULATED_STRANGERS, names.SIMULATED_FAULTS):
            await set_to(node, annotation, None)
        await reported(client, node, lambda gpunode: all(each.health == "Healthy" for each in gpunode.status.devices))


async def reported(client: Client, node: str, holds: Callable[[GPUNode], bool]) -> GPUNode:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await client.get(GPUNODES, name=node, as_type=GPUNode)
            if holds(found):
                return found
            await asyncio.sleep(0.1)


async def told(client: Client, reason: str, about: str) -> Event:
    """The first event of that reason about a node."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            events = (await client.list(EVENTS, as_type=Event, namespace="default")).items
            found = [each for each in events if each.reason == reason and each.involved_object.name == about]
            if found:
                return found[0]
            await asyncio.sleep(0.1)


async def test_cordoned_devices_and_those_that_strangers_use_take_no_work_until_they_are_free_again(
    client: Client, jobs: Jobs, dovetail: Callable[..., Any], annotate: Callable[..., Any]
) -> None:
    assert (await dovetail("cordon", f"{SECOND}:0-1"))[0] == 0
    await annotate(FIRST, names.SIMULATED_STRANGERS, {"0": {"memoryMiB": 100}, "1": {"memoryMiB": 100}})
    await reported(client, FIRST, lambda gpunode: all(each.taint == "Strangers" for each in gpunode.status.devices))
    assert "it takes no new work meanwhile" in (await told(client, "StrangerOnGPU", FIRST)).message
    await jobs.submit(gpu="1(T4)", run=1)
    waits = await jobs.phase("Queued", reason="NodeUnhealthy")
    assert f"on node {FIRST} is used by processes without an allocation" in waits.message
    await annotate(FIRST, names.SIMULATED_STRANGERS, None)
    assert (await jobs.phase("Succeeded")).nodes == [FIRST]


async def test_nobody_is_a_stranger_while_the_operator_is_away(
    client: Client, sandbox: Cluster, annotate: Callable[..., Any]
) -> None:
    """A process that the list of tenants does not explain may be of a newer pod: the agent asks, and waits."""
    await asyncio.to_thread(sandbox.stop, "operator")
    try:
        answered = (await client.get(GPUNODETENANTS, name=FIRST, as_type=GPUNodeTenants)).spec.answers
        await annotate(FIRST, names.SIMULATED_STRANGERS, {"0": {"memoryMiB": 100}})
        await reported(client, FIRST, lambda gpunode: gpunode.status.tenants_asked > answered)
        # The look that follows the grace is the one that would judge.
        await asyncio.sleep(GRACE.total_seconds() + 3)
        gpunode = await client.get(GPUNODES, name=FIRST, as_type=GPUNode)
        assert [(each.strangers, each.taint) for each in gpunode.status.devices] == [([], "")] * 2
    finally:
        await asyncio.to_thread(sandbox.start, "operator")
    await reported(client, FIRST, lambda gpunode: gpunode.status.devices[0].taint == "Strangers")


async def test_a_cordon_is_said_again_without_harm_and_what_does_not_exist_is_refused_whole(
    client: Client, dovetail: Callable[..., Any]
) -> None:
    for changed in (True, False):
        code, text = await dovetail("cordon", f"{FIRST}:1", "-o", "json")
        assert (code, [(row["index"], row["changed"]) for row in json.loads(text)]) == (0, [(1, changed)])
    code, text = await dovetail("cordon", f"{FIRST}:0", f"{FIRST}:9")
    assert (code, f"{FIRST} has no device 9; of devices it has 2 (0 to 1)" in text) == (3, True)
    gpunode = await client.get(GPUNODES, name=FIRST, as_type=GPUNode)
    assert gpunode.spec.cordoned == [gpunode.status.devices[1].uuid]


@pytest.fixture
async def restarting(sandbox: Cluster) -> AsyncIterator[None]:
    """The operator with another policy for bad cards, in the place of the sandbox's own."""
    await asyncio.to_thread(sandbox.stop, "operator")
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "--metrics-port=0", "--kubeconfig", str(sandbox.folder / "kubeconfigs" / "operator"),
        env=os.environ | {"DOVETAIL_BAD_CARD": "Restart", "POD_NAMESPACE": "dovetail-system"},
    )  # fmt: skip
    try:
        yield
        process.terminate()
        assert await asyncio.wait_for(process.wait(), PATIENCE_SECONDS) == 0
    finally:
        await asyncio.to_thread(sandbox.start, "operator")
    await asyncio.to_thread(sandbox.wait_ready, ["operator"])


async def test_a_job_whose_card_falls_ill_is_told_and_by_policy_goes_on_elsewhere_at_no_retrys_cost(
    client: Client, restarting: None, jobs: Jobs, annotate: Callable[..., Any]
) -> None:
    await jobs.submit(gpu="1(T4)", backoffLimit=0)
    (device,) = (await jobs.phase("Running")).devices
    await annotate(device.node, names.SIMULATED_FAULTS, {str(device.index): "Xid79FellOffTheBus"})
    sentence = f"GPU {device.index} of {device.node} ({device.uuid}) is unhealthy: Xid79FellOffTheBus"
    assert sentence in [event.message for event in await jobs.announced("BadCard")]
    moved = await jobs.until("x", lambda status: runs_well_elsewhere(status, than=device.uuid))
    assert moved.workers_failed == 0
    assert (
        "is unhealthy: Xid79FellOffTheBus; it takes no new work" in (await told(client, "BadGPU", device.node)).message
    )


def runs_well_elsewhere(status: GPUJobStatus, *, than: str) -> bool:
    devices = [each.uuid for each in status.devices]
    runs = status.phase == "Running" and len(devices) == 1 and devices != [than]
    return runs and condition(status, "DevicesHealthy") == ("True", "Healthy")


async def test_the_doctor_finds_nothing_wrong_with_the_sandbox_and_what_is_wrong_with_a_node(
    dovetail: Callable[..., Any], client: Client, annotate: Callable[..., Any]
) -> None:
    code, text = await dovetail("doctor")
    assert (code, "0 errors" in text) == (0, True), text
    await annotate(SECOND, names.SIMULATED_FAULTS, {"0": "GpuIsLost"})
    await reported(client, SECOND, lambda gpunode: gpunode.status.devices[0].health == "Unhealthy")
    _, text = await dovetail("doctor", SECOND, "-o", "json")
    found = [each for each in json.loads(text)["items"] if each["level"] == "warning" and each["check"] == "node"]
    assert [(each["subject"], each["message"]) for each in found] == [(SECOND, "GPU 0 is unhealthy: GpuIsLost")]
    assert (await dovetail("doctor", "no-such-node"))[0] == 3
