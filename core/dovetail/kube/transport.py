"""HTTP to the API server: a session, credentials, deadlines, retries, refusals."""

import asyncio
import http
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from dovetail.decoding import UnreadableError
from dovetail.kube import retry
from dovetail.kube.auth.connection import Connection
from dovetail.kube.errors import (
    DeadlineExceeded,
    Status,
    StatusError,
    status_error,
)
from dovetail.kube.http_session import Answer, Request, Session
from dovetail.kube.watch_stream import decoder

Query = Mapping[str, str]

MakeSession = Callable[[Connection], Session]
# A session follows no redirects, so a redirect is a refusal too.
_FIRST_REFUSED_STATUS: Final = 300


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


class Transport:
    """Sends paths, queries and bytes. The client knows what they mean."""

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str,
        deadline_seconds: float,
        backoff: retry.Backoff,
        rng: random.Random,
        guard: Callable[[], None] | None = None,
        make_session: MakeSession,
    ) -> None:
        self._connection = connection
        self._guard = guard
        self._user_agent = user_agent
        self._deadline_seconds = deadline_seconds
        self._backoff = backoff
        self._rng = rng
        self._token = BearerToken(connection)
        self._make_session = make_session
        self._session: Session | None = None

    def open(self) -> None:
        """Open the session. Raises `KubeconfigError` for certificates that cannot be used."""
        self._session = self._make_session(self._connection)

    async def close(self) -> None:
        """Close the session and its connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query, silence_seconds: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream the body of a long GET in chunks as they arrive. One attempt.

        Raises `Unreachable` after `silence_seconds` without data; None means no limit.
        """
        request = await self._request("GET", path=path, query=query)
        async with self._opened().stream(request, silence_seconds=silence_seconds) as answer:
            if isinstance(answer, Answer):
                raise self._refused(answer, request=request)
            yield answer

    async def send(
        self,
        method: str,
        *,
        path: str,
        query: Query | None = None,
        body: Any = None,
        content_type: str = "application/json",
        most_bytes: int | None = None,
        deadline_seconds: float | None,
    ) -> bytes:
        """Send a request, with as many attempts as the method and the deadline allow.

        Returns the body.

        Raises `DeadlineExceeded` at the deadline over all attempts, `TooLarge` as soon as the answer exceeds
        `most_bytes`, and the `KubeError` of the last attempt otherwise.
        """
        seconds = self._deadline_seconds if deadline_seconds is None else deadline_seconds
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with asyncio.timeout(seconds):
                return await self._attempts(
                    method, path=path, query=query or {}, data=data, content_type=content_type, most_bytes=most_bytes
                )
        except TimeoutError as error:
            raise DeadlineExceeded(self._connection.server, deadline_seconds=seconds) from error

    async def _attempts(
        self, method: str, *, path: str, query: Query, data: bytes | None, content_type: str, most_bytes: int | None
    ) -> bytes:
        async def send(_attempt: int) -> bytes:
            request = await self._request(
                method, path=path, query=query, data=data, content_type=content_type, most_bytes=most_bytes
            )
            return await self._answered(request)

        def may_resend(error: Exception, attempt: int) -> bool:
            return retry.may_resend(error, method=method, attempt=attempt)

        return await retry.retrying(send, may_retry=may_resend, backoff=self._backoff, rng=self._rng)

    async def _answered(self, request: Request) -> bytes:
        if self._guard is not None and request.method != "GET":
            self._guard()
        answer = await self._opened().exchange(request)
        if answer.status >= _FIRST_REFUSED_STATUS:
            raise self._refused(answer, request=request)
        return answer.body

    def _refused(self, answer: Answer, *, request: Request) -> StatusError:
        if answer.status == http.HTTPStatus.UNAUTHORIZED:
            self._token.reject(request.token)
        return _refusal(answer, request=str(request))

    async def _request(
        self,
        method: str,
        *,
        path: str,
        query: Query,
        data: bytes | None = None,
        content_type: str = "application/json",
        most_bytes: int | None = None,
    ) -> Request:
        # Compression costs CPU on the API server and here; inside a cluster bytes are cheaper.
        headers = {"User-Agent": self._user_agent, "Accept": "application/json", "Accept-Encoding": "identity"}
        if data is not None:
            headers["Content-Type"] = content_type
        if token := await self._token.get():
            headers["Authorization"] = f"Bearer {token}"
        return Request(
            method=method, path=path, query=query, headers=headers, token=token, data=data, most_bytes=most_bytes
        )

    def _opened(self) -> Session:
        assert self._session is not None, "use the client in `async with`"
        return self._session


def _refusal(answer: Answer, *, request: str) -> StatusError:
    try:
        status = decoder(Status).decode(answer.body)
    except UnreadableError:
        # A proxy's error page, or a filter that answers in plain text.
        status = Status(message=answer.body[:300].decode(errors="replace").strip())
    status = msgspec.structs.replace(status, code=answer.status)
    asked = answer.retry_after
    return status_error(
        status, request=request, retry_after_seconds=float(asked) if asked.isascii() and asked.isdigit() else None
    )


def aiohttp_session(connection: Connection) -> Session:
    """The session of long-lived processes, of watches and of writes."""
    from dovetail.kube.aiohttp_session import AiohttpSession  # noqa: PLC0415 - 0.1 s, which a listing does without

    return AiohttpSession(connection)


def brief_session(connection: Connection) -> Session:
    """The session of a process that sends a few requests and ends; behind a proxy, aiohttp's."""
    if connection.proxy_url:
        return aiohttp_session(connection)
    from dovetail.kube.thread_session import ThreadSession  # noqa: PLC0415 - no other process has a use for it

    return ThreadSession(connection)
