"""Measure what GPUNodeTenants cost the operator: CPU and writes, while pods are bound and start.

Pods are bound one after the other at a steady rate, evenly over the nodes, and start a second later, which is the worst
case for coalescing. The API server is a dictionary in this process: the results exclude HTTP, which costs about a
millisecond for each write. `end_to_end.py --operator` measures the cost for the whole control plane.

    python benchmarks/node_tenants.py [--nodes 100] [--rate 100] [--seconds 10] [--json FILE]
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
from counts import count

from dovetail import names
from dovetail.api.builtin import Node, Pod, PodSpec, PodStatus
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunodetenants import GPUNodeTenants
from dovetail.api.meta import EventType, ObjectMeta
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail_operator.watchers.node_tenants import NodeTenants


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One run; CPU in percent of one core."""

    nodes: int
    pods_per_second: float
    writes_per_second: float
    cpu_percent: float
    kib_per_write: float


class Server:
    """Counts what is written, and brings it back as a watch does."""

    def __init__(self) -> None:
        self.watch: Callable[[EventType, GPUNodeTenants], None] = lambda _type, _object: None
        self.writes = 0
        self.bytes = 0

    async def create(self, _resource: Any, body: GPUNodeTenants, **_: Any) -> GPUNodeTenants:
        return self._store(body)

    async def update(self, _resource: Any, _name: str, body: GPUNodeTenants, **_: Any) -> GPUNodeTenants:
        return self._store(body)

    def _store(self, body: GPUNodeTenants) -> GPUNodeTenants:
        text = msgspec.json.encode(body)
        self.writes += 1
        self.bytes += len(text)
        found = msgspec.json.decode(text, type=GPUNodeTenants)
        metadata = msgspec.structs.replace(found.metadata, resource_version=str(self.writes))
        stored = msgspec.structs.replace(found, metadata=metadata)
        asyncio.get_running_loop().call_soon(self.watch, "MODIFIED", stored)
        return stored


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=100, help="managed nodes (default: %(default)s)")
    options.add_argument("--rate", type=float, default=100.0, help="pods bound a second (default: %(default)s)")
    options.add_argument("--seconds", type=float, default=10.0, help="how long (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/node_tenants.json"), help="where it is written too")
    args = options.parse_args()
    cost = asyncio.run(measure(nodes=args.nodes, rate=args.rate, seconds=args.seconds))
    print("| nodes | pods bound a second | writes a second | CPU, of one core | a write |\n|---|---|---|---|---|")
    print(
        f"| {cost.nodes} | {cost.pods_per_second:.0f} | {cost.writes_per_second:.0f} | {cost.cpu_percent:.1f} % "
        f"| {cost.kib_per_write:.1f} KiB |"
    )
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(asdict(cost), indent=2) + "\n")


async def measure(*, nodes: int, rate: float, seconds: float) -> Cost:
    server = Server()
    client: Any = server
    tenants = NodeTenants(client, pods=list, vendors=DEFAULT_VENDORS, rng=random.Random(1))
    server.watch = tenants.object_event
    for number in range(nodes):
        meta = ObjectMeta(name=f"n{number}", uid=f"uid-{number}", labels={names.LABEL_MANAGED: "true"})
        tenants.node_event("ADDED", Node(metadata=meta))
    task = asyncio.create_task(tenants.run())
    await asyncio.sleep(2)
    writes, written, cpu, began = server.writes, server.bytes, time.process_time(), time.monotonic()
    late = int(rate)
    for number in range(int(rate * seconds)):
        tenants.pod_event("ADDED", pod(number, node=number % nodes, phase="Pending"))
        if number >= late:
            tenants.pod_event("MODIFIED", pod(number - late, node=(number - late) % nodes, phase="Running"))
        await asyncio.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
    took = time.monotonic() - began
    count = server.writes - writes
    task.cancel()
    return Cost(
        nodes=nodes,
        pods_per_second=rate,
        writes_per_second=count / took,
        cpu_percent=100 * (time.process_time() - cpu) / took,
        kib_per_write=(server.bytes - written) / count / 1024,
    )


def pod(number: int, *, node: int, phase: str) -> Pod:
    device = AllocatedDevice(uuid=f"GPU-{node}-{number % 8}", index=number % 8, share_milli=500, memory_mib=8192)
    allocation = Allocation(
        node=f"n{node}", mode="Fractional", containers=[ContainerAllocation(index=0, devices=[device])]
    )
    return Pod(
        metadata=ObjectMeta(
            name=f"train-{number}", namespace="ml", uid=f"uid-{number:032d}", annotations=annotations_of(allocation)
        ),
        spec=PodSpec(node_name=f"n{node}"),
        status=PodStatus(phase=phase),
    )


if __name__ == "__main__":
    main()
