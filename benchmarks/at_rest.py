"""Measure what running jobs cost while nothing happens to them: writes to the API server, and the CPU of all programs.

Everything is real except the nodes' kubelets. The same sandbox is measured without a job and with one on each GPU; what
the jobs cost is the difference. With `--other`, the operator, extender, webhook and agent of another checkout take
turns.

    python benchmarks/at_rest.py [--nodes 15] [--seconds 60] [--rounds 1] [--other CHECKOUT] [--json FILE]
"""

import argparse
import asyncio
import statistics
from pathlib import Path
from typing import Any, Final

import plane
import queue_plane
import turns
from counts import count
from job_cost import clear
from queue_admission import followed
from queue_running import until_reported

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster

# Reports of devices and the signs of life of nodes and programs follow the clock, with jobs and without.
OF_NODES: Final = ("leases", "gpunodes", "nodes")
# After the last job runs: intermediate states and events are written within seconds, what was learned within a minute.
SETTLING_SECONDS: Final = 75.0


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument(
        "--nodes", type=count, default=15, help="nodes with 8 GPUs each, all used (default: %(default)s)"
    )
    options.add_argument("--seconds", type=float, default=60.0, help="how long is measured (default: %(default)s)")
    options.add_argument("--rounds", type=count, default=1, help="turns of each checkout (default: %(default)s)")
    options.add_argument("--other", type=Path, help="another checkout, whose programs run in turns with these")
    options.add_argument("--json", type=Path, default=Path("out/at_rest.json"), help="where it is written too")
    args = options.parse_args()
    with queue_plane.sandbox(nodes=queue_plane.gpu_nodes(args.nodes), without=["gateway"]) as made:
        found = asyncio.run(measure(made, args))
    queue_plane.report(found, path=args.json)


async def measure(made: Cluster, args: argparse.Namespace) -> dict[str, Any]:
    """Take the turns of each checkout."""
    checkouts = ({"other": args.other.resolve()} if args.other else {}) | {"this": turns.HERE}
    taken: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
    async with plane.client_of(made) as client:
        await until_reported(client, args.nodes)
        for _ in range(args.rounds):
            for name, checkout in checkouts.items():
                await asyncio.to_thread(turns.use, made, checkout=checkout)
                taken[name].append(await _turn(made, client, jobs=8 * args.nodes, seconds=args.seconds))
                await clear(client)
    medians = {
        name: {key: statistics.median(each[key] for each in found) for key in ("writes", "ms_per_second_of_a_job")}
        for name, found in taken.items()
    }
    return {"jobs": 8 * args.nodes, "seconds": args.seconds, "medians": medians, "turns": taken}


async def _turn(made: Cluster, client: Client, *, jobs: int, seconds: float) -> dict[str, Any]:
    await asyncio.sleep(SETTLING_SECONDS)
    idle = await turns.idle(made, seconds=seconds)
    await _run(client, jobs=jobs)
    await asyncio.sleep(SETTLING_SECONDS)
    with turns.measured(made) as used:
        await asyncio.sleep(seconds)
    writes = {name: count for name, count in used.writes.items() if _resource(name) not in OF_NODES}
    by_program = {
        name: round(1000 * (cpu / used.seconds - idle[name]) / jobs, 4) for name, cpu in used.cpu_seconds.items()
    }
    return {
        "writes": sum(writes.values()),
        "writes_by_name": writes,
        "of_nodes": {name: count for name, count in used.writes.items() if _resource(name) in OF_NODES},
        "ms_per_second_of_a_job": round(sum(by_program.values()), 4),
        "by_program": by_program,
        "idle_cores": {name: round(share, 4) for name, share in idle.items()},
    }


def _resource(name: str) -> str:
    """The resource of a counted write, such as `leases` of `PUT leases 200`."""
    return name.split()[1].split("/", maxsplit=1)[0]


async def _run(client: Client, *, jobs: int) -> None:
    running: set[str] = set()

    def job(_event: EventType, seen: GPUJob) -> None:
        if seen.status.phase == "Running":
            running.add(seen.metadata.name)

    async with followed(client, GPUJOBS, GPUJob, job):
        await queue_plane.submit(client, [queue_plane.job(f"rests-{at:04d}") for at in range(jobs)], per_second=20.0)
        async with asyncio.timeout(300):
            while len(running) < jobs:  # noqa: ASYNC110 - a watch fills it
                await asyncio.sleep(0.1)


if __name__ == "__main__":
    main()
