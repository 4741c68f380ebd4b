"""Karpenter's NodePools as growing pools, if Karpenter is installed. Read only."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from dovetail.api.meta import EventType
from dovetail.api.resources import Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.kube.reflector import Reflector
from dovetail.logs import get_logger
from dovetail.queue.growing.karpenter import NodePool
from dovetail_operator.state.growing_pools import GrowingPools

log = get_logger("dovetail.operator.karpenter")

_LOOK_SECONDS: Final = 60.0
NODEPOOLS: Final = Resource(group="karpenter.sh", version="v1", plural="nodepools", kind="NodePool", namespaced=False)


class NodePoolWatch:
    """Keeps the growing pools current. Calls `changed` when they have changed."""

    def __init__(
        self,
        client: Client,
        *,
        pools: GrowingPools,
        changed: Callable[[], None],
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self._client = client
        self._pools = pools
        self._changed = changed
        self._look_seconds = look_seconds

    async def run(self) -> None:
        """Follow NodePools until cancelled.

        If Karpenter is not installed, look for it every `look_seconds`.
        """
        while not await self._is_served():  # noqa: ASYNC110 - another program changes it
            await asyncio.sleep(self._look_seconds)
        log.info("Karpenter is here: its NodePools count as growing pools")
        await Reflector(self._client, resource=NODEPOOLS, as_type=NodePool, on_event=self._on_event).run()

    async def _is_served(self) -> bool:
        try:
            async for _ in self._client.pages(NODEPOOLS, as_type=dict[str, Any], page_size=1):
                return True
        except KubeError as error:
            log.debug("no NodePools of Karpenter", error=str(error))
        return False

    def _on_event(self, type_: EventType, pool: NodePool) -> None:
        if self._pools.node_pool_event(type_, pool):
            self._changed()
