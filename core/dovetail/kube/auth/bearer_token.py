"""The bearer token of a connection: kept for a minute, read again after a 401."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from dovetail.kube.auth.connection import Connection

# client-go reads a token file once a minute too. The kubelet replaces a token at 80 % of its life.
_KEPT_SECONDS: Final = 60.0


class BearerToken:
    """Reads the token when a request first needs it, when it is a minute old, and when the API server rejected it."""

    def __init__(self, connection: Connection, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._token: str | None = None
        self._read_at: float | None = None
        self._rejected = False
        # Requests that start together must not each run the login program.
        self._reading = asyncio.Lock()

    async def get(self) -> str | None:
        """The token to send now, or None for a connection without one. Raises `KubeconfigError`."""
        if not self._connection.changing_token:
            return self._connection.token
        if not self._is_fresh():
            async with self._reading:
                if not self._is_fresh():
                    await self._read()
        return self._token

    def reject(self, token: str | None) -> None:
        """Replace the token, because the API server answered 401 to it. Ignores a token that is replaced already."""
        if token == self._token:
            self._read_at, self._rejected = None, True

    def _is_fresh(self) -> bool:
        return self._read_at is not None and self._clock() - self._read_at < _KEPT_SECONDS

    async def _read(self) -> None:
        self._token = await asyncio.to_thread(self._connection.read_token, renew=self._rejected)
        self._read_at, self._rejected = self._clock(), False
