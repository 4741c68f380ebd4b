"""Measure how soon a new replica is bound on a full cluster: `python benchmarks/replica_start.py`.

A sandbox's GPUs are all used by training that other jobs wait for. A Deployment in the queue gets one replica after the
other, as an autoscaler would: the time is from the write of `spec.replicas` to the binding of the new pod. Its quota
has a reserve, which training uses until then. The figures go to out/replica_start.json and to standard output.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail import names
from dovetail.api.builtin import Namespace, Node, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.resources import GPUJOBS, GPUQUOTAS, NAMESPACES, NODES, PODS
from dovetail.jobs.guests.replicas import DEPLOYMENTS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from counts import count

from tests.cluster.conftest import NODES as NODES_FILE
from tests.cluster.jobs import FOR_EVER, manifest
from tests.cluster.sandboxes import sandbox_with

EXAMPLE: Final = Path(__file__).resolve().parents[1] / "examples" / "kinds" / "deployment.yaml"
SERVING: Final = "serving"
TRAINING: Final = "training"
POOL_NODES: Final = ("v100-0", "v100-1")
GPUS: Final = 14
# More than the cluster has, so that each GPU that is free is taken at once.
TRAINING_JOBS: Final = 20
REPLICAS: Final = 6
# How long the pods of training take to end, and how soon they leave the reserve.
ENDS_SECONDS: Final = 1
LEAVE_SECONDS: Final = 3
_PATIENCE_SECONDS: Final = 180


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=count, default=4, help=f"times {REPLICAS} replicas (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/replica_start.json"), help="where it is written too")
    asked = options.parse_args()
    with sandbox_with(nodes_file=NODES_FILE) as sandbox:
        seconds = sorted(asyncio.run(_measured(sandbox, rounds=asked.rounds)))
    found = {
        "replicas": len(seconds),
        "p50_seconds": round(seconds[len(seconds) // 2], 2),
        "p95_seconds": round(seconds[min(len(seconds) - 1, int(len(seconds) * 0.95))], 2),
        "most_seconds": round(seconds[-1], 2),
    }
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


async def _measured(sandbox: Cluster, *, rounds: int) -> list[float]:
    """From the write of the number of replicas to the binding of the new pod, in seconds."""
    seconds: list[float] = []
    async with Client(load_connection(sandbox.kubeconfig)) as client:
        await _fill(client)
        for _ in range(rounds):
            for replicas in range(1, REPLICAS + 1):
                await _until(client, holds=lambda pods, used=replicas - 1: _is_full(pods, replicas=used))
                began = time.monotonic()
                await _scale(client, replicas=replicas)
                await _until(client, holds=lambda pods, wanted=replicas: _bound(pods, namespace=SERVING) == wanted)
                seconds.append(time.monotonic() - began)
            await _scale(client, replicas=0)
    return seconds


async def _fill(client: Client) -> None:
    """All GPUs are used by training, and more of it waits; the service has no replica yet."""
    for namespace in (SERVING, TRAINING):
        await client.create(NAMESPACES, body={"metadata": {"name": namespace}}, as_type=Namespace)
    for node in POOL_NODES:
        patch = {"metadata": {"labels": {names.LABEL_POOL: SERVING}}}
        await client.patch(NODES, name=node, patch=patch, as_type=Node)
    spec: dict[str, Any] = {
        "namespaces": [SERVING],
        "pools": [SERVING],
        "guaranteed": {"gpus": REPLICAS + 2},
        "reserve": {"gpus": 2, "leaveWithinSeconds": LEAVE_SECONDS},
    }
    await client.create(GPUQUOTAS, body={"metadata": {"name": SERVING}, "spec": spec}, as_type=GPUQuota)
    for number in range(TRAINING_JOBS):
        body = manifest(f"train-{number}", gpu=1, checkpointIntervalSeconds=60)
        body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = ENDS_SECONDS
        await client.create(GPUJOBS, body=body, as_type=GPUJob, namespace=TRAINING)
    deployment = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    deployment["spec"]["replicas"] = 0
    annotations = {names.REQUEST: "1(V100)", names.RUN_SECONDS: str(FOR_EVER)}
    deployment["spec"]["template"]["metadata"]["annotations"] = annotations
    deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = ENDS_SECONDS
    await client.create(DEPLOYMENTS.resource, body=deployment, as_type=dict[str, Any], namespace=SERVING)
    await _until(client, holds=lambda pods: _bound(pods, namespace=TRAINING) == GPUS)


async def _scale(client: Client, *, replicas: int) -> None:
    patch = {"spec": {"replicas": replicas}}
    await client.patch(DEPLOYMENTS.resource, name="serve", patch=patch, as_type=dict[str, Any], namespace=SERVING)


def _bound(pods: Sequence[Pod], *, namespace: str) -> int:
    return sum(
        pod.metadata.namespace == namespace and bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None
        for pod in pods
    )


def _is_full(pods: Sequence[Pod], *, replicas: int) -> bool:
    """Whether so many replicas and training use all GPUs of the cluster."""
    uses = {namespace: _bound(pods, namespace=namespace) for namespace in (SERVING, TRAINING)}
    return uses == {SERVING: replicas, TRAINING: GPUS - replicas}


async def _until(client: Client, *, holds: Callable[[Sequence[Pod]], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            pods: list[Pod] = []
            for namespace in (SERVING, TRAINING):
                found, _ = await client.list(PODS, as_type=Pod, namespace=namespace)
                pods += found
            if holds(pods):
                return
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    main()
