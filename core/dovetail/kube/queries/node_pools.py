"""Karpenter's NodePools, watched where Karpenter is installed and access is allowed. Read only."""

from collections.abc import Callable

from dovetail.api.karpenter import NodePool
from dovetail.api.meta import EventType
from dovetail.api.resources import NODEPOOLS
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.kube.queries.optional_watch import LOOK_SECONDS, OptionalWatch


async def list_node_pools(client: Client) -> list[NodePool]:
    """List the NodePools; empty where Karpenter is not installed or access is forbidden."""
    try:
        return list((await client.list(NODEPOOLS, as_type=NodePool)).items)
    except (NotFound, Forbidden):
        return []


def watch_node_pools(
    client: Client, *, on_event: Callable[[EventType, NodePool], None], look_seconds: float = LOOK_SECONDS
) -> OptionalWatch[NodePool]:
    """Build the informer of NodePools."""
    return OptionalWatch(client, resource=NODEPOOLS, as_type=NodePool, on_event=on_event, look_seconds=look_seconds)
