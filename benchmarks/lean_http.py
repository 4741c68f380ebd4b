"""What HTTP costs the extender for a pod: aiohttp on both sides against a lean layer, in turns.

Two processes answer kube-scheduler's requests and make the write of a bind, and decide nothing: one by aiohttp with the
extender's own middleware and the project's client, one by `asyncio.Protocol` with httptools on both sides. This process
plays kube-scheduler and, over TLS, the API server. A pod is a filter of `--names` node names and a bind that waits for
its write.

The lean layer is a sketch that refuses what the extender refuses: another Host, an Origin, another content type, two
lengths, chunks, more bytes than allowed, and more than one request at a time. It has no proxies.

Fixed before a change is measured: 20 turns of 200 pods of each, the median of the differences within a turn. What it
saves is compared with the CPU that the extender takes for a pod (`--pod-us`, of `extender_pod.py` in the same hour).

    uv pip install httptools && python benchmarks/lean_http.py [--turns 20] [--pods 200] [--pod-us 1310]
"""

import argparse
import asyncio
import contextlib
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import queue_plane
import uvloop
from aiohttp import web
from counts import count

from dovetail.api.resources import PODS
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.http_session import Answer, Request
from dovetail.process.hosts import Hosts
from dovetail_extender.verb_server import no_pages

LEAN: Final = "lean"
AIOHTTP: Final = "aiohttp"
MAX_HEAD_BYTES: Final = 16 << 10
MAX_BODY_BYTES: Final = 32 << 20
ANSWER: Final = {"NodeNames": ["gpu-1"], "FailedNodes": {}, "Error": ""}
BOUND: Final = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--turns", type=count, default=20, help="turns of each layer (default: %(default)s)")
    options.add_argument("--pods", type=count, default=200, help="pods of a turn (default: %(default)s)")
    options.add_argument("--names", type=count, default=1000, help="names in a filter request (default: %(default)s)")
    options.add_argument(
        "--pod-us", type=float, default=1310.0, help="the extender's CPU for a pod (default: %(default)s)"
    )
    options.add_argument("--json", type=Path, default=Path("out/lean_http.json"), help="where it is written too")
    options.add_argument("--serve", choices=[LEAN, AIOHTTP], help=argparse.SUPPRESS)
    options.add_argument("--api", help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.serve:
        uvloop.run(serve(args.serve, api=args.api))
    else:
        queue_plane.report(uvloop.run(measure(args)), path=args.json)


# --- the measured processes --------------------------------------------------------------------------------------


async def serve(layer: str, *, api: str) -> None:
    """Answer until the process is ended. Prints the port."""
    port = await (serve_lean if layer == LEAN else serve_aiohttp)(api)
    print(port, flush=True)
    await asyncio.Event().wait()


def decoded(body: bytes) -> Any:
    """What the handlers do with every body."""
    return msgspec.json.decode(body)


def binding(args: Any) -> dict[str, Any]:
    annotations = {"dovetail.dev/allocation": "x" * 400, "dovetail.dev/term": "1"}
    target = {"apiVersion": "v1", "kind": "Node", "name": args["Node"]}
    metadata = {"name": args["PodName"], "namespace": "team", "uid": args["PodUID"], "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


async def write_binding(client: Client, *, args: Any) -> None:
    name = args["PodName"]
    await client.create(PODS, name=name, body=binding(args), as_type=dict, namespace="team", subresource="binding")


async def serve_aiohttp(api: str) -> int:
    client = await Client(Connection(server=api, insecure=True)).__aenter__()

    async def filter_(request: web.Request) -> web.Response:
        decoded(await request.read())
        return web.Response(body=msgspec.json.encode(ANSWER), content_type="application/json")

    async def bind(request: web.Request) -> web.Response:
        args = decoded(await request.read())
        await write_binding(client, args=args)
        return web.Response(body=b'{"Error":""}', content_type="application/json")

    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[no_pages(Hosts(["127.0.0.1"]))])
    app.router.add_post("/filter", filter_)
    app.router.add_post("/bind", bind)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return int(runner.addresses[0][1])


async def serve_lean(api: str) -> int:
    make_session: Any = LeanSession
    client = await Client(Connection(server=api, insecure=True), make_session=make_session).__aenter__()

    async def filter_(body: bytes) -> bytes:
        decoded(body)
        return msgspec.json.encode(ANSWER)

    async def bind(body: bytes) -> bytes:
        await write_binding(client, args=decoded(body))
        return b'{"Error":""}'

    routes = {b"/filter": filter_, b"/bind": bind}
    server = await asyncio.get_running_loop().create_server(lambda: LeanVerbs(routes), "127.0.0.1", 0)
    return int(server.sockets[0].getsockname()[1])


class LeanVerbs(asyncio.Protocol):
    """One connection of kube-scheduler: a strict subset of HTTP/1.1, one request at a time."""

    def __init__(self, routes: dict[bytes, Callable[[bytes], Awaitable[bytes]]]) -> None:
        import httptools  # noqa: PLC0415 - the other process has none of it

        self._routes = routes
        self._parser = httptools.HttpRequestParser(self)
        self._failed = httptools.HttpParserError
        self._task: asyncio.Task[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._url, self._body, self._head_bytes, self._size = b"", list[bytes](), 0, 0
        self._headers: dict[bytes, bytes] = {}
        self._problem = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._task is not None:
            self._refuse(b"400 Bad Request", b"one request at a time\n")
            return
        try:
            self._parser.feed_data(data)
        except self._failed:
            self._refuse(b"400 Bad Request", b"this is not HTTP/1.1\n")

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._head_bytes += len(name) + len(value)
        if name in self._headers or name == b"transfer-encoding" or self._head_bytes > MAX_HEAD_BYTES:
            self._problem = b"400 Bad Request"
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        headers = self._headers
        if headers.get(b"host", b"").rpartition(b":")[0] not in {b"127.0.0.1", b"localhost"} or b"origin" in headers:
            self._problem = self._problem or b"403 Forbidden"
        elif headers.get(b"content-type") != b"application/json":
            self._problem = self._problem or b"415 Unsupported Media Type"
        elif self._parser.get_method() != b"POST" or self._url not in self._routes:
            self._problem = self._problem or b"404 Not Found"

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > MAX_BODY_BYTES:
            self._problem = b"413 Content Too Large"
        elif not self._problem:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._problem:
            self._refuse(self._problem, b"refused\n")
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        running = self._routes[self._url](body)
        self._begin()
        self._task = asyncio.ensure_future(self._answer(running))

    async def _answer(self, running: Awaitable[bytes]) -> None:
        body = await running
        self._task = None
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )

    def _refuse(self, status: bytes, text: bytes) -> None:
        self._transport.write(
            b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text)
        )
        self._transport.close()


