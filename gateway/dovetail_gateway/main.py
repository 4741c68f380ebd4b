"""The program `dovetail-gateway`."""

import argparse
import asyncio
import ssl
import sys
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aiohttp import web

from dovetail.config.errors import ConfigError
from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import load_connection
from dovetail.process import connections, heap, serving
from dovetail.process.live_settings import LiveSettings
from dovetail_gateway.access.legacy_account import Account
from dovetail_gateway.access.limits import Network, Rates
from dovetail_gateway.app import Gateway, Options, gateway
from dovetail_gateway.cluster.startup_tree import startup_tree
from dovetail_gateway.oidc.options import add_options, provider_of
from dovetail_gateway.routing.server import HEADER_BYTES, refuse
from dovetail_gateway.samples import options as prometheus
from dovetail_gateway.samples.batches import SamplesError
from dovetail_gateway.v2.templates import TemplateFile

if TYPE_CHECKING:
    from dovetail_gateway.samples.store import SampleStore

_LOOPBACK: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8000
DEFAULT_METRICS_PORT: Final = 8085
# How long a thread that computes an answer may keep the event loop waiting. With Python's 5 ms, each event of a socket
# could wait so long.
SWITCH_SECONDS: Final = 0.0005


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal stops the process, and return the exit code."""
    return serving.run(_serve, args=_parser().parse_args(argv))


def _parser() -> argparse.ArgumentParser:
    options = serving.parser("dovetail-gateway", description="REST for scripts, the SDK and the console.")
    options.add_argument("--host", default=_LOOPBACK, help="address of the API (default: %(default)s)")
    options.add_argument(
        "--port", type=int, default=DEFAULT_PORT, metavar="N", help="port of the API (default: %(default)s)"
    )
    serving.add_metrics_options(options, port=DEFAULT_METRICS_PORT)
    options.add_argument("--tls", type=Path, metavar="FOLDER", help="where tls.crt and tls.key are; without it http")
    options.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which the gateway may be called, besides loopback; repeatable",
    )
    options.add_argument(
        "--legacy-service-account",
        metavar="NAMESPACE/NAME",
        help="requests to v1 and v2 without a token act as this account, on 127.0.0.1 those of the gateway's own user; "
        "without it they are refused",
    )
    options.add_argument(
        "--allocation-namespace",
        default="default",
        metavar="NAME",
        help="of v1's allocations and v2's tasks (default: %(default)s)",
    )
    options.add_argument(
        "--namespace", default="dovetail-system", metavar="NAME", help="of the release (default: %(default)s)"
    )
    options.add_argument(
        "--task-templates", type=Path, metavar="FILE", help="what v2's tasks run; without it they are refused"
    )
    options.add_argument(
        "--anonymous-loopback",
        action="store_true",
        help="requests of the gateway's own user on this machine without a token act as its kubeconfig",
    )
    options.add_argument(
        "--rate", type=float, default=Rates().each, metavar="N", help="requests per second and user; 0: no limit"
    )
    options.add_argument(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="NETWORK",
        help="a network of proxies whose X-Forwarded-For counts, such as 10.8.0.0/16; repeatable",
    )
    add_options(options)
    prometheus.add_options(options)
    return options


def options_of(args: argparse.Namespace) -> Options:
    """The gateway's options. Raises `ConfigError`."""
    rates = None if args.rate == 0 else Rates(each=args.rate, all=max(args.rate * 10, Rates().all))
    if args.rate < 0:
        raise ConfigError("command line", problem=f"--rate {args.rate:g}: allowed are 0 (no limit) and more")
    provider = provider_of(args)
    # The browsers that the provider sends back call the gateway by this name.
    own = () if provider is None else (urlsplit(provider.public_url).hostname or "",)
    templates = TemplateFile(args.task_templates)
    # A file that cannot be used ends the start.
    templates.read()
    return Options(
        hosts=(*args.allowed_host, *own),
        rates=rates,
        proxies=tuple(map(_network, args.trusted_proxy)),
        legacy=_account(args.legacy_service_account),
        # A gateway of one machine is reached by each of its users, and serves the one whose it is.
        legacy_own_user=args.host == _LOOPBACK,
        namespace=args.namespace,
        allocation_namespace=args.allocation_namespace,
        templates=templates,
        anonymous_loopback=args.anonymous_loopback,
        provider=provider,
        prometheus=prometheus.prometheus_of(args),
    )


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ConfigError("command line", problem=f'--trusted-proxy "{text}": write a network, 10.8.0.0/16') from error


def _account(text: str | None) -> Account | None:
    if not text:
        return None
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise ConfigError("command line", problem=f'--legacy-service-account "{text}": write NAMESPACE/NAME')
    return Account(namespace=namespace, name=name)


async def _serve(args: argparse.Namespace, settings: Settings, stop: asyncio.Event) -> None:
    options, tls = options_of(args), _tls(args.tls)
    sys.setswitchinterval(SWITCH_SECONDS)
    store = _store(settings.samples_url)
    async with gateway(load_connection(args.kubeconfig), settings=settings, options=options, store=store) as made:
        health = web.Application()
        serving.add_health(health, ready=_ready(made), registry=made.metrics.registry)
        async with (
            serving.metrics_listening(health, args=args),
            connections.listening(
                made.application,
                host=args.host,
                port=args.port,
                tls=tls,
                connections=made.connections,
                most_header_bytes=HEADER_BYTES,
                refuse=refuse,
            ),
        ):
            live = LiveSettings(made.own, namespace=options.namespace, settings=settings, log_level=args.log_level)
            await serving.together(
                stop,
                made.cache.run(),
                made.feed.run(),
                made.sampler.run(),
                live.run(apply=made.cache.configure),
                made.answers.keep_ready(),
                _when_complete(made),
            )


def _store(url: str) -> "SampleStore | None":
    """The database of samples; None for no URL. Raises `ConfigError`."""
    if not url:
        return None
    from dovetail_gateway.samples.store import SampleStore  # noqa: PLC0415 - optional

    try:
        return SampleStore(url)
    except SamplesError as error:
        raise ConfigError("samples_url", problem=str(error)) from error


async def _when_complete(made: Gateway) -> None:
    """Print the devices once the cluster is listed and its nodes have reported."""
    await made.cache.complete()
    heap.keep_for_good()
    sys.stdout.write(await startup_tree(made.cache) + "\n")
    sys.stdout.flush()


def _ready(made: Gateway) -> dict[str, serving.Check]:
    return {"cache": lambda: made.cache.obstacle or None}


def _tls(folder: Path | None) -> ssl.SSLContext | None:
    if folder is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("command line", problem=f"--tls {folder}: {error}") from error
    return context
