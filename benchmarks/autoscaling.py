"""Draw how a real HPA follows the load of a service with shares: `python benchmarks/autoscaling.py`.

A sandbox runs with Prometheus and prometheus-adapter, and the example of docs/autoscaling.md. The service's work rises,
and falls again. The picture goes to docs/images/autoscaling.png, the moments to out/autoscaling.json, the duration of
each step to standard output.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from dovetail.api.builtin import Namespace
from dovetail.api.resources import NAMESPACES
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cluster.autoscaling import Moment, Trace, applied, metrics_apis, on_the_serving_node, serving_node
from tests.cluster.conftest import NODES
from tests.cluster.prometheus import scraping
from tests.cluster.sandboxes import sandbox_with

NAMESPACE: Final = "serving"
# How many devices' work the service has, and the replicas that follow from halves of devices at 80 %.
STEPS: Final = ((0.2, 1), (1.0, 3), (2.0, 5), (0.2, 1))
_REST_SECONDS: Final = 30


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--plot", type=Path, default=Path("docs/images/autoscaling.png"), help="the picture")
    options.add_argument("--json", type=Path, default=Path("out/autoscaling.json"), help="the moments")
    asked = options.parse_args()
    with sandbox_with(nodes_file=NODES) as sandbox, tempfile.TemporaryDirectory() as folder:
        moments = asyncio.run(_followed(sandbox, folder=Path(folder)))
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps([asdict(moment) for moment in moments], indent=1) + "\n")
    draw(moments).savefig(asked.plot, dpi=110)


async def _followed(sandbox: Cluster, *, folder: Path) -> list[Moment]:
    async with Client(load_connection(sandbox.kubeconfig)) as client:
        await client.create(NAMESPACES, body={"metadata": {"name": NAMESPACE}}, as_type=Namespace)
        trace = Trace(client=client, namespace=NAMESPACE, name="serve")
        async with (
            scraping(sandbox, folder=folder) as prometheus,
            metrics_apis(client, cluster=sandbox, namespace=NAMESPACE, prometheus=prometheus, folder=folder),
            serving_node(client, namespace=NAMESPACE) as demand,
            applied(client, "utilization.yaml", namespace=NAMESPACE, changes=on_the_serving_node),
        ):
            for devices, replicas in STEPS:
                trace.demand = devices
                await demand(devices)
                began = len(trace.moments)
                await trace.until_bound(replicas)
                seconds = trace.moments[-1].seconds - trace.moments[began].seconds
                print(f"work for {devices:g} devices: {replicas} replicas bound after {seconds:.0f} s", flush=True)
                await trace.stays(replicas, seconds=_REST_SECONDS)
    return trace.moments


def draw(moments: Sequence[Moment]) -> Figure:
    """The service's work and what its replicas are promised, above the utilization that the autoscaler read."""
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    seconds = [moment.seconds for moment in moments]
    above.step(seconds, [moment.demand for moment in moments], where="post", label="work of the service", color="C1")
    above.step(
        seconds, [moment.wanted / 2 for moment in moments], where="post", label="replicas wanted x 0.5", color="C0"
    )
    bound = [moment.bound / 2 for moment in moments]
    above.step(seconds, bound, where="post", label="replicas bound x 0.5", color="C0", linestyle=":")
    above.set_ylabel("GPUs")
    above.legend(loc="upper left")
    seen = [(moment.seconds, moment.seen) for moment in moments if moment.seen is not None]
    below.step([at for at, _ in seen], [value for _, value in seen], where="post", color="C2")
    below.axhline(0.8, color="grey", linewidth=0.8, linestyle="--")
    below.set_ylabel("utilization of the promise")
    below.set_xlabel("seconds")
    below.set_ylim(0, 1.1)
    for axes in (above, below):
        axes.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()
