"""Karpenter's NodePools, watched where Karpenter is installed and access is allowed. Read only."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from dovetail.api.karpenter import NodePool
from dovetail.api.meta import EventType
from dovetail.api.resources import NODEPOOLS
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, KubeError, NotFound
from dovetail.kube.reflector import Reflector
from dovetail.logs import get_logger

log = get_logger("dovetail.kube.karpenter")

_LOOK_SECONDS: Final = 60.0


async def list_node_pools(client: Client) -> list[NodePool]:
    """List the NodePools; empty where Karpenter is not installed or access is forbidden."""
    try:
        return list((await client.list(NODEPOOLS, as_type=NodePool)).items)
    except (NotFound, Forbidden):
        return []


class NodePoolWatch:
    """Follows NodePools; `run()` does so until it is cancelled.

    `settled` is set when all are listed, or when it is clear that they cannot be listed now.
    """

    def __init__(
        self,
        client: Client,
        *,
        on_event: Callable[[EventType, NodePool], None],
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self.settled = asyncio.Event()
        self._client = client
        self._look_seconds = look_seconds
        self._reflector = Reflector(client, resource=NODEPOOLS, as_type=NodePool, on_event=on_event)

    async def run(self) -> None:
        """Follow NodePools. If Karpenter is not installed, look for it every `look_seconds`."""
        while not await self._is_served():
            self.settled.set()
            await asyncio.sleep(self._look_seconds)
        log.info("Karpenter is here: its NodePools count as growing pools")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run())
            tasks.create_task(self._settle())

    async def _settle(self) -> None:
        await self._reflector.synced.wait()
        self.settled.set()

    async def _is_served(self) -> bool:
        try:
            async for _ in self._client.pages(NODEPOOLS, as_type=msgspec.Raw, page_size=1):
                return True
        except KubeError as error:
            log.debug("no NodePools of Karpenter", error=str(error))
        return False
