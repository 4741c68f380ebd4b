"""Commands with files, projects and screens, as people type them, against the sandbox."""

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dovetail import names
from dovetail.api.gpujob import GPUJob, spec_of
from dovetail.api.resources import CONFIGMAPS, GPUJOBS
from dovetail.kube.client import Client
from tests import commands
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs
from tests.cluster.test_cli import Shell, main_output, shell

pytestmark = pytest.mark.cluster

__all__ = ["shell"]


async def files(client: Client, namespace: str) -> list[dict[str, Any]]:
    found = await client.list(CONFIGMAPS, as_type=dict, namespace=namespace, label_selector=names.LABEL_CONFIG)
    return found.items


async def test_a_file_goes_along_stays_for_a_second_run_and_goes_with_the_last(
    shell: Shell, jobs: Jobs, client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("lr: 0.1\n", encoding="utf-8")
    dry = await asyncio.to_thread(shell.run, "gbatch", "--dry-run", "-o", "yaml", "--config", str(file), "train")
    assert (dry.returncode, "no part of the manifest" in dry.stderr) == (0, True)
    assert await files(client, shell.namespace) == []
    await shell("gbatch", "-n", "train", "-P", "vision", "--config", str(file), "python", "train.py")
    (copy,) = await files(client, shell.namespace)
    assert (copy["data"], copy["immutable"]) == ({"config": "lr: 0.1\n"}, True)
    job = await client.get(GPUJOBS, name="train", as_type=GPUJob, namespace=shell.namespace)
    (container,) = spec_of(job.spec.template)["containers"]
    assert container["command"][-2:] == ["--config", "/etc/dovetail-config/train.yaml"]
    where = ["--kubeconfig", str(shell.kubeconfig), "--namespace", shell.namespace]
    assert await asyncio.to_thread(main_output, "gjob", "redo", *where, "train") == "Submitted batch job 2\n"
    (copy,) = await files(client, shell.namespace)
    assert [owner["name"] for owner in copy["metadata"]["ownerReferences"]] == ["train", "train-2"]
    for name in ("train", "train-2"):
        await jobs.delete(name)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await files(client, shell.namespace):  # noqa: ASYNC110 - the garbage collector tells nobody
            await asyncio.sleep(0.1)


async def test_a_project_is_listed_and_summed_without_what_was_refused(shell: Shell, jobs: Jobs) -> None:
    refused = await asyncio.to_thread(shell.run, "gbatch", "-P", "vision", "-g", "64", "true")
    assert "not queued, it could never start here" in refused.stderr
    await shell("gbatch", "-n", "seen", "-P", "vision", "sleep", "1")
    await shell("gbatch", "-n", "heard", "sleep", "600")
    assert (
        await shell("gqueue", "-a", "-P", "vision", "-f", "NAME,PROJECT", "-o", "csv") == "NAME,PROJECT\nseen,vision\n"
    )
    await jobs.phase("Succeeded", "seen")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (sums := json.loads(await shell("gstats", "--by", "project", "-P", "vision", "-o", "json"))):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert [(each["group"], each["byPhase"]) for each in sums] == [("vision", {"Succeeded": 1})]
    (gone,) = json.loads(await shell("gqueue", "--since", "1h", "-P", "vision", "-o", "json"))
    assert gone["project"] == "vision"


async def test_top_shows_who_holds_a_device_once_for_programs_and_live_on_a_terminal(shell: Shell, jobs: Jobs) -> None:
    await shell("gbatch", "-n", "holder", "-g", "2(A100)", "sleep", "600")
    status = await jobs.phase("Running", "holder")
    uuids = {device.uuid for device in status.devices}
    seen = json.loads(await shell("top", "-o", "json"))
    devices = [device for node in seen["nodes"] for device in node["devices"]]
    held = {each["uuid"] for each in devices if any(h["namespace"] == shell.namespace for h in each["tenants"])}
    assert held == uuids
    assert " holder (" in await shell("top")
    assert await asyncio.to_thread(on_a_terminal, shell, until=b" holder (") == 0


def on_a_terminal(shell: Shell, *, until: bytes) -> int:
    """The exit code of `dovetail top` on a terminal, ended by Ctrl-C once it shows what is waited for."""
    ours, theirs = pty.openpty()
    words = ["top", "--kubeconfig", str(shell.kubeconfig), "--namespace", shell.namespace, "--interval", "0.2"]
    environment = {**os.environ, "COLUMNS": "150", "LINES": "60", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail_cli", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    try:
        drawn = b""
        while until not in drawn:
            drawn += (said := _read(ours))
            assert said, f"nothing comes any more after {drawn!r}"
        process.send_signal(signal.SIGINT)
        limit = time.monotonic() + PATIENCE_SECONDS
        while _read(ours) and time.monotonic() < limit:
            pass
        return process.wait(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read(terminal: int) -> bytes:
    """What the terminal shows next; nothing once the program has ended, or is silent."""
    if not select.select([terminal], [], [], PATIENCE_SECONDS)[0]:
        return b""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


async def test_a_job_is_waited_for_from_its_submission_or_later(shell: Shell, jobs: Jobs) -> None:
    done = await asyncio.to_thread(shell.run, "gbatch", "--wait", "-n", "short", "sleep", "1")
    assert (done.returncode, done.stdout) == (0, "Submitted batch job 1\n")
    assert done.stderr.endswith("\nJob 1 succeeded.\n")
    await shell("gbatch", "-n", "long", "sleep", "600")
    await jobs.phase("Running", "long")
    where = ["--kubeconfig", str(shell.kubeconfig), "--namespace", shell.namespace]
    wait = [*commands.dovetail(), "gjob", "wait", *where]
    late = await asyncio.to_thread(
        subprocess.run, [*wait, "long", "--timeout", "0.5"], capture_output=True, text=True, timeout=120
    )
    assert (late.returncode, late.stdout) == (124, "Job 2 has not ended: Running.\n")
    waiting = asyncio.create_task(
        asyncio.to_thread(subprocess.run, [*wait, "1-2"], capture_output=True, text=True, timeout=120)
    )
    await asyncio.sleep(0)
    await shell("gcancel", "2")
    ended = await waiting
    assert (ended.returncode, ended.stdout) == (1, "Job 1 succeeded.\nJob 2 was cancelled.\n"), ended.stderr
    assert await shell("gbatch", "-n", "third", "sleep", "600") == "Submitted batch job 3\n"
    released = await asyncio.to_thread(main_output, "gjob", "release", *where, "3")
    assert released == "Job 3 is not held.\n"
