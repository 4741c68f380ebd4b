"""v3: everything that a caller sees at one moment, from which the stream leads on."""

import re
from typing import Any, Protocol

from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.routing.table import Answer, Call, Nothing, Strictly


class Source(Protocol):
    """What the handler needs of the feed."""

    def snapshot(self, *, sees: Visibility) -> tuple[bytes, str]:
        """Everything that is visible now, as JSON of a `Snapshot`, and a tag that names this content."""

    async def gzipped_snapshot(self, *, sees: Visibility) -> tuple[bytes, str]:
        """The same as gzip."""


class Snapshots:
    """The handler of `/api/v3/snapshot`."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def get_snapshot(self, call: Call[Nothing, Strictly, Any]) -> Answer:
        """Everything that the caller sees."""
        if _takes_gzip(call.headers.get("Accept-Encoding", "")):
            encoded, tag = await self._source.gzipped_snapshot(sees=call.sees)
            return Answer(encoded=encoded, tag=tag, gzipped=True)
        encoded, tag = self._source.snapshot(sees=call.sees)
        return Answer(encoded=encoded, tag=tag)


def _takes_gzip(accepted: str) -> bool:
    """Whether a client accepts gzip; one that gives it the weight 0 does not (RFC 9110)."""
    for each in accepted.split(","):
        coding, _, weight = each.replace(" ", "").partition(";")
        if coding.lower() == "gzip":
            return not re.fullmatch(r"q=0(\.0*)?", weight)
    return False
