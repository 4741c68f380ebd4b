"""What `gflowd up` says of its machine: devices, or what runs without, and a first job."""

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from dovetail.answers.inventory import take
from dovetail.answers.node_rows import host_cpus, host_memory_mib
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUNODES, NODES, PODS
from dovetail.cluster.availability import lacks_library, unreadable
from dovetail.kube.errors import KubeError
from dovetail.kube.queries.cluster import read_settings
from dovetail.query.nodes.device_tree import PATIENCE_SECONDS, device_tree, silent_nodes
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.cluster.release import release_namespace
from dovetail_cli.ui.times import utc_now

_LOOK_SECONDS: Final = 0.25
_FIRST_JOB: Final = "Your first job:"


def show(kubeconfig: Path, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Print what the machine of the cluster that the file names can do.

    The queue is of use without it, so nothing is raised.
    """
    try:
        print(work(partial(_tree, seconds=seconds), kubeconfig=str(kubeconfig), context=None), flush=True)
    except KubeError as error:
        print(f"dovetail: the devices cannot be listed: {error}", file=sys.stderr)


async def _tree(cluster: Cluster, *, seconds: float) -> str:
    """The lines about the machine once its agent has reported, or as it is after `seconds`."""
    client, end = cluster.client, time.monotonic() + seconds
    settings = await read_settings(client, namespace=await release_namespace(cluster))
    while True:
        nodes, listed = await asyncio.gather(client.list(NODES, as_type=Node), client.list(GPUNODES, as_type=GPUNode))
        gpunodes = {each.metadata.name: each for each in listed.items}
        silent = silent_nodes(nodes.items, gpunodes=gpunodes, settings=settings, now=utc_now())
        if (gpunodes and not silent) or time.monotonic() >= end:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    pods = await client.list(PODS, as_type=Pod)
    found = take(listed.items, pods=pods.items, scheduler="", namespace=cluster.namespace, nodes=nodes.items)
    tree = device_tree(found.nodes, silent=silent)
    return "\n".join(_said(tree, nodes=nodes.items, reports=[gpunodes.get(each.metadata.name) for each in nodes.items]))


def _said(tree: str, *, nodes: Sequence[Node], reports: Sequence[GPUNode | None]) -> Iterator[str]:
    """The devices, or the machine without them, and the command of a first job."""
    if any(report is not None and not unreadable(report) and report.status.devices for report in reports):
        yield tree
        yield f"{_FIRST_JOB} gbatch --gpus 1 python train.py"
        return
    if nodes and all(report is not None and lacks_library(report) for report in reports):
        yield f"{_size(nodes[0])}. No driver of a GPU is installed: jobs run on the CPUs."
    else:
        yield tree
    yield f"{_FIRST_JOB} gbatch python train.py"
    yield "A job that requests a GPU runs on the CPUs with --cpu-fallback."


def _size(node: Node) -> str:
    cpus, gib = host_cpus(node), host_memory_mib(node) / 1024
    return f"This machine has {cpus:g} {'CPU' if cpus == 1 else 'CPUs'} and {gib:.1f} GiB of memory"
