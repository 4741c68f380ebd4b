"""v3: nodes and their devices from the cache, as far as the caller may see them."""

from collections.abc import Sequence
from typing import Any

from dovetail.answers.inventory import NodeUse
from dovetail.answers.node_rows import device_rows, node_row
from dovetail.answers.nodes import DeviceList, NodeList
from dovetail.api.reasons import problems as says
from dovetail.gpu.models import normalise
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing, Strictly
from dovetail_gateway.v3.paging import page
from dovetail_gateway.v3.types.nodes import NodeFilter, NodePath


class Nodes:
    """The handlers of nodes and devices."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    async def list_nodes(self, call: Call[Nothing, NodeFilter, Any]) -> Answer:
        """A page of the nodes with GPUs, by name."""
        nodes, after, total = self._page(call.query)
        return Answer(
            value=NodeList(items=[node_row(node, sees=call.sees.sees) for node in nodes], next=after, total=total)
        )

    async def list_devices(self, call: Call[Nothing, NodeFilter, Any]) -> Answer:
        """The devices of a page of nodes."""
        nodes, after, _ = self._page(call.query)
        rows = [row for node in nodes for row in device_rows(node, sees=call.sees.sees)]
        return Answer(value=DeviceList(items=rows, next=after))

    async def get_node(self, call: Call[NodePath, Strictly, Any]) -> Answer:
        """One node with GPUs."""
        node = self._cache.node_use(call.path.name)
        if node is None:
            raise RequestFailedError(404, reason="NotFound", sentence=says.NO_NODE_WITH_GPUS(node=call.path.name))
        return Answer(value=node_row(node, sees=call.sees.sees))

    def _page(self, wanted: NodeFilter) -> tuple[Sequence[NodeUse], str | None, int]:
        names = sorted(name for name in self._cache.gpunodes if self._has(name, model=wanted.model))
        chosen, after = page(names, cursor=wanted.cursor, limit=wanted.limit)
        found = [self._cache.node_use(name) for name in chosen]
        return [node for node in found if node is not None], after, len(names)

    def _has(self, name: str, *, model: str | None) -> bool:
        if model is None:
            return True
        wanted = normalise(model)
        return any(wanted.admits(normalise(each.model)) for each in self._cache.gpunodes[name].status.devices)
