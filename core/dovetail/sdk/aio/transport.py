"""The one module that sends: connections to the gateway, attempts, and what a failure is called."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dovetail.sdk.aio import runtime
from dovetail.sdk.calls.call import Call
from dovetail.sdk.discovery import Connection
from dovetail.sdk.errors import UnreachableError, is_later

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
# The gateway itself ends an answer after 30 s.
TIMEOUT_SECONDS: Final = 40.0
_ATTEMPTS: Final = 3
_FIRST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 10.0


class AsyncTransport:
    """Connections to one gateway. A forked child gets its own: two processes on one connection mix their answers."""

    def __init__(self, connection: Connection, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.connection = connection
        self._timeout_seconds = timeout_seconds
        self._http: httpx2.AsyncClient | None = None
        self._process = os.getpid()

    async def send(self, call: Call[T]) -> T:
        """The answer. Raises `DovetailError`.

        What cannot be reached is tried again, and what would change nothing twice also after a lost connection or if
        the gateway asks for a pause.
        """
        attempt = 0
        while True:
            attempt += 1
            reply = await self._attempt(call, attempt=attempt)
            if not isinstance(reply, float):
                return call.answer(reply.content, status=reply.status_code, url=self.connection.url)
            await runtime.sleep(reply)

    async def _attempt(self, call: Call[Any], *, attempt: int) -> "httpx2.Response | float":
        """The response, or the seconds until another attempt. Raises `UnreachableError`."""
        last, http = attempt == _ATTEMPTS, self._client()
        import httpx2

        try:
            response = await http.request(
                call.method,
                self.connection.url + call.path,
                params=dict(call.query),
                content=call.content(),
                headers=call.headers(self.connection),
            )
        except httpx2.TransportError as error:
            unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            if last or not (unsent or call.repeatable):
                raise self._unreachable(call, error=error, attempts=attempt) from error
            return _FIRST_PAUSE_SECONDS * 2.0 ** (attempt - 1)
        if is_later(response.status_code) and call.repeatable and not last:
            return _asked_pause(response.headers.get("Retry-After", ""))
        return response

    @asynccontextmanager
    async def lines(self, call: Call[Any]) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of an answer as they come, without a limit of time. Raises `DovetailError`."""
        http = self._client()
        import httpx2

        try:
            async with http.stream(
                call.method,
                self.connection.url + call.path,
                params=dict(call.query),
                headers=call.headers(self.connection),
                timeout=httpx2.Timeout(self._timeout_seconds, read=None),
            ) as response:
                if not response.is_success:
                    content = await response.aread()
                    raise call.refusal(content, status=response.status_code, url=self.connection.url)
                yield response.aiter_lines()
        except httpx2.TransportError as error:
            raise self._unreachable(call, error=error, attempts=1) from error

    async def aclose(self) -> None:
        """Close the connections, if they are this process's."""
        http, self._http = self._http, None
        if http is not None and self._process == os.getpid():
            await http.aclose()

    def _client(self) -> "httpx2.AsyncClient":
        if self._http is None or self._process != os.getpid():
            import httpx2  # 0.1 s that an import of dovetail.sdk does not take

            self._http = httpx2.AsyncClient(timeout=self._timeout_seconds)
            self._process = os.getpid()
        return self._http

    def _unreachable(self, call: Call[Any], *, error: Exception, attempts: int) -> UnreachableError:
        problem = str(error) or type(error).__name__
        return UnreachableError(self.connection.url, call=call.name, problem=problem, attempts=attempts)


def _asked_pause(retry_after: str) -> float:
    """The seconds that the gateway asks for, within bounds."""
    seconds = float(retry_after) if retry_after.isdecimal() else 1.0
    return min(seconds, _LONGEST_PAUSE_SECONDS)
