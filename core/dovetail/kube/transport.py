"""HTTP to the API server: one session, credentials, deadlines, retries, and refusals as errors."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import aiohttp
import msgspec

from dovetail.decoding import UnreadableError
from dovetail.kube import retry
from dovetail.kube.auth.bearer_token import BearerToken
from dovetail.kube.auth.connection import Connection
from dovetail.kube.errors import (
    DeadlineExceeded,
    KubeError,
    Status,
    StatusError,
    TooLarge,
    Unreachable,
    status_error,
)
from dovetail.kube.watch_stream import decoder

Query = Mapping[str, str]

_CONNECT_SECONDS: Final = 10.0
# Watches take a connection each, so the limit is above aiohttp's.
_CONNECTIONS: Final = 256


class Transport:
    """Paths, queries and bytes; what they mean is the client's business."""

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str,
        deadline_seconds: float,
        backoff: retry.Backoff,
        rng: random.Random,
        guard: Callable[[], None] | None = None,
    ) -> None:
        self._connection = connection
        self._guard = guard
        self._user_agent = user_agent
        self._deadline_seconds = deadline_seconds
        self._backoff = backoff
        self._rng = rng
        self._token = BearerToken(connection)
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Make the session. Raises `KubeconfigError` for certificates that cannot be used."""
        tls = self._connection.ssl_context()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True, limit=_CONNECTIONS),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            # The API server compresses at the cost of its CPU and ours; inside a cluster bytes are cheaper.
            headers={"User-Agent": self._user_agent, "Accept": "application/json", "Accept-Encoding": "identity"},
            proxy=self._connection.proxy_url,
        )

    async def close(self) -> None:
        """End the session and its connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query, silence_seconds: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of a long GET in chunks as they arrive. One attempt. Silence is borne where there is no limit."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence_seconds)
        async with self._open("GET", path, query=query, timeout=timeout) as response:
            yield self._chunks(response)

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str = "application/json",
        most_bytes: int | None = None,
        deadline_seconds: float | None,
    ) -> bytes:
        """The answer's body, after as many attempts as the method and the deadline allow.

        Raises `TooLarge` as soon as more than `most_bytes` have come.
        """
        seconds = self._deadline_seconds if deadline_seconds is None else deadline_seconds
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with asyncio.timeout(seconds):
                return await self._attempts(
                    method, path, query=query or {}, data=data, content_type=content_type, most_bytes=most_bytes
                )
        except TimeoutError as error:
            raise DeadlineExceeded(self._connection.server, deadline_seconds=seconds) from error

    async def _attempts(
        self, method: str, path: str, *, query: Query, data: bytes | None, content_type: str, most_bytes: int | None
    ) -> bytes:
        for attempt in range(retry.MAX_ATTEMPTS):
            try:
                async with self._open(method, path, query=query, data=data, content_type=content_type) as response:
                    with self._reaching():
                        return await _body(response, path=path, most_bytes=most_bytes)
            except KubeError as error:
                if not retry.may_retry(error, method=method, attempt=attempt):
                    raise
                wait = max(self._backoff.seconds(attempt, rng=self._rng), retry.requested_wait_seconds(error))
            await asyncio.sleep(wait)
        raise AssertionError("may_retry ends the attempts")

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        *,
        query: Query,
        data: bytes | None = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,  # noqa: ASYNC109 - aiohttp's own, by phase
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None, "use the client in `async with`"
        headers = {"Content-Type": content_type} if data is not None else {}
        if token := await self._token.get():
            headers["Authorization"] = f"Bearer {token}"
        options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        if self._guard is not None and method != "GET":
            self._guard()
        with self._reaching():
            response = await self._session.request(
                method,
                self._connection.server + path,
                params=query,
                data=data,
                headers=headers,
                server_hostname=self._connection.tls_server_name,
                **options,
            )
        async with response:
            if response.status == 401:
                self._token.reject(token)
            if response.status >= 400:
                with self._reaching():
                    payload = await response.read()
                raise _refusal(response, payload=payload, request=f"{method} {path}")
            yield response

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        with self._reaching():
            async for chunk in response.content.iter_any():
                yield chunk

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except (aiohttp.ClientError, ConnectionError) as error:
            raise Unreachable(self._connection.server, problem=_problem(error)) from error


async def _body(response: aiohttp.ClientResponse, *, path: str, most_bytes: int | None) -> bytes:
    if most_bytes is None:
        return await response.read()
    chunks, size = list[bytes](), 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > most_bytes:
            # What is left would be read to reuse the connection.
            response.close()
            raise TooLarge(path, most_bytes=most_bytes)
    return b"".join(chunks)


def _problem(error: Exception) -> str:
    """What went wrong in few words: aiohttp repeats host and port."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return os.strerror(number) if number and number > 0 else str(error.os_error)
    return str(error) or type(error).__name__


def _refusal(response: aiohttp.ClientResponse, *, payload: bytes, request: str) -> StatusError:
    try:
        status = decoder(Status).decode(payload)
    except UnreadableError:
        # A proxy's page, or a filter that answers in plain text.
        status = Status(message=payload[:300].decode(errors="replace").strip())
    status = msgspec.structs.replace(status, code=response.status)
    asked = response.headers.get("Retry-After", "")
    return status_error(
        status, request=request, retry_after_seconds=float(asked) if asked.isascii() and asked.isdigit() else None
    )