class LeanSession:
    """A session of the project's client for writes: kept TLS connections, the one that was used last first."""

    def __init__(self, connection: Connection) -> None:
        host, _, port = connection.server.removeprefix("https://").partition(":")
        self._host, self._port = host, int(port)
        self._tls = connection.ssl_context()
        self._idle: list[LeanAnswer] = []

    async def close(self) -> None:
        """The process ends with it."""

    async def exchange(self, request: Request) -> Answer:
        connection = await self._connected()
        query = f"?{urlencode(request.query)}" if request.query else ""
        lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        data = request.data or b""
        head = f"{request.method} {request.path}{query} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{lines}"
        answer = await connection.exchange(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        if connection.is_open:
            self._idle.append(connection)
        return answer

    async def _connected(self) -> "LeanAnswer":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        loop = asyncio.get_running_loop()
        tls, host = self._tls, self._host
        _, made = await loop.create_connection(LeanAnswer, host, self._port, ssl=tls, server_hostname=host)
        return made


class LeanAnswer(asyncio.Protocol):
    """One connection to the API server: an exchange at a time."""

    def __init__(self) -> None:
        import httptools  # noqa: PLC0415 - the other process has none of it

        self._parsers = httptools.HttpResponseParser
        self.is_open = False
        self._done: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport, self.is_open = transport, True

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._done is not None and not self._done.done():
            self._done.set_exception(error or ConnectionResetError("closed before an answer"))

    async def exchange(self, request: bytes) -> Answer:
        self._done, self._body, self._parser = asyncio.get_running_loop().create_future(), [], self._parsers(self)
        self._retry_after = ""
        self._transport.write(request)
        try:
            return await self._done
        except asyncio.CancelledError:
            self._transport.close()
            self.is_open = False
            raise

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_message_complete(self) -> None:
        self.is_open = self.is_open and self._parser.should_keep_alive()
        status = self._parser.get_status_code()
        if self._done is not None and not self._done.done():
            self._done.set_result(Answer(status=status, retry_after=self._retry_after, body=b"".join(self._body)))


# --- kube-scheduler and the API server ---------------------------------------------------------------------------


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Turns of both layers."""
    with tempfile.TemporaryDirectory() as folder:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate(Path(folder)))
        server = await asyncio.get_running_loop().create_server(_Api, "127.0.0.1", 0, ssl=tls)
        api = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with contextlib.AsyncExitStack() as stack:
            made = {layer: await stack.enter_async_context(_process(layer, api=api)) for layer in (AIOHTTP, LEAN)}
            for scheduler, _pid in made.values():
                await scheduler.pods(50, names=args.names)
            taken: dict[str, list[float]] = {layer: [] for layer in made}
            for turn in range(args.turns):
                for layer in list(made)[:: 1 if turn % 2 else -1]:
                    scheduler, pid = made[layer]
                    before = cpu_us(pid)
                    await scheduler.pods(args.pods, names=args.names)
                    taken[layer].append((cpu_us(pid) - before) / args.pods)
        server.close()
    saved = statistics.median(old - new for old, new in zip(taken[AIOHTTP], taken[LEAN], strict=True))
    medians = {f"{layer}_us": round(statistics.median(values)) for layer, values in taken.items()}
    return {**medians, "saved_us": round(saved), "of_a_pod": round(1 - saved / args.pod_us, 3), "turns": taken}


def certificate(folder: Path) -> Path:
    """A file with a new key and its certificate."""
    made = folder / "tls.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=x",
    ]
    subprocess.run([*command, "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    made.write_bytes((folder / "key").read_bytes() + (folder / "cert").read_bytes())
    return made


def cpu_us(pid: int) -> float:
    """Microseconds of CPU that a process has taken."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000


@contextlib.asynccontextmanager
async def _process(layer: str, *, api: str) -> Any:
    command = [sys.executable, __file__, "--serve", layer, "--api", api]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield Scheduler(reader, writer, port=port), process.pid
        writer.close()
    finally:
        process.terminate()
        await process.wait()


class Scheduler:
    """Filters and binds pods one after the other, on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, port: int) -> None:
        self._reader, self._writer, self._port = reader, writer, port

    async def pods(self, count: int, *, names: int) -> None:
        pod = {
            "metadata": {"name": "p", "uid": "u", "annotations": {"dovetail.dev/gpu": "1"}},
            "spec": {"containers": []},
        }
        asked = json.dumps({"Pod": pod, "NodeNames": [f"gpu-node-of-a-rack-{at}" for at in range(names)]}).encode()
        bound = json.dumps({"PodName": "p", "PodNamespace": "team", "PodUID": "u", "Node": "gpu-1"}).encode()
        for _ in range(count):
            await self._post("filter", asked)
            await self._post("bind", bound)

    async def _post(self, verb: str, body: bytes) -> None:
        head = f"POST /{verb} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nUser-Agent: Go-http-client/1.1\r\n"
        head += f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        (length,) = [line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        await self._reader.readexactly(int(length.partition(b":")[2]))


class _Api(asyncio.Protocol):
    """Answers each write at once."""

    def connection_made(self, transport: Any) -> None:
        self._transport, self._seen = transport, b""

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, end, body = self._seen.partition(b"\r\n\r\n")
        (length,) = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")] or [b":0"]
        if end and len(body) >= int(length.partition(b":")[2]):
            self._seen = b""
            more = b"Cache-Control: no-cache, private\r\nContent-Type: application/json\r\nAudit-Id: 1\r\n"
            self._transport.write(b"HTTP/1.1 201 Created\r\n%sContent-Length: %d\r\n\r\n%s" % (more, len(BOUND), BOUND))


if __name__ == "__main__":
    main()
