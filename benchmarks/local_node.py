"""The local node: seconds from submission to start, jobs a second in a sweep, and the memory of everything.

`python benchmarks/local_node.py [--jobs 1000] [--singles 20]` starts a sandbox of its own with this machine as its
node, and ends it. The jobs do next to nothing, so the figures are those of the queue and not of the work. The CPU
seconds of each component during the sweep show what limits it.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from counts import count

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.process import identity
from dovetail_sandbox import bringup, progress
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.processes.supervisor import AWAKE_SECONDS

_NAME = "bench-local"
_POLL_SECONDS = 0.02
_ENDING_SECONDS = 10


@contextmanager
def sandbox() -> Iterator[tuple[Cluster, Path]]:
    """A sandbox with a local node, below a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as folder:
        os.environ |= {"XDG_STATE_HOME": f"{folder}/state", "XDG_DATA_HOME": f"{folder}/data"}
        made = bringup.up(_NAME, report=progress.reporter(), local_node=True)
        try:
            yield made, Path(folder)
        finally:
            made.down()


def manifest(name: str, *, command: list[str], **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "command": command}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"metadata": {"name": name}, "spec": {"resources": {"device": "cpu"}, "template": template, **spec}}


async def latency(client: Client, *, count: int, folder: Path) -> list[float]:
    """Seconds from the submission of a job to the first act of its process, one job at a time."""
    found = []
    for index in range(count):
        mark = folder / f"started-{index}"
        body = manifest(f"single-{index}", command=["/bin/sh", "-c", f": > {mark}"])
        begin = time.time()
        await client.create(GPUJOBS, body=body, as_type=GPUJob, namespace="default")
        while not mark.exists():  # noqa: ASYNC110 - another program makes it
            await asyncio.sleep(_POLL_SECONDS / 10)
        found.append(mark.stat().st_mtime - begin)
        await asyncio.sleep(0.5)
    return found


async def sweep(client: Client, *, jobs: int, folder: Path) -> tuple[float, int]:
    """Seconds from the first start to the last end of a sweep's tasks, and how many have ended."""
    results = folder / "results"
    results.mkdir()
    values = [str(index) for index in range(jobs)]
    command = ["/bin/sh", "-c", f": > {results}/$I"]
    body = manifest("sweep", command=command, sweep={"parameters": [{"name": "I", "values": values}]})
    begin = time.monotonic()
    await client.create(GPUJOBS, body=body, as_type=GPUJob, namespace="default")
    while True:
        job = await client.get(GPUJOBS, name="sweep", as_type=GPUJob, namespace="default")
        if job.status.completion_time is not None:
            return time.monotonic() - begin, sum(1 for _ in results.iterdir())
        await asyncio.sleep(_POLL_SECONDS * 10)


def programs(made: Cluster) -> dict[int, str]:
    """The numbers of all processes, and the names of the components in each."""
    found: dict[int, str] = {}
    for name, each in made.observed().items():
        if each.process is not None:
            pid = each.process.pid
            found[pid] = f"{found[pid]}, {name}" if pid in found else name
    supervisor = made.state().supervisor
    assert supervisor is not None
    return {**found, supervisor.pid: "supervisor"}


def memory(made: Cluster, *, what: str = "Pss") -> dict[str, float]:
    """Proportional memory of each process in MiB, or its own alone (`Private_Dirty`)."""
    found = {}
    for pid, name in programs(made).items():
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        found[name] = int(next(line for line in lines if line.startswith(f"{what}:")).split()[1]) / 1024
    return found


def cpu_seconds(made: Cluster) -> dict[str, float]:
    """CPU time of each process so far."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for pid, name in programs(made).items():
        fields = identity.stat_of(pid)
        found[name] = (int(fields[11]) + int(fields[12])) / tick
    return found


async def measure(made: Cluster, *, folder: Path, jobs: int, singles: int) -> dict[str, Any]:
    """All figures."""
    # What has nothing to do rests after a minute.
    await asyncio.sleep(AWAKE_SECONDS + _ENDING_SECONDS)
    async with Client(load_connection(made.kubeconfig)) as client:
        idle, own = memory(made), memory(made, what="Private_Dirty")
        waits = await latency(client, count=singles, folder=folder)
        before = cpu_seconds(made)
        seconds, ended = await sweep(client, jobs=jobs, folder=folder)
        used = {name: round(each - before[name], 1) for name, each in cpu_seconds(made).items()}
        after, own_after = memory(made), memory(made, what="Private_Dirty")
    return {
        "start_p50_s": round(statistics.median(waits), 3),
        "start_max_s": round(max(waits), 3),
        "sweep_jobs": ended,
        "sweep_seconds": round(seconds, 1),
        "jobs_per_second": round(ended / seconds, 1),
        "load": os.getloadavg()[0],
        "cpu_seconds": used,
        "idle_mib": _rounded(idle),
        "idle_own_mib": _rounded(own),
        "after_mib": _rounded(after),
        "after_own_mib": _rounded(own_after),
    }


def _rounded(found: dict[str, float]) -> dict[str, int]:
    return {name: round(each) for name, each in found.items()} | {"all": round(sum(found.values()))}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", type=count, default=1000)
    options.add_argument("--singles", type=int, default=20)
    args = options.parse_args()
    with sandbox() as (made, folder):
        found = asyncio.run(measure(made, folder=folder, jobs=args.jobs, singles=args.singles))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
