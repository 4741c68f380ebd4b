"""Count the Leases that our programs lose on a busy machine, and measure how long a killed kube-scheduler is missed.

A real control plane with everything of the chart, while processes that only compute keep the machine at a load. A
program that loses its Lease ends and is started again; each such end counts, and so does each new term of a Lease.
After that, kube-scheduler is killed a few times: the time until the next one leads is that of a fail-over.

The load, ten minutes and three kills are fixed here. The exit code is 1 if a Lease of kube-scheduler was lost, or if a
fail-over took longer than 20 s.

    python benchmarks/leases.py [--minutes 10] [--load 14] [--kills 3] [--json FILE]
"""

import argparse
import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import plane
import queue_plane
from counts import count
from queue_running import until_reported

from dovetail import names
from dovetail.api.builtin import Lease
from dovetail.api.resources import LEASES
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster

SCHEDULER: Final = "dovetail-scheduler"
LONGEST_SECONDS: Final = 20.0
_NODES: Final = 4
# Jobs come and go all the time, so that binds wait for the scheduler and the API server has work.
_JOBS_PER_SECOND: Final = 0.5


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--minutes", type=float, default=10.0, help="how long it counts (default: %(default)s)")
    options.add_argument("--load", type=float, default=14.0, help="load of the machine (default: %(default)s)")
    options.add_argument("--kills", type=count, default=3, help="fail-overs to measure (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/leases.json"), help="where it is written too")
    args = options.parse_args()
    with queue_plane.sandbox(nodes=queue_plane.gpu_nodes(_NODES), without=["gateway"]) as made:
        found = asyncio.run(measure(made, args))
    queue_plane.report(found, path=args.json)
    too_long = max(found["fail_over_seconds"], default=0.0) > LONGEST_SECONDS
    return int(found["lost"].get(SCHEDULER, 0) > 0 or too_long)


async def measure(made: Cluster, args: argparse.Namespace) -> dict[str, Any]:
    """The Leases lost by name, the programs that ended by themselves, the load, and the seconds of each fail-over."""
    loads: list[float] = []
    async with plane.client_of(made) as client:
        await until_reported(client, _NODES)
        with busy(args.load) as adjust:
            before, runs, until = await terms(client), programs(made), time.monotonic() + 60 * args.minutes
            at = 0
            while time.monotonic() < until:
                loads.append(adjust())
                job = queue_plane.job(f"busy-{at:05d}", run=5.0)
                await queue_plane.submit(client, [job])
                await asyncio.sleep(1 / _JOBS_PER_SECOND)
                at += 1
            after, ended = await terms(client), programs(made)
            seconds = [await fail_over(client, made=made) for _ in range(args.kills)]
    return {
        "minutes": args.minutes,
        "load": {"least": min(loads), "mean": round(sum(loads) / len(loads), 1), "most": max(loads)},
        "jobs": at,
        "lost": {name: term - before.get(name, term) for name, term in after.items() if term != before.get(name, term)},
        "ended": sorted(name for name, count in ended.items() if count != runs.get(name, count)),
        "fail_over_seconds": [round(each, 1) for each in seconds],
    }


async def terms(client: Client) -> dict[str, int]:
    """How often each of our Leases has changed hands, by name."""
    listed = await client.list(LEASES, as_type=Lease, namespace=names.RELEASE_NAMESPACE)
    return {lease.metadata.name: lease.spec.lease_transitions or 0 for lease in listed.items}


def programs(made: Cluster) -> Mapping[str, int]:
    """How often each program has ended and was started again."""
    return {name: each.restarts for name, each in made.observed().items()}


async def fail_over(client: Client, *, made: Cluster) -> float:
    """Kill kube-scheduler, and wait until the next one leads: the seconds without a leader."""
    before = (await terms(client))[SCHEDULER]
    os.kill(made.pid("kube-scheduler"), signal.SIGKILL)
    began = time.monotonic()
    async with asyncio.timeout(120):
        while (await terms(client))[SCHEDULER] == before:  # noqa: ASYNC110 - a watch would need the API server too
            await asyncio.sleep(0.2)
    return time.monotonic() - began


@contextmanager
def busy(load: float) -> Iterator[Any]:
    """Keep the machine at this load by processes that only compute. The value adjusts their number, and reads it."""
    running: list[multiprocessing.Process] = []

    def adjust() -> float:
        now = os.getloadavg()[0]
        if now < load - 0.5 and len(running) < load:
            running.append(multiprocessing.Process(target=_compute, daemon=True))
            running[-1].start()
        elif now > load + 1.5 and running:
            running.pop().kill()
        return round(now, 1)

    try:
        yield adjust
    finally:
        for each in running:
            each.kill()


def _compute() -> None:
    value = 1
    while True:
        value = value * 48271 % 0x7FFFFFFF


if __name__ == "__main__":
    raise SystemExit(main())
