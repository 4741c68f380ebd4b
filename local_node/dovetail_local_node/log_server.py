"""Kubelet's endpoint for logs, over TLS: `GET /containerLogs/<namespace>/<pod>/<container>`.

Only the API server may ask: it shows a client certificate of the sandbox's CA. It has checked who may read which log.

A module of its own: a web server over the files of runs, which knows neither pods' lives nor the API server.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from dovetail.process.identity import alive
from dovetail_local_node.runs import Run, Runs

_CHUNK: Final = 65_536
_POLL_SECONDS: Final = 0.1
# How much of a log is read to find its last lines.
_MOST_TAIL_BYTES: Final = 16 * 1024 * 1024


def tls_context(*, certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Serve with this certificate, and require a client's certificate of `authority`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServer:
    """Serves the output of runs. `uid_of` answers which pod has a name now."""

    runs: Runs
    uid_of: Callable[[str, str], str | None]

    def app(self) -> web.Application:
        """The web application."""
        app = web.Application()
        app.add_routes([web.get("/containerLogs/{namespace}/{pod}/{container}", self._log)])
        return app

    async def _log(self, request: web.Request) -> web.StreamResponse:
        asked = request.match_info
        uid = self.uid_of(asked["namespace"], asked["pod"])
        run = None if uid is None else self.runs.read(uid)
        if run is None:
            return web.Response(status=404, text=f'pod "{asked["pod"]}" has not started here, so it has no log\n')
        answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
        # A reader that has gone needs no answer.
        with suppress(ConnectionResetError):
            await self._answer(answer, request=request, run=run)
        return answer

    async def _answer(self, answer: web.StreamResponse, *, request: web.Request, run: Run) -> None:
        await answer.prepare(request)
        left = _number(request, name="limitBytes")
        async for chunk in self._chunks(run, request=request):
            await answer.write(chunk if left is None else chunk[:left])
            left = None if left is None else left - len(chunk)
            if left is not None and left <= 0:
                break
        await answer.write_eof()

    async def _chunks(self, run: Run, *, request: web.Request) -> AsyncIterator[bytes]:
        follow = request.query.get("follow") == "true"
        try:
            file = Path(run.output).open("rb")  # noqa: SIM115, ASYNC230 - closed below; local files do not block
        except OSError as error:
            yield f"dovetail: {run.output}: {error.strerror}\n".encode()
            return
        with file:
            file.seek(_start(run, tail=_number(request, name="tailLines")))
            while True:
                # Asked before the read: what was written before the end is read after it.
                ended = not self._runs_still(run.uid)
                while chunk := file.read(_CHUNK):
                    yield chunk
                if ended or not follow:
                    return
                await asyncio.sleep(_POLL_SECONDS)

    def _runs_still(self, uid: str) -> bool:
        return self.runs.ended(uid) is None and alive(self.runs.process(uid))


def _number(request: web.Request, *, name: str) -> int | None:
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _start(run: Run, *, tail: int | None) -> int:
    """The byte at which the answer begins: that of the run, or of its last `tail` lines."""
    if tail is None:
        return run.offset
    with Path(run.output).open("rb") as file:
        size = file.seek(0, 2)
        begin = max(run.offset, size - _MOST_TAIL_BYTES)
        file.seek(begin)
        data = file.read(size - begin)
    kept = data.splitlines(keepends=True)[-tail:] if tail else []
    return size - sum(map(len, kept))
