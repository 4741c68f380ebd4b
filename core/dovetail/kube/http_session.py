"""What the transport needs from an HTTP library; aiohttp and http.client provide it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    `path` begins after the server's address; `most_bytes` limits the answer that is taken.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    token: str | None = None  # the same token as in the headers
    data: bytes | None = None
    most_bytes: int | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer with any status. `retry_after` is the header's text."""

    status: int
    retry_after: str
    body: bytes


class Session(Protocol):
    """HTTP to one server. Every failure to get an answer raises `Unreachable`."""

    async def exchange(self, request: Request) -> Answer:
        """Get the complete answer. Raises `TooLarge` as soon as the body exceeds `most_bytes`."""

    def stream(
        self, request: Request, *, silence_seconds: float | None
    ) -> AbstractAsyncContextManager[Answer | AsyncIterator[bytes]]:
        """Stream a long answer's body in chunks; a refusal comes as a complete answer."""

    async def close(self) -> None:
        """Close the connections."""
