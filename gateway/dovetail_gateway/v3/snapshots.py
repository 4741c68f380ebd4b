"""v3: everything that a caller sees at one moment, from which the stream leads on."""

from typing import Any, Protocol

from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.routing.table import Answer, Call, Nothing, Strictly


class Source(Protocol):
    """What the handler needs of the feed."""

    def snapshot(self, *, sees: Visibility) -> tuple[bytes, str]:
        """Everything that is visible now, as JSON of a `Snapshot`, and a tag that names this content."""


class Snapshots:
    """The handler of `/api/v3/snapshot`."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def get_snapshot(self, call: Call[Nothing, Strictly, Any]) -> Answer:
        """Everything that the caller sees."""
        encoded, tag = self._source.snapshot(sees=call.sees)
        return Answer(encoded=encoded, tag=tag)
