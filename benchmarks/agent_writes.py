"""Measure what the agents of a whole cluster write at rest, in MB a minute: what the API server sends to etcd.

The real agent serves all nodes, simulated ones without pods, on a real API server and etcd. It reads each node every 30
s and writes it at each heartbeat, as 5,000 agents would. The amount depends on nodes divided by heartbeat: 1,000 nodes
at 60 s write as much as 5,000 at the default of 300 s, and this is the default measurement. The same time without the
agent, in which leases and events are still written, is subtracted.

    python benchmarks/agent_writes.py [--nodes 1000] [--heartbeat 60] [--minutes 2] [--json FILE]
"""

import argparse
import asyncio
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import plane
from counts import count

from dovetail import names
from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUNODES, NODES
from dovetail.kube.client import Client
from dovetail_sandbox import credential
from dovetail_sandbox.cluster import Cluster

RECEIVED: Final = "etcd_network_client_grpc_received_bytes_total"
DEVICES: Final = {"model": "H100", "count": 8, "memoryMiB": 81559, "reservedMiB": 551}
DEFAULT_HEARTBEAT: Final = 300
MB: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """The results of one run."""

    nodes: int
    heartbeat_seconds: int
    minutes: float
    writes_per_minute: float
    mb_per_minute: float
    without_agent_mb_per_minute: float
    kib_per_write: float

    @property
    def stands_for(self) -> int:
        """The number of nodes that write as much with the default heartbeat."""
        return self.nodes * DEFAULT_HEARTBEAT // self.heartbeat_seconds


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=1000, help="nodes of 8 cards (default: %(default)s)")
    options.add_argument("--heartbeat", type=count, default=60, help="in seconds (default: %(default)s)")
    options.add_argument("--minutes", type=float, default=2, help="how long is counted (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/agent_writes.json"), help="where it is written too")
    args = options.parse_args()
    with plane.plane() as made:
        found = asyncio.run(measured(made, nodes=args.nodes, heartbeat=args.heartbeat, minutes=args.minutes))
    print(table(found))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(asdict(found), indent=2), encoding="utf-8")


async def measured(made: Cluster, *, nodes: int, heartbeat: int, minutes: float) -> Writes:
    """Measure without an agent, then with one that has written all nodes once."""
    async with plane.client_of(made) as client:
        await add_nodes(client, count=nodes)
        etcd, tls = etcd_of(made), credential.client_context(made.credential)
        idle = await mb_per_minute(etcd, tls=tls, minutes=minutes / 2)
        with running(made, heartbeat=heartbeat) as port:
            await until_all_are_reported(client, count=nodes)
            # The first writes came all at once; a heartbeat later they are spread as they were made.
            await asyncio.sleep(heartbeat)
            before = await published(port)
            busy = await mb_per_minute(etcd, tls=tls, minutes=minutes)
            writes = (await published(port) - before) / minutes
    return Writes(
        nodes=nodes,
        heartbeat_seconds=heartbeat,
        minutes=minutes,
        writes_per_minute=writes,
        mb_per_minute=busy - idle,
        without_agent_mb_per_minute=idle,
        kib_per_write=MB * (busy - idle) / 1024 / max(1.0, writes),
    )


async def add_nodes(client: Client, *, count: int) -> None:
    """Create nodes that declare their devices."""
    host = {"cpu": "96", "memory": "768Gi", "pods": "110"}
    annotations = {names.SIMULATED_DEVICES: json.dumps(DEVICES)}
    bodies = [
        {
            "metadata": {
                "name": f"gpu-{number:05d}",
                "labels": {names.LABEL_MANAGED: "true"},
                "annotations": annotations,
            },
            "status": {"capacity": host, "allocatable": host},
        }
        for number in range(count)
    ]

    async def add(body: dict[str, Any]) -> None:
        await client.create(NODES, body=body, as_type=dict[str, Any])

    await plane.each(bodies, add, what="nodes")


def etcd_of(made: Cluster) -> str:
    """The address of etcd in the API server's command line."""
    arguments = Path(f"/proc/{made.pid('kube-apiserver')}/cmdline").read_text(encoding="utf-8").split("\0")
    return next(each.partition("=")[2] for each in arguments if each.startswith("--etcd-servers="))


async def mb_per_minute(etcd: str, *, tls: ssl.SSLContext, minutes: float) -> float:
    """The data that etcd receives from its clients."""
    before, began = await counted(f"{etcd}/metrics", RECEIVED, tls=tls), time.monotonic()
    await asyncio.sleep(60 * minutes)
    return (await counted(f"{etcd}/metrics", RECEIVED, tls=tls) - before) / MB / ((time.monotonic() - began) / 60)


async def published(port: int) -> float:
    """How many reports the agent has written."""
    return await counted(f"http://127.0.0.1:{port}/metrics", "dovetail_agent_published_total")


async def counted(url: str, metric: str, *, tls: ssl.SSLContext | bool = True) -> float:
    """The sum of a counter over its labels."""
    async with aiohttp.ClientSession() as session, session.get(url, ssl=tls) as answer:
        text = await answer.text()
    return sum(float(value) for value in re.findall(rf"^{metric}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE))


@contextmanager
def running(made: Cluster, *, heartbeat: int) -> Iterator[int]:
    """Run the agent of all simulated nodes; yields its port."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "gpu_config.yaml")
        config.write_text(f"heartbeat_interval: {heartbeat}\n", encoding="utf-8")
        port = plane.free_port()
        command = [f"--config={config}", "--provider=simulated", f"--metrics-port={port}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "dovetail_agent.main", *command],
            env=os.environ | {"KUBECONFIG": str(made.kubeconfig)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield port
        finally:
            process.terminate()
            process.wait(30)


async def until_all_are_reported(client: Client, *, count: int) -> None:
    """Wait until each node has its report."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        found = await client.list(GPUNODES, as_type=GPUNode)
        if sum(1 for node in found.items if node.status.devices) == count:
            return
        await asyncio.sleep(2)
    raise TimeoutError(f"not all of {count} nodes were reported in 300 s")


def table(found: Writes) -> str:
    """The table for docs/performance.md."""
    head = "| nodes | heartbeat | as many as | writes a minute | into etcd | a write | without agents |"
    row = (
        f"| {found.nodes} | {found.heartbeat_seconds} s | {found.stands_for} nodes at {DEFAULT_HEARTBEAT} s "
        f"| {found.writes_per_minute:.0f} | {found.mb_per_minute:.1f} MB/min | {found.kib_per_write:.1f} KiB "
        f"| {found.without_agent_mb_per_minute:.1f} MB/min |"
    )
    return f"{head}\n|---|---|---|---|---|---|---|\n{row}"


if __name__ == "__main__":
    main()
