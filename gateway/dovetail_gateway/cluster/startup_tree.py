"""The tree of devices that the gateway prints at its start."""

import asyncio
from datetime import UTC, datetime
from typing import Final

from dovetail.query.nodes.device_tree import PATIENCE_SECONDS, device_tree, silent_nodes
from dovetail_gateway.cluster.cache import ClusterCache

_LOOK_SECONDS: Final = 0.2


async def startup_tree(cache: ClusterCache, *, seconds: float = PATIENCE_SECONDS) -> str:
    """The tree once the agent of each node has reported, or as it is after `seconds`.

    Call it once everything is listed. A fresh cluster may have no nodes then, and has them before their agents report.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    # Reports also grow old, which no event announces.
    while ((silent := _silent(cache)) or not cache.gpunodes) and loop.time() < end:  # noqa: ASYNC110 - see above
        await asyncio.sleep(_LOOK_SECONDS)
    return device_tree({each.name: each for each in cache.node_uses()}, silent=silent)


def _silent(cache: ClusterCache) -> dict[str, str]:
    now = datetime.now(UTC)
    return silent_nodes(cache.nodes.values(), gpunodes=cache.gpunodes, settings=cache.settings, now=now)
