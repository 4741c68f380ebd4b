"""A gate between operators of a test's own and the API server, where a test stops a write, or who sent it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from aiohttp import web

from dovetail.kube.auth.connection import load_connection
from dovetail_sandbox import state
from dovetail_sandbox.cluster import Cluster

PROGRAM: Final = (sys.executable, "-c", "from dovetail_operator.main import main; raise SystemExit(main())")
_HOP: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})


@dataclass(frozen=True, kw_only=True)
class Write:
    """A write as it came to the gate."""

    method: str
    path: str
    body: Any

    @property
    def said(self) -> str:
        """What tells it from other writes of a job's life: of a status the phase and the reason."""
        status = self.body.get("status") if isinstance(self.body, dict) else None
        return f"{self.method} {self.path} {(status or {}).get('phase', '')} {(status or {}).get('reason', '')}".strip()


# Sends the write on, and gives the API server's answer: status code and body.
Forward = Callable[[], Awaitable[tuple[int, bytes]]]
Keeper = Callable[[Write, Forward], Awaitable[tuple[int, bytes]]]


async def let_through(_write: Write, forward: Forward) -> tuple[int, bytes]:
    """A keeper that stops no write."""
    return await forward()


@dataclass(kw_only=True)
class Gate:
    """Passes on what it gets; its keeper decides about each write. Leases and events are none of its business."""

    sandbox: Cluster
    keeper: Keeper = let_through
    # By which the gate connects, else the operator's: a certificate as the administrator's counts before any token.
    kubeconfig: Path | None = None
    writes: list[Write] = field(default_factory=list)
    url: str = ""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """The gate, open."""
        connection = load_connection(self.kubeconfig or self.sandbox.folder / "kubeconfigs" / "operator")
        connector = aiohttp.TCPConnector(ssl=connection.ssl_context() or True, limit=0)
        async with aiohttp.ClientSession(connection.server, connector=connector, auto_decompress=False) as session:
            app = web.Application(client_max_size=64 << 20)

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._handle(request, session)

            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            try:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield
            finally:
                await runner.cleanup()

    async def _handle(self, request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
        data = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        if request.method == "GET":
            return await self._pass(request, session, headers=headers)

        async def forward() -> tuple[int, bytes]:
            async with session.request(request.method, request.rel_url, data=data, headers=headers) as answer:
                return answer.status, await answer.read()

        write = Write(method=request.method, path=request.path, body=json.loads(data) if data else None)
        if "/leases" in write.path or "/events" in write.path:
            code, body = await forward()
        else:
            self.writes.append(write)
            code, body = await self.keeper(write, forward)
        return web.Response(status=code, body=body, content_type="application/json")

    async def _pass(
        self, request: web.Request, session: aiohttp.ClientSession, *, headers: dict[str, str]
    ) -> web.StreamResponse:
        timeout = aiohttp.ClientTimeout(total=None)
        async with session.get(request.rel_url, headers=headers, timeout=timeout) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            return response


class Operator:
    """An operator process of a test, with the rights of the sandbox's own, on a way to the API server of its own."""

    def __init__(
        self, sandbox: Cluster, *, identity: str, folder: Path, server: str | None = None, **environment: str
    ) -> None:
        document = yaml.safe_load((sandbox.folder / "kubeconfigs" / "operator").read_text())
        if server is not None:
            document["clusters"][0]["cluster"] = {"server": server}
        self.kubeconfig = folder / f"{identity}.kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(document))
        own = next(each for each in state.read_desired(sandbox.folder).components if each.name == "operator")
        self._options = [word for word in own.argv[1:] if not word.startswith(("--metrics-port", "--liveness-port"))]
        self._env = {**os.environ, **own.env, "POD_NAME": identity, **environment}
        self._log = (folder / f"{identity}.log").open("ab")
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, or start it again."""
        arguments = [*self._options, "--metrics-port=0", f"--kubeconfig={self.kubeconfig}"]
        self.process = await asyncio.create_subprocess_exec(*PROGRAM, *arguments, env=self._env, stderr=self._log)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None, "start it first"
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def kill(self) -> None:
        """End it as a crash does."""
        if self.process is not None:
            self.signal(signal.SIGKILL)
            await self.process.wait()

    async def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        assert self.process is not None, "start it first"
        async with asyncio.timeout(60):
            return await self.process.wait()

    async def close(self) -> None:
        """End it for good: in order where it still listens, so that the next one need not wait for its lease's end."""
        if self.process is not None and self.process.returncode is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), 30)
        if self.process is not None and self.process.returncode is None:
            await self.kill()
        self._log.close()


@contextlib.asynccontextmanager
async def operator_instead(
    sandbox: Cluster, *, identity: str, folder: Path, **environment: str
) -> AsyncIterator[Operator]:
    """An operator with this environment in the place of the sandbox's own, which comes back afterwards."""
    await asyncio.to_thread(sandbox.stop, "operator")
    operator = Operator(sandbox, identity=identity, folder=folder, **environment)
    try:
        await operator.start()
        yield operator
    finally:
        await operator.close()
        await asyncio.to_thread(sandbox.start, "operator")
