"""The commands as people type them, in processes of their own, against the sandbox."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob, spec_of
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.resources import GPUJOBS, GPUQUOTAS, PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail_sandbox.cluster import Cluster
from tests import commands
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs

pytestmark = pytest.mark.cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Runs `dovetail …` in a namespace of the sandbox."""

    kubeconfig: Path
    namespace: str
    program: Sequence[str] = field(default_factory=commands.dovetail)

    def run(self, command: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """The outcome, whatever it is."""
        where = ["--kubeconfig", str(self.kubeconfig)]
        if command != "audit":
            where += ["--namespace", self.namespace]
        return subprocess.run(
            [*self.program, command, *where, *words],
            capture_output=True, text=True, check=False, timeout=120, input=stdin,
            env={**os.environ, "XDG_CONFIG_HOME": "/nonexistent"},
        )  # fmt: skip

    async def __call__(self, command: str, *words: str, stdin: str = "") -> str:
        """Standard output; the command must do what it is asked."""
        done = await asyncio.to_thread(self.run, command, *words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


def as_installed(shell: Shell) -> Shell:
    """The same, with the program that is installed."""
    return replace(shell, program=(sys.executable, "-m", "dovetail_cli"))


def main_output(*words: str) -> str:
    """What `dovetail` prints for words that are in their own order."""
    command = [*commands.dovetail(), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture
def shell(sandbox: Cluster, namespace: str) -> Iterator[Shell]:
    return Shell(kubeconfig=sandbox.kubeconfig, namespace=namespace)


async def test_a_job_is_submitted_listed_shown_and_cancelled(shell: Shell, jobs: Jobs) -> None:
    shell = as_installed(shell)
    assert await shell("gbatch", "--gpus", "1", "-n", "train", "sleep", "600") == "Submitted batch job 1\n"
    status = await jobs.phase("Running", "train")
    (device,) = status.devices
    text = await shell("gqueue")
    place = rf"{device.node}:{device.index} \(simulated\)"
    assert re.search(rf"^1 +train +R +00:0\d:\d\d +1 +{place} +\S+ +1$", text, re.MULTILINE)
    info = await shell("ginfo", "-v")
    assert info.startswith("Scheduler Status: ")
    assert f"UUID: {device.uuid}\n    Status: In use by job 1\n" in info
    assert await shell("gcancel", "1") == "Job 1 cancelled.\n"
    await jobs.phase("Cancelled", "train")
    assert await shell("gqueue", "-o", "json") == "[]\n"
    assert json.loads(await shell("gqueue", "-a", "-o", "json"))[0]["phase"] == "Cancelled"


async def test_simulated_nodes_keep_no_logs_and_the_command_says_so(shell: Shell, jobs: Jobs) -> None:
    await shell("gbatch", "--gpus", "1", "-n", "train", "sleep", "600")
    await jobs.phase("Running", "train")
    where = ["--kubeconfig", str(shell.kubeconfig), "--namespace", shell.namespace]
    for options in ([], ["-f"]):
        words = [*commands.dovetail(), "gjob", "log", *options, "train", *where]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False, timeout=120)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.endswith("has no kubelet that could be asked: simulated nodes keep no logs\n")


async def test_options_for_what_needed_yaml_reach_the_cluster(shell: Shell, jobs: Jobs) -> None:
    pod = ("--env", "LR=0.1", "--volume", "data:/data:ro", "--node-selector", "type=kwok")
    how = ("-g", "0.5(T4)", "--gpu-memory", "4G", "--mode", "Fractional", "--workload", "inference")
    many = ("--memory-strategy", "aggressive", "--cpu-fallback", "-N", "2", "--min-workers", "1", "--group", "g")
    told = await shell("gbatch", "--dry-run", *pod, *how, *many, "--max-concurrent", "1", "-n", "all", "true")
    assert told.startswith("Job all would be submitted")
    for name in ("first", "second"):
        await shell("gbatch", "--group", "g", "--max-concurrent", "1", "-n", name, "-g", "1", "sleep", "600")
    await jobs.phase("Running", "first")
    assert "Group g may run 1 job" in (await jobs.phase("Queued", "second", reason="Quota")).message
    where = ("--kubeconfig", str(shell.kubeconfig), "--namespace", shell.namespace)
    assert main_output("gjob", "update", *where, "second", "--max-concurrent", "2") == "Job 2 updated.\n"
    await jobs.phase("Running", "second")


async def test_json_tells_the_devices_that_the_cluster_promised(shell: Shell, jobs: Jobs) -> None:
    submitted = json.loads(await shell("gbatch", "-g", "0.5(T4)", "--gpu-memory", "4G", "-o", "json", "sleep", "600"))
    status = await jobs.phase("Running", submitted["name"])
    (job,) = json.loads(await shell("gqueue", "-o", "json"))
    assert (job["number"], job["phase"], job["request"]) == (submitted["number"], "Running", "4G,0.5(T4)")
    assert [(d["uuid"], d["shareMilli"], d["memoryMiB"]) for d in job["devices"]] == [
        (status.devices[0].uuid, 500, 4096)
    ]
    found = json.loads(await shell("ginfo", "-o", "json"))
    devices = {device["uuid"]: device for node in found["nodes"] for device in node["devices"]}
    assert found["totalGpus"] == len(devices) == 14
    (tenant,) = devices[status.devices[0].uuid]["tenants"]
    assert (tenant["job"], tenant["shareMilli"]) == (job["number"], 500)


async def test_a_job_that_fits_nowhere_is_refused_or_waits_with_its_reason(shell: Shell, jobs: Jobs) -> None:
    refused = await asyncio.to_thread(shell.run, "gbatch", "-g", "2(V10)", "-n", "typo", "sleep", "600")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("dovetail: not queued, it could never start here: Need 2 GPUs, only 0 available")
    assert 'did you mean "V100"? To run it on the CPU: --cpu-fallback.' in refused.stderr
    assert "typo" not in await shell("gqueue")
    await shell("gbatch", "-g", "9", "--wait-for-capacity", "-n", "large", "sleep", "600")
    await jobs.phase("Queued", "large", reason="ExceedsCapacity")
    assert "(ExceedsCapacity: Need 9 GPUs, only 4 available" in await shell("gqueue")


async def test_a_job_without_gpus_is_refused_where_its_pool_has_no_node(shell: Shell, jobs: Jobs) -> None:
    refused = await asyncio.to_thread(shell.run, "gbatch", "--pool", "nowhere", "-n", "typo", "true")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        "dovetail: not queued, it could never start here: There is no node for it (in pool nowhere). "
        "To queue it until there is such a node: --wait-for-capacity\n"
    )
    await shell("gbatch", "--pool", "nowhere", "--wait-for-capacity", "-n", "patient", "true")
    await jobs.phase("Queued", "patient", reason="ExceedsCapacity")


async def test_a_second_job_of_the_same_name_gets_a_number_behind_it(shell: Shell, jobs: Jobs) -> None:
    await shell("gbatch", "-n", "twin", "sleep", "600")
    assert await shell("gbatch", "-n", "twin", "sleep", "600") == "Submitted batch job 2\n"
    assert await shell("gcancel", "1-2") == "Job 1 cancelled.\nJob 2 cancelled.\n"


async def test_a_script_travels_in_the_pod(shell: Shell, jobs: Jobs, client: Client, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/bash -e\n#SBATCH -t 5 -c 2 -o x\n# GFLOW -p 20 -n other\necho $1\n", encoding="utf-8")
    done = await asyncio.to_thread(shell.run, "gbatch", "-n", "scripted", "-t", "1:30", str(script), "hello")
    assert done.returncode == 0
    ignored = "dovetail: --output is ignored on simulated nodes, where nothing runs\n"
    simulated = "dovetail: simulated: the nodes of this cluster run nothing.\n"
    assert done.stderr == f"{ignored}It starts now.\n{simulated}"
    job = await client.get(GPUJOBS, name="scripted", as_type=GPUJob, namespace=shell.namespace)
    (container,) = spec_of(job.spec.template)["containers"]
    text = script.read_text(encoding="utf-8")
    assert container["command"] == ["/bin/bash", "-e", "-c", text, "train.sh", "hello"]
    assert container["resources"]["requests"] == {"cpu": "2"}
    assert (job.spec.active_deadline_seconds, job.spec.priority) == (90, 20)


async def test_a_script_may_come_by_standard_input(shell: Shell, jobs: Jobs) -> None:
    assert "Submitted batch job" in await shell("gbatch", "-n", "piped", "-", stdin="sleep 600\n")


async def test_a_dry_run_is_checked_by_the_api_server_and_leaves_nothing(
    shell: Shell, jobs: Jobs, client: Client
) -> None:
    assert "name: dry" in await shell("gbatch", "--dry-run", "-n", "dry", "-g", "2", "-o", "yaml", "sleep", "1")
    assert (await client.list(GPUJOBS, as_type=GPUJob, namespace=shell.namespace)).items == []


async def test_a_dry_run_and_an_explanation_tell_a_limit_as_the_operator_does(
    shell: Shell, jobs: Jobs, client: Client
) -> None:
    quota = {
        "apiVersion": GPUQUOTAS.api_version,
        "kind": GPUQUOTAS.kind,
        "metadata": {"name": f"{shell.namespace}-cli"},
        "spec": {"namespaces": [shell.namespace], "limit": {"gpus": 2}},
    }
    await client.create(GPUQUOTAS, body=quota, as_type=GPUQuota)
    try:
        await shell("gbatch", "-g", "1", "-n", "first", "sleep", "600")
        await jobs.phase("Running", "first")
        foretold = await shell("gbatch", "--dry-run", "-g", "2", "sleep", "600")
        await shell("gbatch", "-g", "2", "-n", "second", "sleep", "600")
        status = await jobs.phase("Queued", "second", reason="Quota")
        assert f"It would wait at place 1. Quota: {status.message}." in foretold
        where = ("--kubeconfig", str(shell.kubeconfig), "--namespace", shell.namespace)
        explained = await asyncio.to_thread(main_output, "explain", "job", *where, "second")
        assert explained.startswith(f"Job 2 (second) waits: {status.message}\n")
    finally:
        await client.delete(GPUQUOTAS, name=f"{shell.namespace}-cli")


async def test_cancelling_for_a_try_changes_nothing(shell: Shell, jobs: Jobs) -> None:
    await shell("gbatch", "-n", "stays", "sleep", "600")
    assert await shell("gcancel", "--dry-run", "stays") == "Job 1 would be cancelled.\n"
    assert (await jobs.until("stays", lambda status: status.phase is not None)).phase != "Cancelled"


async def test_what_does_not_exist_is_exit_code_three(shell: Shell) -> None:
    for words in (("gcancel", "7"), ("gqueue", "-j", "7")):
        done = await asyncio.to_thread(shell.run, *words)
        assert (done.returncode, done.stderr) == (3, "dovetail: no job 7\n")


async def test_the_audit_of_a_good_cluster_is_one_line(shell: Shell) -> None:
    assert re.fullmatch(r"Audit clean: \d+ pods?, 14 devices\n", await shell("audit"))


async def test_a_gpu_pod_that_went_past_the_extender_is_found(shell: Shell, client: Client) -> None:
    sneak = await client.create(PODS, body=waiting_for_ever(), as_type=Pod, namespace=shell.namespace)
    await client.bind(sneak, node="v100-0", annotations={}, deadline_seconds=PATIENCE_SECONDS)
    try:
        done = await asyncio.to_thread(shell.run, "audit", "-o", "json")
    finally:
        await remove(client, namespace=shell.namespace)
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["items"]
    assert (finding["kind"], finding["subject"]) == ("NotAllocated", f"{shell.namespace}/sneak")


def waiting_for_ever() -> dict[str, Any]:
    resources = {names.GPU_MILLI: "1000"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": resources, "limits": resources}}
    return {
        "metadata": {"name": "sneak"},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "nodeSelector": {"no-node": "has-this"},
            "containers": [container],
        },
    }


async def remove(client: Client, *, namespace: str) -> None:
    await client.delete(PODS, name="sneak", namespace=namespace, grace_period_seconds=0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await client.get(PODS, name="sneak", as_type=dict[str, Any], namespace=namespace)
            except NotFound:
                return
            await asyncio.sleep(0.1)
