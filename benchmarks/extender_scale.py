"""Measure the extender's own process on a real API server with many nodes and pods: start, memory, filter, prioritize.

The cluster has N nodes of 8 V100, and pods bound to them: with 8 pods on a node each holds half of a device, with 16 a
quarter. The extender is killed and started again, and lists everything until it is ready. One client then sends the
requests of `asking.py` over HTTP.

    python benchmarks/extender_scale.py [--sizes 1000x16,5000x8] [--requests 300] [--json FILE]
"""

import argparse
import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import asking
import plane
from asking import Figure
from counts import count
from plane import NodeShape

from dovetail.api.devices import AllocatedDevice
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail_sandbox import credential
from dovetail_sandbox.cluster import Cluster

DEVICES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The results for one size of cluster."""

    nodes: int
    pods: int
    start_to_ready_s: float
    memory_mib: int
    peak_mib: int
    requests: list[Figure]


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--sizes", default="1000x16,5000x8", help="nodes x pods a node (default: %(default)s)")
    options.add_argument("--requests", type=count, default=300, help="requests of each kind (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/extender_scale.json"), help="where it is written too")
    args = options.parse_args()
    scales = []
    for size in args.sizes.split(","):
        nodes, per_node = map(int, size.split("x"))
        with plane.plane() as made:
            scales.append(asyncio.run(measure(made, nodes=nodes, per_node=per_node, requests=args.requests)))
    for scale in scales:
        print(
            f"\n{scale.nodes} nodes, {scale.pods} pods: start to ready {scale.start_to_ready_s:.1f} s, "
            f"memory {scale.memory_mib} MiB (peak {scale.peak_mib})"
        )
        print(asking.table(scale.requests))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps([asdict(scale) for scale in scales], indent=2) + "\n")


async def measure(made: Cluster, *, nodes: int, per_node: int, requests: int) -> Scale:
    """Measure one size of cluster, on an empty control plane."""
    shapes = [NodeShape(name=f"gpu-pool-a-node-{at:05d}") for at in range(nodes)]
    await asyncio.to_thread(made.stop, "kube-scheduler")
    await asyncio.to_thread(made.stop, "extender")
    async with plane.client_of(made) as client:
        await plane.add_nodes(client, shapes)
        bound = (body for shape in shapes for body in _bound(shape, pods=per_node))
        await plane.add_pods(client, bound, what="bound pods")
    await asyncio.to_thread(made.start, "extender")
    ready = await asyncio.to_thread(_restart, made)
    port = made.state().ports["extender.port"]
    tls = credential.client_context(made.credential)
    found = partial(asking.measure, port, nodes=[shape.name for shape in shapes], requests=requests, tls=tls)
    figures = await asyncio.to_thread(found)
    pid = made.pid("extender")
    now, peak = plane.memory_mib(pid)
    return Scale(
        nodes=nodes, pods=nodes * per_node, start_to_ready_s=ready, memory_mib=now, peak_mib=peak, requests=figures
    )


def _restart(made: Cluster) -> float:
    """Seconds from the start of the extender's process to its readiness, the best of three."""
    found = []
    for _ in range(3):
        made.stop("extender")
        started = time.perf_counter()
        made.start("extender")
        found.append(time.perf_counter() - started)
    return round(min(found), 2)


def _bound(shape: NodeShape, *, pods: int) -> Iterator[dict[str, Any]]:
    """Pods in their state after the bind."""
    milli = 500 if pods <= DEVICES else 250
    memory_mib = int(shape.device_memory_mib * 0.8) * milli // 1000
    for at in range(pods):
        index = at % DEVICES
        share = AllocatedDevice(uuid=shape.uuid(index), index=index, share_milli=milli, memory_mib=memory_mib)
        allocation = Allocation(
            node=shape.name, mode="Fractional", containers=[ContainerAllocation(index=0, devices=[share])]
        )
        body = plane.pod(f"{shape.name}-{at}", gpu=f"{milli / 1000:g}", milli=milli, scheduler="none")
        body["metadata"]["annotations"] |= annotations_of(allocation)
        body["spec"]["nodeName"] = shape.name
        yield body


if __name__ == "__main__":
    main()
