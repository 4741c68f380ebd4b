"""MPS on a node, from its daemon to a job's status: supervisor and agent as processes, on stand-ins for NVIDIA's
libraries and for MPS's control program."""

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dovetail.api.builtin import Node
from dovetail.api.gpujob import GPUJobStatus
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import find_condition
from dovetail.api.resources import NODES
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.agent import cuda_stub, nvml_stub
from tests.agent.mps_stub import MpsStub
from tests.agent.nvml_stub import Scenario, card_uuid
from tests.cluster.jobs import Jobs, manifest
from tests.cluster.test_agent import PATIENCE_SECONDS, Scene, advertising, until

pytestmark = pytest.mark.cluster

CARDS = Scenario(model="Tesla V100-SXM2-32GB", figures={0: {"total": 32768}, 1: {"total": 32768}})


@pytest.fixture
async def scene(sandbox: Cluster, client: Client) -> AsyncIterator[Scene]:
    """A node that only this test's job may use, and nobody who serves it."""
    scene = Scene(client, name=f"mps-{uuid.uuid4().hex[:8]}")
    await asyncio.to_thread(sandbox.stop, "agent")
    await scene.create()
    await scene.annotate(simulated_devices=None)
    await client.patch(NODES, name=scene.name, patch={"metadata": {"labels": {"test": scene.name}}}, as_type=Node)
    yield scene
    await scene.remove()
    await asyncio.to_thread(sandbox.start, "agent")
    await scene.gone()


@asynccontextmanager
async def running(sandbox: Cluster, *command: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program of the node on the stand-ins; it ends well when it is told to."""
    played = folder / "nvml"
    played.write_text(CARDS.text(), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *command, "--metrics-port=0",
        env=os.environ
        | {
            "KUBECONFIG": str(sandbox.kubeconfig),
            "LD_LIBRARY_PATH": f"{nvml_stub.built()}:{cuda_stub.built()}",
            "NVML_STUB_SCENARIO": str(played),
        },
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        code = await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)
    assert code == 0


def mps(status: str, reason: str) -> Callable[[GPUNode | None], bool]:
    def holds(gpunode: GPUNode | None) -> bool:
        found = find_condition(gpunode.status.conditions, type="MPS") if gpunode else None
        return found is not None and (found.status, found.reason) == (status, reason)

    return holds


def enforced(status: str, reason: str) -> Callable[[GPUJobStatus], bool]:
    def holds(job: GPUJobStatus) -> bool:
        found = find_condition(job.conditions, type="Enforced")
        return found is not None and (found.status, found.reason) == (status, reason)

    return holds


def half_a_card(scene: Scene) -> dict[str, object]:
    template = manifest("x")["spec"]["template"]
    template["spec"] |= {
        "nodeSelector": {"test": scene.name},
        "tolerations": [{"key": "test", "operator": "Exists"}],
    }
    return {"gpu": "8G,0.5", "template": template}


async def test_shares_are_enforced_by_mps_as_long_as_its_daemon_is_there_and_the_job_is_told(
    sandbox: Cluster, scene: Scene, client: Client, namespace: str, tmp_path: Path
) -> None:
    stub, jobs = MpsStub(tmp_path), Jobs(client, namespace=namespace)
    state = tmp_path / "state" / "mps.json"
    supervisor = (
        "dovetail_agent.mps.main",
        f"--node={scene.name}",
        f"--directory={tmp_path}",
        f"--program={stub.program}",
    )
    agent = ("dovetail_agent.main", f"--node={scene.name}", f"--mps-state={state}")
    async with running(sandbox, *agent, folder=tmp_path):
        await scene.gpunode(mps("False", "Silent"))
        await scene.node(advertising(2000))
        await jobs.submit(**half_a_card(scene))
        await jobs.until("x", enforced("False", "None"))
        async with running(sandbox, *supervisor, folder=tmp_path):
            gpunode = await scene.gpunode(mps("True", "Probed"))
            assert gpunode is not None
            assert gpunode.status.enforcement.mps
            status = await jobs.until("x", enforced("True", "MPS"))
            card = status.devices[0].uuid
            assert card in {card_uuid(0), card_uuid(1)}
            limit = f"set_default_device_pinned_mem_limit {card} 8192M"
            await until(lambda: asyncio.to_thread(lambda: stub.commands), lambda said: limit in (said or []))
            closed = f'"exclusive":["{card}"]'
            await until(lambda: asyncio.to_thread(state.read_text), lambda text: closed in (text or ""))
            stub.play("broken")
            os.kill(daemon_of(tmp_path), signal.SIGKILL)
            await scene.gpunode(mps("False", "Crashed"))
            await jobs.until("x", enforced("False", "None"))
            stub.play()
            await scene.gpunode(mps("True", "Probed"))
            await jobs.until("x", enforced("True", "MPS"))
        await jobs.delete()
        # Before the node: a pod that outlives its node would have devices of none.
        await until(jobs.pods, lambda pods: not pods)


def daemon_of(folder: Path) -> int:
    """The number of the stand-in's daemon, by the pipes that it serves."""
    wanted = f"CUDA_MPS_PIPE_DIRECTORY={folder / 'pipe'}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if b"control.py\0-f" in (entry / "cmdline").read_bytes() and wanted in (entry / "environ").read_bytes():
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError("no control daemon runs")
