"""HTTP by the standard library in threads, for a process that sends a few requests and ends.

A list command finishes before aiohttp would be imported: that import takes 0.1 s, most of it for two TLS contexts with
all the system's certificates, which a kubeconfig with its own CA does not need. This session has no proxies and no
redirects; `aiohttp_session` has. The first stream loads that one.
"""

import asyncio
import http.client
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final
from urllib.parse import urlencode, urlsplit

from dovetail.kube.auth.connection import Connection
from dovetail.kube.errors import TooLarge, Unreachable
from dovetail.kube.http_session import CONNECT_SECONDS, Answer, Request, Session

_PORTS: Final = {"http": 80, "https": 443}
_CHUNK_BYTES: Final = 1 << 20
_FIRST_ERROR_STATUS: Final = 400


class ThreadSession:
    """A session with one thread per request in flight, and a pool of idle connections."""

    def __init__(self, connection: Connection) -> None:
        """Raises `KubeconfigError` for certificates that cannot be used."""
        self._connection = connection
        self._tls = connection.ssl_context()
        # Of the first answer, for later connections: a handshake with certificates takes milliseconds on both sides.
        self._resumable: ssl.SSLSession | None = None
        self._free: list[http.client.HTTPConnection] = []
        self._is_closed = False
        self._streams: Session | None = None

    async def close(self) -> None:
        self._is_closed = True
        if self._streams is not None:
            await self._streams.close()
        while self._free:
            self._free.pop().close()

    async def exchange(self, request: Request) -> Answer:
        line = self._free.pop() if self._free else self._line()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Answer] = loop.create_future()
        # Not the loop's executor: on shutdown the loop would wait for a thread that hangs in name resolution.
        threading.Thread(target=self._work, args=(line, request, done, loop), daemon=True).start()
        try:
            answer = await done
        except BaseException:
            # The deadline or Ctrl-C: closing the socket wakes the thread.
            _end(line)
            raise
        if self._is_closed:
            # The caller has gone: it was the other request of a `gather` that has failed.
            line.close()
        else:
            self._free.append(line)
        return answer

    def stream(
        self, request: Request, *, silence_seconds: float | None
    ) -> AbstractAsyncContextManager[Answer | AsyncIterator[bytes]]:
        if self._streams is None:
            from dovetail.kube.aiohttp_session import AiohttpSession  # noqa: PLC0415 - 0.1 s

            self._streams = AiohttpSession(self._connection)
        return self._streams.stream(request, silence_seconds=silence_seconds)

    def _line(self) -> http.client.HTTPConnection:
        address = urlsplit(self._connection.server)
        return http.client.HTTPConnection(
            address.hostname or "", address.port or _PORTS[address.scheme], timeout=CONNECT_SECONDS
        )

    def _work(
        self,
        line: http.client.HTTPConnection,
        request: Request,
        done: asyncio.Future[Answer],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Run in a thread: put the answer, or the error, into the future."""
        try:
            outcome: Answer | Exception = self._ask(line, request=request)
        except Exception as error:  # noqa: BLE001 - it is raised again where the future is awaited
            outcome = error
        if done.cancelled():
            # It may have been abandoned while it connected, when there was no socket to close.
            _end(line)
        # The loop is closed when the caller has stopped waiting.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, done, outcome)

    def _ask(self, line: http.client.HTTPConnection, *, request: Request) -> Answer:
        try:
            if line.sock is None:
                self._connect(line)
            line.request(request.method, self._target(request), body=request.data, headers=dict(request.headers))
            response = line.getresponse()
            if isinstance(line.sock, ssl.SSLSocket) and self._resumable is None:
                # TLS 1.3 sends what resumes a session after the handshake, so before the answer.
                self._resumable = line.sock.session
            return Answer(
                status=response.status,
                retry_after=response.headers.get("Retry-After", ""),
                body=_body(response, request=request),
            )
        except (OSError, http.client.HTTPException) as error:
            line.close()
            raise Unreachable(self._connection.server, problem=_problem(error)) from error

    def _connect(self, line: http.client.HTTPConnection) -> None:
        """Open the connection here: http.client accepts no TLS server name other than the address."""
        plain = socket.create_connection((line.host, line.port), timeout=CONNECT_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            line.sock = plain
        else:
            line.sock = self._tls.wrap_socket(
                plain, server_hostname=self._connection.tls_server_name or line.host, session=self._resumable
            )
        # From here on the request's deadline limits the wait.
        line.sock.settimeout(None)

    def _target(self, request: Request) -> str:
        path = urlsplit(self._connection.server).path + request.path
        return f"{path}?{urlencode(request.query)}" if request.query else path


def _settle(done: "asyncio.Future[Answer]", outcome: Answer | Exception) -> None:
    if done.done():
        return
    if isinstance(outcome, Answer):
        done.set_result(outcome)
    else:
        done.set_exception(outcome)


def _end(line: http.client.HTTPConnection) -> None:
    if line.sock is not None:
        with suppress(OSError):
            line.sock.shutdown(socket.SHUT_RDWR)
    line.close()


def _body(response: http.client.HTTPResponse, *, request: Request) -> bytes:
    limit = None if response.status >= _FIRST_ERROR_STATUS else request.most_bytes
    chunks, size = list[bytes](), 0
    while chunk := response.read(_CHUNK_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        if limit is not None and size > limit:
            raise TooLarge(request.path, most_bytes=limit)
    body = b"".join(chunks)
    if response.length:
        # http.client says so only of an answer that is read at once.
        raise http.client.IncompleteRead(body, response.length)
    return body


def _problem(error: Exception) -> str:
    """The problem in a few words, the same as those of `aiohttp_session`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error}"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
