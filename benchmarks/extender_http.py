"""How long kube-scheduler waits for the extender: filter and prioritize over HTTP, one client, warm.

The cluster is synthetic: N nodes of 8 V100 (32 GiB) and 8 pods a node, each of which holds half of one device, so that
every node takes another half. Asked is for such a half with the names of all nodes, as kube-scheduler does
(`nodeCacheCapable`), and for a model that no node has, which every node refuses with a reason. The server runs in a
process of its own.

    python benchmarks/extender_http.py [--nodes 100,1000,5000] [--requests 200] [--json FILE]
"""

import argparse
import asyncio
import http.client
import json
import multiprocessing
import resource
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from aiohttp import web

from dovetail import names, serving
from dovetail.cluster import ClusterView
from dovetail.engine.claims import Claim, DeviceClaim
from dovetail.engine.ledger import DeviceFacts, Ledger, NodeFacts
from dovetail_extender.app import MAX_BODY_BYTES, Verbs
from dovetail_extender.decisions import Decisions, Rules
from dovetail_extender.metrics import Metrics

DEVICES = 8
MEMORY_MIB = 32768


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of request: its verb and what the pod asks."""

    name: str
    verb: str
    gpu: str
    milli: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was measured of one case on one size of cluster."""

    nodes: int
    pods: int
    case: str
    p50_ms: float
    p99_ms: float
    answer_bytes: int
    server_peak_mib: int


CASES = (
    Case(name="filter, all fit", verb="filter", gpu="0.5"),
    Case(name="filter, none fits", verb="filter", gpu="0.5(A100)"),
    Case(name="prioritize 64", verb="prioritize", gpu="0.5"),
    Case(name="prioritize all", verb="prioritize", gpu="0.5"),
)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", default="100,1000,5000", help="sizes of the cluster (default: %(default)s)")
    options.add_argument("--requests", type=int, default=200, help="requests of each kind (default: %(default)s)")
    options.add_argument(
        "--json",
        type=Path,
        default=Path("out/extender_http.json"),
        help="where the figures are written too (default: %(default)s)",
    )
    args = options.parse_args()
    figures = [
        figure for nodes in map(int, args.nodes.split(",")) for figure in measure(nodes=nodes, requests=args.requests)
    ]
    print(f"{'nodes':>6} {'pods':>6}  {'request':<18} {'p50 ms':>8} {'p99 ms':>8} {'answer kB':>10} {'peak MiB':>9}")
    for at in figures:
        print(
            f"{at.nodes:>6} {at.pods:>6}  {at.case:<18} {at.p50_ms:>8.2f} {at.p99_ms:>8.2f} "
            f"{at.answer_bytes / 1000:>10.1f} {at.server_peak_mib:>9}"
        )
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n")


def measure(*, nodes: int, requests: int) -> list[Figure]:
    """All cases on one size of cluster."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(nodes, theirs), daemon=True)
    server.start()
    port = ours.recv()
    try:
        return [_measure(case, nodes=nodes, requests=requests, port=port, server=ours) for case in CASES]
    finally:
        ours.send("stop")
        server.join(10)


def _measure(case: Case, *, nodes: int, requests: int, port: int, server: Any) -> Figure:
    asked = [_name(at) for at in range(64 if case.name.endswith("64") else nodes)]
    body = json.dumps({"Pod": _pod(case), "Nodes": None, "NodeNames": asked}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": "application/json"}
    took = []
    answer = b""
    for _ in range(requests + 20):
        started = time.perf_counter()
        connection.request("POST", f"/{case.verb}", body, headers)
        response = connection.getresponse()
        answer = response.read()
        took.append(time.perf_counter() - started)
        if response.status != 200:
            sys.exit(f"{case.name}: {response.status} {answer[:200]!r}")
    connection.close()
    warm = sorted(seconds * 1000 for seconds in took[20:])
    server.send("memory")
    return Figure(
        nodes=nodes,
        pods=nodes * DEVICES,
        case=case.name,
        p50_ms=round(statistics.median(warm), 3),
        p99_ms=round(warm[min(len(warm) - 1, int(len(warm) * 0.99))], 3),
        answer_bytes=len(answer),
        server_peak_mib=server.recv(),
    )


def serve(nodes: int, parent: Pipe) -> None:
    """The server's process."""
    asyncio.run(_serve(nodes, parent))


async def _serve(nodes: int, parent: Pipe) -> None:
    view = ClusterView(ledger=_ledger(nodes))
    metrics = Metrics(ledger=view.ledger, ages_seconds=dict, unsettled=lambda: 0)
    verbs = Verbs(
        decisions=Decisions(view=view, rules=Rules(), clock=time.monotonic),
        binder=None,  # type: ignore[arg-type]  # nothing is bound here
        missing=list,
        metrics=metrics,
    )
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    verbs.add_to(app)
    async with serving.listening(app, host="127.0.0.1", port=0) as port:
        parent.send(port)
        while await asyncio.to_thread(parent.recv) == "memory":
            parent.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def _ledger(nodes: int) -> Ledger:
    ledger = Ledger()
    for at in range(nodes):
        node = _name(at)
        ledger.set_node(NodeFacts(name=node, cpu_milli=96_000, memory_mib=786_432))
        devices = [
            DeviceFacts(index=index, uuid=f"GPU-{node}-{index}", vendor="nvidia", model="V100", memory_mib=MEMORY_MIB)
            for index in range(DEVICES)
        ]
        ledger.set_devices(node, devices)
        for device in devices:
            half = DeviceClaim(index=device.index, uuid=device.uuid, share_milli=500, memory_mib=13107)
            ledger.commit(Claim(key=f"pod-{node}-{device.index}", node=node, mode="Fractional", devices=(half,)))
    return ledger


def _name(at: int) -> str:
    return f"gpu-pool-a-node-{at:05d}"


def _pod(case: Case) -> dict[str, Any]:
    limits = {names.GPU_MILLI: str(case.milli), "cpu": "4", "memory": "16Gi"}
    return {
        "metadata": {
            "name": "asking", "namespace": "default", "uid": "asking", "annotations": {names.REQUEST: case.gpu},
        },
        "spec": {"containers": [{"name": "main", "image": "train:1", "resources": {"limits": limits}}]},
        "status": {"phase": "Pending"},
    }  # fmt: skip


if __name__ == "__main__":
    main()
