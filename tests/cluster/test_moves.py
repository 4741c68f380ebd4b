"""`dovetail move plan` on a sandbox: what it says holds once a person does it by hand."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import Jobs

pytestmark = pytest.mark.cluster
Plan = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def plan(sandbox: Cluster, namespace: str) -> Plan:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        where = ["--kubeconfig", str(sandbox.kubeconfig), "--namespace", namespace]
        command = [sys.executable, "-m", "dovetail_cli", "move", "plan", *words, *where]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    return run


@pytest.fixture
async def scattered(client: Client, namespace: str) -> Any:
    """Jobs `x` and `y` on one V100 each, of different nodes, and `big`, which waits for all four of one."""
    jobs = Jobs(client, namespace=namespace)
    await jobs.submit("x", gpu="1(V100)", checkpointIntervalSeconds=600)
    await jobs.phase("Running", "x")
    await jobs.submit("fills", gpu="3(V100)")
    await jobs.phase("Running", "fills")
    await jobs.submit("y", gpu="1(V100)")
    await jobs.phase("Running", "y")
    await jobs.delete("fills")
    await jobs.submit("big", gpu="4(V100)")
    await jobs.phase("Queued", "big", reason="Fragmentation")
    yield jobs
    await jobs.clear()


async def test_a_plan_that_a_person_carries_out_starts_the_job(scattered: Jobs, plan: Plan) -> None:
    nodes = {name: (await scattered.until(name, lambda status: bool(status.nodes))).nodes[0] for name in ("x", "y")}
    assert nodes["x"] != nodes["y"]
    done = await asyncio.to_thread(plan, "big", "-o", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (move,) = told["moves"]
    moved = move["job"]["name"]
    (other,) = {"x", "y"} - {moved}
    assert [each["node"] for each in told["workers"]] == [nodes[moved]]
    assert [each["node"] for each in move["destination"]] == [nodes[other]]

    shown = await asyncio.to_thread(plan, "big")
    assert shown.stdout.splitlines()[0].startswith("Job 4 (big) starts within ")
    assert shown.stdout.rstrip().endswith("No other job waits. Nothing was changed.")

    await scattered.change(moved, suspend=True)
    big = await scattered.phase("Running", "big")
    assert big.nodes == [nodes[moved]]
    await scattered.change(moved, suspend=False)
    again = await scattered.phase("Running", moved)
    assert again.nodes == [nodes[other]]


async def test_a_job_that_no_moves_start_says_so(scattered: Jobs, plan: Plan) -> None:
    await scattered.change("x", preemptible=False)
    await scattered.change("y", preemptible=False)
    done = await asyncio.to_thread(plan, "big")
    assert done.returncode == 1
    assert "No moves for job 4 (big): no set of jobs that may move makes room for it." in done.stdout
    assert "0 running jobs may move" in done.stdout


async def test_a_job_that_does_not_exist_is_named(scattered: Jobs, plan: Plan, namespace: str) -> None:
    done = await asyncio.to_thread(plan, "nothing")
    assert done.returncode == 3
    assert done.stderr.strip() == f"dovetail: no job nothing in namespace {namespace}"
