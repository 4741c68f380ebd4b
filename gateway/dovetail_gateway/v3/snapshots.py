"""v3: everything that a caller sees at one moment, from which the stream leads on."""

from typing import Any, Protocol

from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.routing.table import Answer, Call, Nothing, Strictly
from dovetail_gateway.v3.types import Snapshot


class Source(Protocol):
    """What the handler needs of the feed."""

    def snapshot(self, *, sees: Visibility) -> Snapshot:
        """Everything that is visible now."""


class Snapshots:
    """The handler of `/api/v3/snapshot`."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def get_snapshot(self, call: Call[Nothing, Strictly, Any]) -> Answer:
        """Everything that the caller sees."""
        return Answer(value=self._source.snapshot(sees=call.sees))
