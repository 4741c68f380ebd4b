"""What the transport needs of HTTP, as aiohttp and http.client give it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. `path` begins after the server's address; `most_bytes` limits the answer that is taken."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    token: str | None = None  # as it is in the headers
    data: bytes | None = None
    most_bytes: int | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer, whatever its status. `retry_after` is the header's text."""

    status: int
    retry_after: str
    body: bytes


class Session(Protocol):
    """HTTP to one server. Every failure to get an answer is `Unreachable`."""

    async def exchange(self, request: Request) -> Answer:
        """The whole answer. Raises `TooLarge` as soon as more than `most_bytes` have come."""

    def stream(
        self, request: Request, *, silence_seconds: float | None
    ) -> AbstractAsyncContextManager[Answer | AsyncIterator[bytes]]:
        """The body of a long answer in chunks as they arrive, or a refusal as a whole answer."""

    async def close(self) -> None:
        """End the connections."""
