"""`dovetail explain` on a sandbox where every GPU is taken: as text and as JSON."""

import asyncio
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail import names
from dovetail.api.resources import PODS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests import commands
from tests.cluster.jobs import Jobs

pytestmark = pytest.mark.cluster
Explain = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def explain(sandbox: Cluster, namespace: str) -> Explain:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        where = ["--kubeconfig", str(sandbox.kubeconfig)]
        where += [] if words[0] == "request" else ["-n", namespace]
        command = [*commands.dovetail(), "explain", *words, *where]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    return run


@pytest.fixture
async def full(client: Client, namespace: str) -> Any:
    """Jobs `v100-0` and so on, each on all devices of one node; their number is all of the sandbox's 14."""
    jobs = Jobs(client, namespace=namespace)
    for name, gpu in (("va", "4(V100)"), ("vb", "4(V100)"), ("a", "2(A100)"), ("ta", "2(T4)"), ("tb", "2(T4)")):
        await jobs.submit(name, gpu=gpu)
    for name in ("va", "vb", "a", "ta", "tb"):
        await jobs.phase("Running", name)
    yield jobs
    await jobs.clear()


def waiting_pod() -> dict[str, Any]:
    resources = {names.GPU_MILLI: "2000"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": resources, "limits": resources}}
    env = {
        "name": names.ENV_VISIBLE_DEVICES,
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{names.VISIBLE_DEVICES}.0']"}},
    }
    return {
        "metadata": {"name": "notebook"},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "containers": [{**container, "env": [env]}],
        },
    }


async def test_a_full_cluster_explains_who_waits_for_whom(
    full: Jobs, explain: Explain, client: Client, namespace: str
) -> None:
    await full.submit("waits", gpu="4")
    await full.phase("Queued", "waits", reason="Resources")
    done = await asyncio.to_thread(explain, "job", "waits")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Job 6 (waits) waits: Need 4 GPUs, only 0 available\n")
    number = (await full.until("va", lambda _: True)).number
    assert re.search(rf"^  - frees on v100-[01] when job {number} ends$", done.stdout, re.MULTILINE)
    assert re.search(r"^2 +DevicesBusy +need 4 GPUs free, too many are busy$", done.stdout, re.MULTILINE)

    done = await asyncio.to_thread(explain, "6", "-o", "json")
    told = json.loads(done.stdout)
    assert (told["kind"], told["number"], told["fits"], told["reason"]) == ("GPUJob", 6, False, "Resources")
    assert len(told["nodes"]) == 6
    assert {node["reason"] for node in told["nodes"]} == {"DevicesBusy", "TooFewDevices", "NoGPU"}
    assert {change["kind"] for change in told["changes"]} == {"Departure"}

    await client.create(PODS, body=waiting_pod(), as_type=dict[str, Any], namespace=namespace)
    done = await asyncio.to_thread(explain, "pod", "notebook", "-o", "json")
    told = json.loads(done.stdout)
    assert told["summary"] == f"Pod {namespace}/notebook waits: Need 2 GPUs, only 0 available"
    await client.delete(PODS, name="notebook", namespace=namespace, grace_period_seconds=0)

    done = await asyncio.to_thread(explain, "job", "a", "-o", "json")
    told = json.loads(done.stdout)
    assert (told["state"], [device["node"] for device in told["held"]]) == ("placed", ["a100-0", "a100-0"])
    assert {device["status"] for device in told["around"]} == {f"In use by job {told['number']}"}


async def test_a_snapshot_of_a_full_cluster_is_simulated_from_where_it_stands(
    full: Jobs, sandbox: Cluster, tmp_path: Path
) -> None:
    file = str(tmp_path / "snapshot.json")
    await dovetail("snapshot", "-f", file, "--kubeconfig", str(sandbox.kubeconfig))
    text = await dovetail("simulate", "--snapshot", file, "--policy", "pack,spread")
    assert "6 nodes with 14 GPUs, 100.0 % of them taken when it begins" in text
    assert re.search(r"^pack +- +- +100\.00 +100\.00", text, re.MULTILINE)


async def dovetail(*words: str) -> str:
    command = [*commands.dovetail(), *words]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_what_is_not_there_is_exit_code_three_and_what_cannot_be_is_two(explain: Explain) -> None:
    for words, code in ((("job", "77"), 3), (("pod", "nope"), 3), (("request", "2y"), 2)):
        done = await asyncio.to_thread(explain, *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
