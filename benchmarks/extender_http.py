"""Measure the cost of one decision as the cluster grows: filter and prioritize over HTTP, by nodes and pods.

The cluster is synthetic: nodes of 8 V100 (32 GiB) with the given number of pods on each. Up to 8 pods hold half of a
separate device each; with 16, two hold a quarter each. The server is the extender's own over a ledger that is filled
directly, in a separate process. `extender_scale.py` measures the whole process on a real API server.

    python benchmarks/extender_http.py [--nodes 100,1000,5000,10000] [--pods 1,8,16] [--plot FILE] [--json FILE]
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import asking
import matplotlib as mpl
import uvloop
from aiohttp import web
from asking import Figure
from counts import count

from dovetail.api.devices import AllocatedDevice
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership
from dovetail.process import serving
from dovetail_extender.server import MAX_BODY_BYTES
from dovetail_extender.service import Extender, Options

mpl.use("Agg")
from matplotlib import pyplot as plt

DEVICES = 8
MEMORY_MIB = 32768


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The results for one size of cluster."""

    nodes: int
    pods_per_node: int
    server_peak_mib: int
    requests: list[Figure]

    def p50_ms(self, request: str) -> float:
        """The median of one kind of request."""
        return next(figure.p50_ms for figure in self.requests if figure.request == request)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", default="100,1000,5000,10000", help="sizes of the cluster (default: %(default)s)")
    options.add_argument("--pods", default="1,8,16", help="pods on each node (default: %(default)s)")
    options.add_argument("--requests", type=count, default=200, help="requests of each kind (default: %(default)s)")
    options.add_argument("--plot", type=Path, help="draw the medians into this PNG")
    options.add_argument("--json", type=Path, default=Path("out/extender_http.json"), help="where it is written too")
    args = options.parse_args()
    sizes = [
        measure(nodes=nodes, pods_per_node=pods, requests=args.requests)
        for nodes in map(int, args.nodes.split(","))
        for pods in map(int, args.pods.split(","))
    ]
    for size in sizes:
        print(
            f"{size.nodes} nodes x {DEVICES} GPUs, {size.nodes * size.pods_per_node} pods, "
            f"server's peak {size.server_peak_mib} MiB\n{asking.table(size.requests)}"
        )
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps([asdict(size) for size in sizes], indent=2) + "\n")
    if args.plot:
        draw(sizes, path=args.plot)


def measure(*, nodes: int, pods_per_node: int, requests: int) -> Size:
    """Measure one size of cluster."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(nodes, pods_per_node, theirs), daemon=True)
    server.start()
    theirs.close()  # so that a server that ends by an error is noticed here
    port = ours.recv()
    try:
        figures = asking.measure(port, nodes=[_name(at) for at in range(nodes)], requests=requests)
        ours.send("memory")
        return Size(nodes=nodes, pods_per_node=pods_per_node, server_peak_mib=ours.recv(), requests=figures)
    finally:
        ours.send("stop")
        server.join(10)


def draw(sizes: list[Size], *, path: Path) -> None:
    """Plot medians by nodes, with a line for each number of pods on a node."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for axis, request in zip(axes, ("filter", "prioritize"), strict=True):
        for pods in sorted({size.pods_per_node for size in sizes}):
            line = [size for size in sizes if size.pods_per_node == pods]
            axis.plot(
                [size.nodes for size in line],
                [size.p50_ms(request) for size in line],
                marker="o",
                label=f"{pods} pod{'s' if pods > 1 else ''} a node",
            )
        axis.set(title=request, xlabel="nodes in the cluster (8 GPUs each)", ylim=(0, None))
        axis.grid(alpha=0.3)
        axis.legend()
    axes[0].set_ylabel("median over HTTP, ms")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def serve(nodes: int, pods_per_node: int, parent: Pipe) -> None:
    """Run the server process."""
    uvloop.run(_serve(nodes, pods_per_node, parent))


async def _serve(nodes: int, pods_per_node: int, parent: Pipe) -> None:
    # Nothing is listed, watched or bound: the ledger is filled here.
    async with Client(Connection(server="http://127.0.0.1:9")) as client:
        office = Leadership(client, namespace="none", name="none", identity="none")
        extender = Extender(client, options=Options(), leadership=office)
        fill(extender.ledger, nodes=nodes, pods_per_node=pods_per_node)
        extender.verbs._obstacle = str  # noqa: SLF001 - with no caches to wait for
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        extender.verbs.add_to(app)
        async with serving.listening(app, host="127.0.0.1", port=0) as port:
            parent.send(port)
            while await asyncio.to_thread(parent.recv) == "memory":
                parent.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def fill(ledger: Ledger, *, nodes: int, pods_per_node: int) -> None:
    """Fill the ledger with the synthetic cluster."""
    milli = 500 if pods_per_node <= DEVICES else 250
    for at in range(nodes):
        node = _name(at)
        ledger.set_node(NodeFacts(name=node, cpu_milli=96_000, memory_mib=786_432))
        devices = [
            DeviceFacts(index=index, uuid=f"GPU-{node}-{index}", vendor="nvidia", model="V100", memory_mib=MEMORY_MIB)
            for index in range(DEVICES)
        ]
        ledger.set_devices(node, devices=devices)
        for pod in range(pods_per_node):
            device = devices[pod % DEVICES]
            share = AllocatedDevice(
                index=device.index,
                uuid=device.uuid,
                share_milli=milli,
                memory_mib=int(MEMORY_MIB * 0.8) * milli // 1000,
            )
            ledger.commit(Claim(key=f"pod-{node}-{pod}", node=node, mode="Fractional", devices=(share,)))


def _name(at: int) -> str:
    return f"gpu-pool-a-node-{at:05d}"


if __name__ == "__main__":
    main()
