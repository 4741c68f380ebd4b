"""Nodes used and the fullest node's share under SPREAD, BALANCED and PACK, on a sandbox with four nodes of eight V100.

A number of requests `0.25(V100)` arrives together: as plain pods, as one Deployment and as GPUJobs. They arrive on idle
nodes, and on nodes of which one is full, two are half full and one is idle. The cells count only what arrived.

    python benchmarks/policy_nodes.py [--counts 6,8,50] [--json FILE]
"""

import argparse
import asyncio
import json
import tempfile
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import GPUJOBS, NAMESPACES, PODS, SERVICEACCOUNTS, Resource
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail_sandbox import bringup, progress

NODES: Final = "- {name: v100, count: 4, model: V100, devices: 8, memory_mib: 32768, cpu: 64, memory: 256Gi}\n"
REQUEST: Final = "0.25(V100)"
REQUEST_MILLI: Final = 250
NODE_MILLI: Final = 8_000
POLICIES: Final = ("Spread", "Balanced", "Pack")
HALF_FULL: Final = {"v100-0": "8", "v100-1": "4", "v100-2": "4"}
DEPLOYMENTS: Final = Resource(group="apps", version="v1", plural="deployments", kind="Deployment")
WAIT_SECONDS: Final = 180
ENDLESS: Final = "100000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What `count` requests of one kind did under a policy: nodes used, and the most that one node took, 0 to 1."""

    cluster: str
    kind: str
    policy: str
    count: int
    nodes: int
    largest: float


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--counts", default="6,8,50", help="how many requests arrive (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/policy_nodes.json"), help="where it is written too")
    args = options.parse_args()
    counts = [int(each) for each in args.counts.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        nodes = Path(folder) / "nodes.yaml"
        nodes.write_text(NODES)
        sandbox = bringup.up(f"policies-{uuid.uuid4().hex[:6]}", nodes_file=nodes, report=progress.reporter())
        try:
            cells = asyncio.run(measure(sandbox.kubeconfig, counts=counts))
        finally:
            sandbox.down()
    args.json.parent.mkdir(exist_ok=True)
    args.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=2) + "\n")
    print(table(cells, counts=counts))


async def measure(kubeconfig: Path, *, counts: list[int]) -> list[Cell]:
    """All cells, one after the other."""
    cells = []
    async with Client(load_connection(kubeconfig)) as client:
        for cluster, held in {"idle": {}, "half full": HALF_FULL}.items():
            async with namespace(client) as filled:
                for node, gpus in held.items():
                    await fill(client, namespace=filled, node=node, gpus=gpus)
                await placed(client, namespace=filled, count=len(held))
                for kind, submit in KINDS.items():
                    for policy in POLICIES:
                        for count in counts:
                            taken = await arrive(client, submit=submit, policy=policy, count=count)
                            most = max(taken.values()) * REQUEST_MILLI / NODE_MILLI
                            cells.append(
                                Cell(
                                    cluster=cluster,
                                    kind=kind,
                                    policy=policy,
                                    count=count,
                                    nodes=len(taken),
                                    largest=most,
                                )
                            )
                            print(cells[-1], flush=True)
    return cells


async def arrive(client: Client, *, submit: Callable[..., Awaitable[None]], policy: str, count: int) -> Counter[str]:
    """How many of the requests each node took."""
    async with namespace(client) as name:
        await submit(client, namespace=name, policy=policy, count=count)
        return await placed(client, namespace=name, count=count)


async def placed(client: Client, *, namespace: str, count: int) -> Counter[str]:
    """The nodes of the namespace's pods once `count` of them have one."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            pods, _ = await client.list(PODS, as_type=Pod, namespace=namespace)
            nodes = Counter(pod.spec.node_name for pod in pods if pod.spec.node_name)
            if nodes.total() >= count:
                return nodes
            await asyncio.sleep(0.2)


@asynccontextmanager
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace for one arrival; its pods are gone when the context ends."""
    name = f"arrival-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, body={"metadata": {"name": name}}, as_type=dict[str, Any])
    await _until(
        lambda: client.get(SERVICEACCOUNTS, name="default", as_type=dict[str, Any], namespace=name), there=True
    )
    try:
        yield name
    finally:
        await client.delete(NAMESPACES, name=name)
        await _until(lambda: client.get(NAMESPACES, name=name, as_type=dict[str, Any]), there=False)


async def _until(read: Callable[[], Awaitable[Any]], *, there: bool) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                await read()
                found = True
            except NotFound:
                found = False
            if found is there:
                return
            await asyncio.sleep(0.2)


async def fill(client: Client, *, namespace: str, node: str, gpus: str) -> None:
    """A pod that holds whole GPUs of one node."""
    body = template(gpus, policy="Pack")
    body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    await client.create(PODS, body=_named(PODS, body, name=node), as_type=dict[str, Any], namespace=namespace)


def template(request: str, *, policy: str) -> dict[str, Any]:
    """A pod that asks by annotation and runs until it is deleted."""
    annotations = {names.REQUEST: request, names.POLICY: policy, names.RUN_SECONDS: ENDLESS}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}


async def pods(client: Client, *, namespace: str, policy: str, count: int) -> None:
    """Plain pods."""
    for number in range(count):
        body = _named(PODS, template(REQUEST, policy=policy), name=f"pod-{number}")
        await client.create(PODS, body=body, as_type=dict[str, Any], namespace=namespace)


async def deployment(client: Client, *, namespace: str, policy: str, count: int) -> None:
    """One Deployment with `count` replicas."""
    labels = {"app": "replica"}
    pod = template(REQUEST, policy=policy)
    pod["metadata"]["labels"] = labels
    spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": pod}
    body = _named(DEPLOYMENTS, {"metadata": {}, "spec": spec}, name="replicas")
    await client.create(DEPLOYMENTS, body=body, as_type=dict[str, Any], namespace=namespace)


async def gpujobs(client: Client, *, namespace: str, policy: str, count: int) -> None:
    """GPUJobs of one pod each."""
    for number in range(count):
        pod = {
            "metadata": {"annotations": {names.RUN_SECONDS: ENDLESS}},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        }
        spec = {"gpu": REQUEST, "policy": policy, "template": pod}
        body = _named(GPUJOBS, {"metadata": {}, "spec": spec}, name=f"job-{number}")
        await client.create(GPUJOBS, body=body, as_type=dict[str, Any], namespace=namespace)


KINDS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    "pods": pods,
    "Deployment": deployment,
    "GPUJobs": gpujobs,
}


def _named(resource: Resource, body: dict[str, Any], *, name: str) -> dict[str, Any]:
    metadata = {**body["metadata"], "name": name}
    return {**body, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def table(cells: list[Cell], *, counts: list[int]) -> str:
    """`nodes used / largest share` for each number of requests, as a table in Markdown."""
    found = {(cell.cluster, cell.kind, cell.policy, cell.count): cell for cell in cells}
    lines = [f"| | {' | '.join(f'{count} x {REQUEST}' for count in counts)} |", "|---" * (len(counts) + 1) + "|"]
    for cluster, kind, policy in dict.fromkeys(key[:3] for key in found):
        row = [found[cluster, kind, policy, count] for count in counts]
        shown = " | ".join(f"{cell.nodes} / {cell.largest:.2f}" for cell in row)
        lines.append(f"| {cluster}, {kind}, {policy.upper()} | {shown} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
