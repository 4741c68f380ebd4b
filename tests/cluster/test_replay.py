"""A trace through the real scheduler: everything placed or told why not, and nothing promised twice on the way."""

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS, NAMESPACES
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster

pytestmark = pytest.mark.cluster

HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time"


def trace_of(*rows: str) -> str:
    return "\n".join([HEADER, *rows, ""])


def many(count: int, *, gpus: int = 1, milli: int = 1000, models: str = "", name: str = "pod") -> list[str]:
    return [f"{name}-{at},1000,1024,{gpus},{milli},{models},{at},{at + 40},{at}" for at in range(count)]


def dovetail(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dovetail_cli", *words],
        capture_output=True, text=True, check=False, timeout=400, env={**os.environ, **(environment or {})},
    )  # fmt: skip


async def test_more_jobs_than_gpus_are_all_placed_in_the_end(sandbox: Cluster, client: Client, tmp_path: Path) -> None:
    pods = tmp_path / "pods.csv"
    pods.write_text(
        trace_of(
            *many(20), *many(4, milli=300, name="share"), *many(2, gpus=2, models="V100M32|A100", name="pair"),
            *many(3, gpus=0, milli=0, name="host"), *many(1, gpus=8, name="large"),
        ),
        encoding="utf-8",
    )  # fmt: skip
    namespace = f"replay-{uuid.uuid4().hex[:8]}"
    where = ["--here", "--kubeconfig", str(sandbox.kubeconfig), "--namespace", namespace]
    try:
        done = await asyncio.to_thread(
            dovetail, "replay", "--pods", str(pods), *where, "--speedup", "10", "--min-run", "1s", "-o", "json"
        )
        jobs = (await client.list(GPUJOBS, as_type=GPUJob, namespace=namespace)).items
        again = await asyncio.to_thread(dovetail, "replay", "--pods", str(pods), *where)
    finally:
        await client.delete(NAMESPACES, name=namespace)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    expect_everything_placed_but(summary, "large-0")
    assert {job.status.phase for job in jobs if job.metadata.name != "large-0"} == {"Succeeded"}
    assert again.returncode == 1
    assert "has a job" in again.stderr


def expect_everything_placed_but(summary: dict[str, Any], too_large: str) -> None:
    assert (summary["jobs"], summary["placed"], summary["succeeded"], summary["failed"]) == (30, 29, 29, 0)
    assert [(job["name"], job["reason"]) for job in summary["waiting"]] == [(too_large, "ExceedsCapacity")]
    assert summary["good"]
    assert summary["findings"] == []
    # 20 GPUs were asked for beside the pairs and shares, and there are 14.
    assert summary["peak_allocation"] > 0.5
    assert summary["wait_p95_seconds"] > 0


@pytest.mark.slow
def test_a_replay_brings_its_own_sandbox_up_and_down(tmp_path: Path) -> None:
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    pods.write_text(trace_of(*many(10)), encoding="utf-8")
    nodes.write_text(
        "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,64000,262144,2,T4\n", encoding="utf-8"
    )
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    done = dovetail(
        "replay", "--pods", str(pods), "--nodes", str(nodes), "--limit-nodes", "1", "--speedup", "10",
        "--min-run", "1s", environment=state,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "10 jobs on 2 GPUs" in done.stdout
    assert list(tmp_path.glob("state/dovetail/sandboxes/*")) == []


@pytest.mark.slow
def test_the_demo_ends_in_tables_and_hints_and_leaves_nothing_when_it_is_taken_down(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    try:
        done = dovetail("demo", "--jobs", "40", environment=state)
    finally:
        down = dovetail("demo", "--down", environment=state)
    assert done.returncode == 0, done.stderr
    for expected in (
        "JOBID  NAME",
        "NODE    MODEL  GPUS  FREE  DEVICES",
        "(ExceedsCapacity: Need 16 GPUs",
        "export KUBECONFIG=",
    ):
        assert expected in done.stdout
    assert down.returncode == 0
    assert list(tmp_path.glob("state/dovetail/sandboxes/*")) == []
