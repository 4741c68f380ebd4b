"""What every deployable shares as a process: options, health and metrics, a graceful end."""

import argparse
import asyncio
import gc
import signal
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop
from aiohttp import web

from dovetail import logs
from dovetail.config.errors import ConfigError
from dovetail.config.loading import load_settings
from dovetail.config.settings import Settings
from dovetail.kube.errors import KubeconfigError
from dovetail.process import heap
from dovetail.process.certificate import AUTHORITIES, Certificate
from dovetail.process.hooks import add_kubeconfig_option

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from dovetail.process import shared_process

Check = Callable[[], str | None]
Program = Callable[[argparse.Namespace, Settings, asyncio.Event], Awaitable[None]]

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
# Kubernetes gives a container 30 s between SIGTERM and SIGKILL.
_GRACE_SECONDS: Final = 20.0
# The number of new objects between two garbage collections, and of collections between two of an older generation. With
# Python's 700 the operator collected thousands of times a minute and found almost no cycles.
_COLLECTED_AFTER: Final = (5_000, 10, 10)
log = logs.get_logger("dovetail.serving")


def parser(prog: str, *, description: str) -> argparse.ArgumentParser:
    """The options of every deployable; each adds its own."""
    options = argparse.ArgumentParser(prog=prog, description=description)
    options.add_argument("--config", type=Path, metavar="FILE", help="gpu_config.yaml; without it the defaults")
    add_kubeconfig_option(options)
    options.add_argument("--log-level", metavar="LEVEL", help=f"one of {', '.join(logs.LEVELS)}")
    return options


def add_metrics_options(
    options: argparse.ArgumentParser, *, port: int | None, required: bool = False, more: str = ""
) -> None:
    """Add the options of the server that `metrics_listening` runs. `port` is the default, `more` ends the help text."""
    options.add_argument(
        "--metrics-port",
        type=int,
        metavar="N",
        default=port,
        required=required,
        help=f"port of /livez, /readyz and /metrics{more}{'' if port is None else ' (default: %(default)s)'}",
    )
    options.add_argument(
        "--metrics-host",
        default="0.0.0.0",  # noqa: S104 - kubelet and Prometheus come from outside the pod
        metavar="IP",
        help="address of that port (default: %(default)s)",
    )
    options.add_argument(
        "--metrics-certificates",
        type=Path,
        metavar="FOLDER",
        help=f"serve that port over mutual TLS: where tls.crt, tls.key and the CAs of clients, {AUTHORITIES}, are",
    )


def run(program: Program, *, args: argparse.Namespace, grace_seconds: float = _GRACE_SECONDS) -> int:
    """Run a deployable until it returns or gets SIGTERM or SIGINT. Returns its exit code.

    In a process that it shares, that process asks it to end. The program gets the options, the settings and an event
    that is set when it must end. What has not ended `grace_seconds` later is cancelled. An invalid configuration gives
    one sentence on stderr and exit code 2.
    """
    gc.set_threshold(*_COLLECTED_AFTER)
    try:
        settings = load_settings(args.config, overrides={"log_level": args.log_level})
        _configure_logs(settings)
        uvloop.run(_until_signal(program, args=args, settings=settings, grace_seconds=grace_seconds))
    except (ConfigError, KubeconfigError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
    except Exception:
        log.exception("ended by an error")
        return EXIT_FAILED
    return EXIT_DONE


async def together(stop: asyncio.Event, *parts: Coroutine[Any, Any, None]) -> None:
    """Run endless parts in parallel until `stop` is set.

    If one fails, all end and its error is raised.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part) for part in parts]
        await stop.wait()
        for task in tasks:
            task.cancel()


def add_health(
    app: web.Application, *, ready: Mapping[str, Check], registry: "CollectorRegistry | None" = None
) -> None:
    """Add `/livez`, `/readyz` and `/metrics`.

    A check answers None when all is well, else a sentence.
    """
    # Deployables have this library; the core does not need it.
    from prometheus_client import REGISTRY  # noqa: PLC0415
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

    async def livez(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        found = {name: check() for name, check in ready.items()}
        lines = [f"[+]{name} ok" if said is None else f"[-]{name} failed: {said}" for name, said in found.items()]
        well = all(said is None for said in found.values())
        return web.Response(text="\n".join([*lines, "ok" if well else "not ready"]) + "\n", status=200 if well else 503)

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry or REGISTRY), headers={"Content-Type": content_type})

    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)])


@asynccontextmanager
async def listening(
    app: web.Application, *, host: str, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve `app` within the block; gives the port, for port 0. Open requests get time to end."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError("command line", problem=f"cannot listen on {host}:{port}: {error.strerror}") from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def guarded(
    app: web.Application, *, host: str, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """As `listening`, where others than the wanted clients connect too: with deadlines and a bound on connections.

    Without them, clients that say nothing would take all files that the process may open.
    """
    from dovetail.process import connections  # noqa: PLC0415 - a start has no use for it before it serves

    clients = connections.Connections()
    app.middlewares.append(connections.answered(clients))
    async with connections.listening(app, host=host, port=port, tls=tls, connections=clients) as found:
        yield found


@asynccontextmanager
async def metrics_listening(app: web.Application, *, args: argparse.Namespace) -> AsyncIterator[int]:
    """Serve `app` within the block, where the options of `add_metrics_options` say; gives the port.

    Raises `ConfigError`.
    """
    folder: Path | None = args.metrics_certificates
    tls = None if folder is None else Certificate(folder, clients=folder / AUTHORITIES).context
    async with guarded(app, host=args.metrics_host, port=args.metrics_port, tls=tls) as port:
        yield port


def _configure_logs(settings: Settings) -> None:
    try:
        logs.configure(level=settings.log_level, fmt=settings.log_format)
    except ValueError as error:
        raise ConfigError("logging", problem=str(error)) from error


async def _until_signal(
    program: Program, *, args: argparse.Namespace, settings: Settings, grace_seconds: float
) -> None:
    stop = asyncio.Event()
    with _asked_to_end(stop):
        await _until_stopped(program, args=args, settings=settings, stop=stop, grace_seconds=grace_seconds)


@contextmanager
def _asked_to_end(stop: asyncio.Event) -> Iterator[None]:
    """Within the block, set `stop` at SIGTERM and SIGINT; in a shared process, when that asks for it."""
    loop = asyncio.get_running_loop()
    if own := _program_of_a_shared_process():
        with own.listening(lambda: loop.call_soon_threadsafe(stop.set)):
            yield
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    yield


def _program_of_a_shared_process() -> "shared_process.Program | None":
    if threading.current_thread() is threading.main_thread():
        return None
    from dovetail.process import shared_process  # noqa: PLC0415 - a process of one program does without

    return shared_process.current()


async def _until_stopped(
    program: Program, *, args: argparse.Namespace, settings: Settings, stop: asyncio.Event, grace_seconds: float
) -> None:
    task = asyncio.ensure_future(program(args, settings, stop))
    stopping = asyncio.create_task(stop.wait())
    trimming = asyncio.create_task(heap.trim_always())
    await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        log.info("stopping", grace_seconds=grace_seconds)
        await asyncio.wait({task}, timeout=grace_seconds)
        task.cancel()
    stopping.cancel()
    trimming.cancel()
    try:
        await task
    except asyncio.CancelledError:
        log.warning("cancelled: it did not end in time", grace_seconds=grace_seconds)
