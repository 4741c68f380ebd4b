"""The bearer token of a connection, kept for a minute at most because it may rotate."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from dovetail.kube.auth.connection import Connection

_KEPT_SECONDS: Final = 60.0


class BearerToken:
    """Reads the token when it is first needed, when it has grown old, and when it was forgotten."""

    def __init__(self, connection: Connection, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._token: str | None = None
        self._read_at: float | None = None

    async def get(self) -> str | None:
        """The token to send now, or None for a connection without one."""
        if not self._connection.changing_token:
            return self._connection.token
        if self._read_at is None or self._clock() - self._read_at >= _KEPT_SECONDS:
            self._token = await asyncio.to_thread(self._connection.read_token)
            self._read_at = self._clock()
        return self._token

    def forget(self) -> None:
        """Read it again next time: the API server did not accept it."""
        self._read_at = None
