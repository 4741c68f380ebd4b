"""The program `dovetail-webhook`."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aiohttp import web

from dovetail.config.settings import Settings
from dovetail.process import connections, serving
from dovetail.process.certificate import appearing
from dovetail.process.connections import Connections
from dovetail_webhook.app import application
from dovetail_webhook.handler import Reviewer
from dovetail_webhook.metrics import Metrics

DEFAULT_PORT: Final = 8443
DEFAULT_METRICS_PORT: Final = 8084


def main(argv: Sequence[str] | None = None) -> int:
    """Answer the API server until a signal stops the process, and return the exit code."""
    return serving.run(_serve, args=_parser().parse_args(argv))


def _parser() -> argparse.ArgumentParser:
    options = serving.parser("dovetail-webhook", description="Complete pods that ask for GPUs.")
    options.add_argument(
        "--certificates", type=Path, required=True, metavar="FOLDER", help="where tls.crt and tls.key are"
    )
    options.add_argument(
        "--client-ca",
        type=Path,
        metavar="FILE",
        help="review only for clients with a certificate of this CA; API servers show one where they are set up so",
    )
    options.add_argument("--host", default="0.0.0.0", help="address of /mutate (default: %(default)s)")  # noqa: S104 - the API server comes from outside
    options.add_argument(
        "--port", type=int, default=DEFAULT_PORT, metavar="N", help="port of it, TLS (default: %(default)s)"
    )
    serving.add_metrics_options(options, port=DEFAULT_METRICS_PORT)
    return options


async def _serve(args: argparse.Namespace, settings: Settings, stop: asyncio.Event) -> None:
    metrics = Metrics()
    reviewer = Reviewer(
        policy=settings.policy,
        vendors=settings.vendors,
        mps_directory=settings.mps_directory,
        delivery=settings.delivery,
        limits=settings.job_limits,
    )
    clients = Connections()
    app = application(reviewer, metrics=metrics, connections=clients)
    serves = asyncio.Event()
    health = web.Application()
    ready = {"certificate": lambda: None if serves.is_set() else f"{args.certificates} has none yet"}
    serving.add_health(health, ready=ready, registry=metrics.registry)
    async with serving.metrics_listening(health, args=args):
        certificate = await appearing(args.certificates, stop=stop, clients=args.client_ca)
        if certificate is None:
            return
        tls = certificate.context
        async with connections.listening(app, host=args.host, port=args.port, tls=tls, connections=clients):
            serves.set()
            await serving.together(stop, certificate.watch())
