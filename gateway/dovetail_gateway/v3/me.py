"""v3: who the caller is, and what it may see."""

from datetime import UTC, datetime
from typing import Any

from dovetail.answers.callers import Me
from dovetail.formats.timestamps import timestamp
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.table import Answer, Call, Nothing, Strictly


class Myself:
    """The handler of `/api/v3/me`."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    async def get_me(self, call: Call[Nothing, Strictly, Any]) -> Answer:
        """Who the API server says the caller is."""
        sees = await self._cache.seen_by(call.caller)
        ends = call.caller.expires_at
        return Answer(
            value=Me(
                username=call.who.username,
                groups=list(call.who.groups),
                everywhere=sees.everything,
                namespaces=sorted(sees.namespaces or ()),
                expires_at=None if ends is None else timestamp(datetime.fromtimestamp(ends, tz=UTC)),
            )
        )
