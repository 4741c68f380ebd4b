"""The tree of devices that `gflowd up` prints."""

import asyncio
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from dovetail.answers.inventory import take
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUNODES, NODES, PODS
from dovetail.kube.errors import KubeError
from dovetail.kube.queries.cluster import read_settings
from dovetail.query.nodes.device_tree import PATIENCE_SECONDS, device_tree, silent_nodes
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.cluster.release import release_namespace
from dovetail_cli.ui.times import utc_now

_LOOK_SECONDS: Final = 0.25


def show(kubeconfig: Path, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Print the tree of the cluster that the file names.

    The queue is of use without it, so nothing is raised.
    """
    try:
        print(work(partial(_tree, seconds=seconds), kubeconfig=str(kubeconfig), context=None), flush=True)
    except KubeError as error:
        print(f"dovetail: the devices cannot be listed: {error}", file=sys.stderr)


async def _tree(cluster: Cluster, *, seconds: float) -> str:
    """The tree once each node's agent has reported, or as it is after `seconds`."""
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
    return device_tree(found.nodes, silent=silent)
