"""HTTP by aiohttp: concurrent requests over pooled connections, and streams of hours."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey

from dovetail.kube.auth.connection import Connection
from dovetail.kube.errors import TooLarge, Unreachable
from dovetail.kube.http_session import CONNECT_SECONDS, Answer, Request

# Each watch occupies a connection, so the limit is above aiohttp's default.
_CONNECTIONS: Final = 256
# A TLS handshake costs both sides more CPU than a request. kube-apiserver closes a connection after 90 s without one.
_KEEP_SECONDS: Final = 60.0
# Redirects are not followed, so they are refusals too.
_FIRST_REFUSED_STATUS: Final = 300


class AiohttpSession:
    """The session of long-lived processes. Create it in a running event loop."""

    def __init__(self, connection: Connection) -> None:
        """Raises `KubeconfigError` for certificates that cannot be used."""
        self._connection = connection
        tls = connection.ssl_context()
        self._session = aiohttp.ClientSession(
            connector=_LatestFirst(
                ssl=tls if tls is not None else True, limit=_CONNECTIONS, keepalive_timeout=_KEEP_SECONDS
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            proxy=connection.proxy_url,
        )
        # When a reused connection breaks, aiohttp sends PUT and DELETE again, although the first may have happened and
        # the guard has not been asked. It has no option against that (issue 10790). `retry` sends reads again.
        self._session._retry_connection = False  # noqa: SLF001

    async def close(self) -> None:
        await self._session.close()

    async def exchange(self, request: Request) -> Answer:
        async with self._response(request) as response:
            if response.status >= _FIRST_REFUSED_STATUS or request.most_bytes is None:
                body = await response.read()
            else:
                body = await _body(response, path=request.path, most_bytes=request.most_bytes)
            return _answer(response, body=body)

    @asynccontextmanager
    async def stream(
        self, request: Request, *, silence_seconds: float | None
    ) -> AsyncIterator[Answer | AsyncIterator[bytes]]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence_seconds)
        async with self._response(request, timeout=timeout) as response:
            if response.status >= _FIRST_REFUSED_STATUS:
                yield _answer(response, body=await response.read())
            else:
                yield self._chunks(response)

    @asynccontextmanager
    async def _response(self, request: Request, **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        with self._reaching():
            async with self._session.request(
                request.method,
                self._connection.server + request.path,
                params=request.query,
                data=request.data,
                headers=request.headers,
                server_hostname=self._connection.tls_server_name,
                # A write would be sent again without its guard, and credentials would go where no kubeconfig says.
                allow_redirects=False,
                **options,
            ) as response:
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


class _LatestFirst(aiohttp.TCPConnector):
    """Reuses the connection that was used last, so that those of a burst end once they are idle.

    aiohttp reuses the one that was used first, so a few requests a minute keep all of them open, each with a buffer of
    256 KiB in uvloop.
    """

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, **options: bool) -> None:
        super()._release(key, protocol, **options)
        idle = self._conns.get(key)
        if idle and idle[-1][0] is protocol:
            idle.rotate(1)  # aiohttp takes the first one, and has just added this one at the end


def _answer(response: aiohttp.ClientResponse, *, body: bytes) -> Answer:
    return Answer(status=response.status, retry_after=response.headers.get("Retry-After", ""), body=body)


async def _body(response: aiohttp.ClientResponse, *, path: str, most_bytes: int) -> bytes:
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
