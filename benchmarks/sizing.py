"""Measure what each program of the chart uses on a full cluster of N nodes, against what the chart requests for it.

The cluster has N simulated nodes of 8 GPUs. Gangs of four whole nodes fill part of it, and gangs of the whole cluster,
of 1,024 nodes at most, wait, a tenth as many as there are nodes. Then one job of one GPU a second starts and ends, for
`--seconds`. CPU is process time over that while, so other work on the machine changes it little. Memory is the
proportional set size at its end and the highest resident size, which other work does not change.

A node agent serves one node in a cluster. Here one agent serves all simulated nodes, as with `simulation.enabled`.

    python benchmarks/sizing.py [--nodes 1000] [--filled 0.95] [--seconds 60] [--json out/sizing.json]
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

import plane
import queue_plane
import yaml
from agent_cost import cpu_seconds
from counts import count
from queue_admission import followed
from queue_running import until_reported

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS
from dovetail.formats.quantities import milli, whole
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster

GANG = 4
MOST_WORKERS = 1024
PATIENCE_SECONDS = 300
SAYS_SECONDS = 15
# On two cores, so many gangs start a second at least.
GANGS_PER_SECOND = 1.0
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """One program: CPU in milli-cores, memory in MiB, and what the chart requests of both; None without a request."""

    program: str
    cpu: float
    cpu_requested: float | None
    memory: float
    highest_memory: float
    memory_requested: float | None

    @property
    def is_inside(self) -> bool:
        """Whether it uses no more than it requests."""
        return self.cpu <= (self.cpu_requested or 0) and self.memory <= (self.memory_requested or 0)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=1_000, help="nodes of 8 GPUs (default: %(default)s)")
    options.add_argument("--filled", type=float, default=0.95, help="part of the nodes (default: %(default)s)")
    options.add_argument("--seconds", type=float, default=60.0, help="how long it measures (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/sizing.json"), help="where it is written too")
    args = options.parse_args()
    if (problem := unfit(nodes=args.nodes, filled=args.filled)) is not None:
        options.error(problem)
    overrides = ["gateway.enabled=true"]
    with queue_plane.sandbox(nodes=queue_plane.gpu_nodes(args.nodes), overrides=overrides) as made:
        found = asyncio.run(measure(made, args))
    queue_plane.report({"nodes": args.nodes, "programs": [asdict(each) for each in found]}, path=args.json)
    print(table(found, nodes=args.nodes))
    if outside := [each.program for each in found if not each.is_inside]:
        raise SystemExit(f"above their requests: {', '.join(outside)}")


def unfit(*, nodes: int, filled: float) -> str | None:
    """Why no gang would wait on such a cluster; None if all of them do."""
    free = nodes - GANG * gangs_of(nodes=nodes, filled=filled)
    if free < min(nodes, MOST_WORKERS):
        return None
    least = ceil(100 * max(GANG, nodes - MOST_WORKERS + GANG) / nodes) / 100
    return (
        f"--filled {filled:g} leaves {free} of {nodes} nodes free, where gangs of {min(nodes, MOST_WORKERS)} nodes run "
        f"and do not wait: use --filled {least:g} or more"
    )


def gangs_of(*, nodes: int, filled: float) -> int:
    """The number of gangs that run."""
    return int(filled * nodes / GANG)


async def measure(made: Cluster, args: argparse.Namespace) -> list[Used]:
    """Fill the cluster, and look at each program while jobs come and go."""
    requests = requests_of(made)
    gangs = gangs_of(nodes=args.nodes, filled=args.filled)
    async with plane.client_of(made) as client:
        await until_reported(client, args.nodes)
        running = [queue_plane.job(f"runs-{at:05d}", gpu=8, workers=GANG) for at in range(gangs)]
        await fill(client, running)
        workers = min(args.nodes, MOST_WORKERS)
        waiting = [queue_plane.job(f"waits-{at:05d}", gpu=8, workers=workers) for at in range(args.nodes // 10)]
        await queue_plane.submit(client, waiting)
        await asyncio.sleep(10)
        pids = {name: made.pid(name) for name in requests}
        before, began = {name: cpu_seconds(pid) for name, pid in pids.items()}, time.monotonic()
        coming = [queue_plane.job(f"comes-{at:05d}", run=10.0) for at in range(int(args.seconds))]
        await queue_plane.submit(client, coming, per_second=1.0)
        lasted = time.monotonic() - began
        return [
            Used(
                program=name,
                cpu=1000 * (cpu_seconds(pid) - before[name]) / lasted,
                cpu_requested=requests[name].get("cpu"),
                memory=memory_mib(pid, field="Pss"),
                highest_memory=highest_mib(pid),
                memory_requested=requests[name].get("memory"),
            )
            for name, pid in pids.items()
        ]


def requests_of(made: Cluster) -> dict[str, dict[str, float]]:
    """What the chart requests for each program that runs: milli-cores and MiB."""
    found: dict[str, dict[str, float]] = {}
    text = (made.folder / "rendered.yaml").read_text(encoding="utf-8")
    for workload in yaml.safe_load_all(text):
        if workload and workload["kind"] in {"Deployment", "DaemonSet"}:
            for container in workload["spec"]["template"]["spec"]["containers"]:
                if container["name"] in made.observed():
                    found[container["name"]] = _amounts(container.get("resources", {}).get("requests", {}))
    return found


def _amounts(requests: Mapping[str, Any]) -> dict[str, float]:
    amounts = {}
    if "cpu" in requests:
        amounts["cpu"] = float(milli(requests["cpu"]))
    if "memory" in requests:
        amounts["memory"] = whole(requests["memory"]) / MIB
    return amounts


async def fill(client: Client, gangs: Sequence[dict[str, Any]]) -> None:
    """Create these GPUJobs, and wait until a watch has shown all of them running.

    Lists of thousands would keep the API server busy.
    """
    run, changed, loop = set[str](), asyncio.Event(), asyncio.get_running_loop()

    def note(event: EventType, job: GPUJob) -> None:
        if event != "DELETED" and job.status.phase == "Running" and job.status.reason != "GangWaiting":
            run.add(job.metadata.name)
            changed.set()

    async with (
        asyncio.timeout(PATIENCE_SECONDS + len(gangs) / GANGS_PER_SECOND),
        followed(client, GPUJOBS, GPUJob, note),
    ):
        said = loop.time()
        await queue_plane.submit(client, gangs)
        while len(run) < len(gangs):
            changed.clear()
            await changed.wait()
            if loop.time() - said > SAYS_SECONDS:
                said = loop.time()
                print(f"{len(run)} of {len(gangs)} gangs run", file=sys.stderr, flush=True)


def memory_mib(pid: int, *, field: str) -> float:
    """A field of the process's memory, in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (found,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(found.split()[1]) / 1024


def highest_mib(pid: int) -> float:
    """The highest resident size of a process so far, in MiB."""
    (found,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(found.split()[1]) / 1024


def table(found: list[Used], *, nodes: int) -> str:
    """The results in Markdown."""
    rows = [
        f"| {each.program} | {each.cpu:.0f}m | {_text(each.cpu_requested, unit='m')} | {each.memory:.0f} MiB"
        f" | {each.highest_memory:.0f} MiB | {_text(each.memory_requested, unit=' MiB')} |"
        f" {'yes' if each.is_inside else 'no'} |"
        for each in found
    ]
    head = f"| {nodes} nodes | CPU used | requested | memory used | highest | requested | inside |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def _text(amount: float | None, *, unit: str) -> str:
    return "none" if amount is None else f"{amount:.0f}{unit}"


if __name__ == "__main__":
    main()
