"""Measure pods a second through the real kube-scheduler: without an extender, with Dovetail's, and with plans.

The pods are of the one-GPU classes of the demo's table (a published trace's, by their frequencies). All three variants
run on one control plane, in rounds one after the other, with the same client limits: a kube-scheduler of the same build
and configuration without an extender (its NodeResourcesFit counts the same sums), the pair, and the pair for pods whose
template names one node, as the queue's plans do. All pods wait when the scheduler starts; the rate is measured between
the first bind and the last. Compare ratios within a round.

`--operator` adds two rounds: the pair with an operator that writes GPUNodeTenants for each node, and
with one whose agents read pods themselves (agent.readPods), which writes none. The output has the number of writes.

    python benchmarks/end_to_end.py [--sizes 1000x1500,5000x400] [--rounds 3] [--operator] [--json FILE]
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.request import urlopen

import plane
from counts import count
from plane import NodeShape, StockScheduler

from dovetail.api.builtin import Pod
from dovetail.api.resources import PODS
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail_cli.demo.workload import classes
from dovetail_sandbox.cluster import Cluster

ALONE: Final = "kube-scheduler alone"
PAIR: Final = "with the extender"
PLANNED: Final = "with the extender, planned"
VARIANTS: Final = (ALONE, PAIR, PLANNED)
READING: Final = "and an operator; agents read pods"
TELLING: Final = "and an operator that tells nodes"
WRITES: Final = "dovetail_node_tenants_writes_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Pods a second on one size of cluster, by variant, one value for each round."""

    nodes: int
    pods: int
    pods_per_second: dict[str, list[float]]

    def ratio(self, variant: str) -> float:
        """Median over the rounds of a variant's rate to that of kube-scheduler alone, in percent."""
        pairs = zip(self.pods_per_second[variant], self.pods_per_second[ALONE], strict=True)
        return 100 * statistics.median(ours / alone for ours, alone in pairs)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--sizes", default="1000x1500,5000x400", help="nodes x waiting pods (default: %(default)s)")
    options.add_argument("--rounds", type=count, default=3, help="rounds of all variants (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/end_to_end.json"), help="where it is written too")
    options.add_argument("--operator", action="store_true", help="also with an operator, in both ways")
    args = options.parse_args()
    variants = (*VARIANTS, *((READING, TELLING) if args.operator else ()))
    found = []
    for size in args.sizes.split(","):
        nodes, pods = map(int, size.split("x"))
        with plane.plane() as made:
            found.append(asyncio.run(measure(made, nodes=nodes, pods=pods, rounds=args.rounds, variants=variants)))
    for rates in found:
        print(f"\n{rates.nodes} nodes x 8 GPUs, {rates.pods} waiting pods, {args.rounds} rounds")
        for variant in variants:
            each = ", ".join(f"{rate:.0f}" for rate in rates.pods_per_second[variant])
            print(f"  {variant:<28} {rates.ratio(variant):6.0f} %   ({each} pods/s)")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps([asdict(rates) for rates in found], indent=2) + "\n")


async def measure(made: Cluster, *, nodes: int, pods: int, rounds: int, variants: Sequence[str]) -> Rates:
    """Measure all variants on one size of cluster."""
    rates: dict[str, list[float]] = {variant: [] for variant in variants}
    shapes = [NodeShape(name=f"gpu-pool-a-node-{at:05d}") for at in range(nodes)]
    await asyncio.to_thread(made.stop, "kube-scheduler")
    async with plane.client_of(made) as client:
        await plane.add_nodes(client, shapes)
        for _ in range(rounds):
            for variant in variants:
                rates[variant].append(await _rate(variant, made, client=client, shapes=shapes, pods=pods))
    return Rates(nodes=nodes, pods=pods, pods_per_second=rates)


async def _rate(variant: str, made: Cluster, *, client: Client, shapes: list[NodeShape], pods: int) -> float:
    scheduler = StockScheduler.NAME if variant == ALONE else "dovetail"
    plans = [shape.name for shape in shapes] if variant == PLANNED else [""]
    table = [one for one in classes() if one.gpus == 1]
    drawn = Random(len(shapes)).choices(table, weights=[one.pods for one in table], k=pods)
    bodies = [
        plane.pod(
            f"p-{at}",
            gpu=f"{one.gpu_milli / 1000:g}",
            milli=one.gpu_milli,
            cpu=f"{one.cpu_milli}m",
            memory=f"{one.memory_mib}Mi",
            scheduler=scheduler,
            plan=plans[at % len(plans)],
        )
        for at, one in enumerate(drawn)
    ]
    await plane.add_pods(client, bodies)
    async with _binds(client) as bound:
        with ExitStack() as stack:
            operator = await asyncio.to_thread(stack.enter_context, _operator(variant, made))
            await asyncio.to_thread(stack.enter_context, _running(variant, made))
            while len(bound) < pods:  # noqa: ASYNC110 - a watch fills it
                await asyncio.sleep(0.1)
            writes = await asyncio.to_thread(_writes, operator)
    await plane.clear_pods(client)
    rate = (pods - 1) / (max(bound.values()) - min(bound.values()))
    suffix = "" if writes is None else f", {writes:.0f} writes of tenants"
    print(f"{len(shapes)} nodes, {variant}: {rate:.0f} pods/s{suffix}", flush=True)
    return rate


@contextmanager
def _operator(variant: str, made: Cluster) -> Iterator[str]:
    """Run the variant's operator, if any, until all tenants are written; yields its metrics address."""
    if variant not in {READING, TELLING}:
        yield ""
        return
    port = plane.free_port()
    folder = tempfile.mkdtemp()
    env = {
        "KUBECONFIG": str(made.kubeconfig),
        "POD_NAMESPACE": "dovetail-system",
        "DOVETAIL_HISTORY_URL": f"sqlite:///{folder}/history.db",
        "DOVETAIL_AGENTS_READ_PODS": str(variant == READING).lower(),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from dovetail_operator.main import main; sys.exit(main())",
         f"--metrics-port={port}"],
        env=os.environ | env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        while not _answers(f"{url}/readyz"):
            if process.poll() is not None:
                raise RuntimeError(f"the operator ended with {process.returncode}")
            time.sleep(0.2)
        before = -1.0
        while variant == TELLING and (found := _writes(url) or 0.0) != before:
            before = found
            time.sleep(2)
        yield url
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _writes(url: str) -> float | None:
    """The number of tenant writes of an operator; None without such an operator."""
    if not url:
        return None
    with urlopen(f"{url}/metrics", timeout=5) as response:
        lines = response.read().decode().splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith(f"{WRITES} ")), None)


@contextmanager
def _running(variant: str, made: Cluster) -> Iterator[None]:
    if variant == ALONE:
        with StockScheduler(made):
            yield
        return
    made.start("kube-scheduler")
    try:
        yield
    finally:
        made.stop("kube-scheduler")


@asynccontextmanager
async def _binds(client: Client) -> AsyncIterator[dict[str, float]]:
    """The monotonic time at which each pod was seen as bound; filled while the context is open."""
    bound: dict[str, float] = {}

    def note(event: str, pod: Pod) -> None:
        if event != "DELETED" and pod.spec.node_name:
            bound.setdefault(pod.metadata.name, time.monotonic())

    reflector: Reflector[Any] = Reflector(client, resource=PODS, as_type=Pod, namespace="default", on_event=note)
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    try:
        yield bound
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


if __name__ == "__main__":
    main()
