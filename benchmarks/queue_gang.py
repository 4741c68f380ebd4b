"""Measure one gang from its creation until all pods are bound, with and without a raised client limit.

Everything is real except the nodes' kubelets. kube-controller-manager may send 20 requests a second by default
(`--kube-api-qps`, burst 30), which limits how fast the pods of a Job are created; the sandbox raises it.
KAI publishes 49 s for a gang of 512 pods.

    python benchmarks/queue_gang.py [--workers 512] [--nodes 64] [--rounds 3] [--json FILE]
"""

import argparse
import asyncio
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import plane
import queue_plane
from counts import count
from queue_admission import followed
from queue_plane import NAMESPACE
from queue_running import until_reported

from dovetail.api.builtin import Pod
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, PODS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster

KAI_SECONDS = 49.0
CONTROLLERS = "kube-controller-manager"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--workers", type=count, default=512, help="workers of one GPU each (default: %(default)s)")
    options.add_argument("--nodes", type=count, default=64, help="nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument("--rounds", type=count, default=3, help="gangs with the raised limit (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/queue_gang.json"), help="where it is written too")
    args = options.parse_args()
    with queue_plane.sandbox(nodes=queue_plane.gpu_nodes(args.nodes)) as made:
        found = asyncio.run(measure(made, args))
    queue_plane.report(found, path=args.json)


async def measure(made: Cluster, args: argparse.Namespace) -> dict[str, Any]:
    async with plane.client_of(made) as client:
        await until_reported(client, args.nodes)
        raised = [await gang(client, f"raised-{at}", workers=args.workers) for at in range(args.rounds)]
        with limited(made):
            default = await gang(client, "default", workers=args.workers)
    return {
        "workers": args.workers,
        "nodes": args.nodes,
        "raised_seconds": raised,
        "raised_median_seconds": statistics.median(raised),
        "default_seconds": default,
        "kai_seconds": KAI_SECONDS,
    }


@contextmanager
def limited(made: Cluster) -> Iterator[None]:
    """A kube-controller-manager with its own client limits in the place of the sandbox's."""
    pid = made.pid(CONTROLLERS)
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    argv = [word for word in words if not word.startswith(("--kube-api-", "--secure-port"))]
    log = made.folder / "logs" / "limited.log"
    with queue_plane.paused(made, CONTROLLERS), log.open("wb") as out:
        process = subprocess.Popen([*argv, "--secure-port=0"], stdout=out, stderr=out)
        try:
            # It lists all there is before it makes the first pod.
            time.sleep(10)
            yield
        finally:
            process.terminate()
            process.wait(30)


async def gang(client: Client, name: str, *, workers: int) -> float:
    """Seconds from the creation of a gang until all its pods are bound; it is gone afterwards."""
    bound: set[str] = set()

    def pod(event: EventType, seen: Pod) -> None:
        if seen.spec.node_name and event != "DELETED":
            bound.add(seen.metadata.uid)

    async with followed(client, PODS, Pod, pod):
        began = time.monotonic()
        body = queue_plane.job(name, workers=workers)
        await client.create(GPUJOBS, body=body, as_type=dict[str, Any], namespace=NAMESPACE)
        while len(bound) < workers:  # noqa: ASYNC110 - a watch fills it
            await asyncio.sleep(0.05)
        seconds = time.monotonic() - began
    print(f"{name}: {workers} pods bound after {seconds:.1f} s", flush=True)
    await client.delete(GPUJOBS, name=name, namespace=NAMESPACE)
    while (await client.list(PODS, as_type=Pod, namespace=NAMESPACE)).items:  # noqa: ASYNC110 - others change it
        await asyncio.sleep(0.5)
    return round(seconds, 2)


if __name__ == "__main__":
    main()
