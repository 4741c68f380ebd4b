"""Jobs that merely run cost the API server nothing, and their figures are shown all the same."""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs, run

pytestmark = pytest.mark.cluster

JOBS = 6
REST_SECONDS = 60.0
CALM_SECONDS = 12.0
WRITES = frozenset({"create", "update", "patch", "delete"})
# These follow the clock and the devices, and are the same without any job.
OF_NODES = frozenset({"leases", "gpunodes"})


def writes_since(sandbox: Cluster, *, offset: int) -> list[str]:
    """What our programs have written, by the API server's own record: verb, resource and name."""
    with sandbox.request_log.open(encoding="utf-8") as log:
        log.seek(offset)
        events = [json.loads(line) for line in log if line.endswith("}\n")]
    return [_written(event) for event in events if _is_write(event)]


def _is_write(event: dict[str, Any]) -> bool:
    ours = event.get("userAgent", "").startswith("dovetail-") and event["verb"] in WRITES
    return ours and event.get("objectRef", {}).get("resource") not in OF_NODES


def _written(event: dict[str, Any]) -> str:
    about = event["objectRef"]
    return f"{event['verb']} {about['resource']}/{about.get('subresource', '')} {about.get('name', '')}"


def size_of_log(sandbox: Cluster) -> int:
    return sandbox.request_log.stat().st_size


async def until_calm(sandbox: Cluster) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS + CALM_SECONDS):
        while True:
            offset = size_of_log(sandbox)
            await asyncio.sleep(CALM_SECONDS)
            if not writes_since(sandbox, offset=offset):
                return


async def shown(jobs: Jobs, sandbox: Cluster, name: str) -> Sequence[str]:
    words = ("gjob", "show", "--kubeconfig", str(sandbox.kubeconfig), "--namespace", jobs.namespace, name)
    found = await run(sys.executable, "-m", "dovetail_cli", *words)
    return [line.strip() for line in found.stdout.splitlines()]


async def test_running_jobs_at_rest_are_not_written_and_have_their_figures_at_the_end(
    jobs: Jobs, sandbox: Cluster
) -> None:
    names = [f"rests-{at}" for at in range(JOBS)]
    for name in names:
        await jobs.submit(name, gpu="0.25(V100)")
    for name in names:
        await jobs.phase("Running", name)
    await until_calm(sandbox)
    offset = size_of_log(sandbox)
    await asyncio.sleep(REST_SECONDS)
    assert writes_since(sandbox, offset=offset) == []
    status = await jobs.phase("Running", names[0])
    assert (status.elapsed, status.measured, status.memory) == ("", None, None)
    lines = await shown(jobs, sandbox, names[0])
    assert any(line.startswith("MeanUtilization=0.") for line in lines), lines
    assert any(line.startswith("PeakMemoryMiB=") for line in lines), lines
    await jobs.end(names[0])
    ended = await jobs.until(names[0], lambda status: status.phase == "Succeeded")
    assert ended.elapsed
    assert ended.measured is not None
    assert ended.measured.device_seconds >= REST_SECONDS
    assert ended.memory is not None
    assert ended.memory.peak_mib > 0
