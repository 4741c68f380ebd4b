"""The program `dovetail-certificates`."""

import argparse
import asyncio
import os
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.process import serving
from dovetail_certificates.keeper import Keeper, Target
from dovetail_certificates.metrics import Metrics

DEFAULT_NAMESPACE: Final = "dovetail-system"
DEFAULT_METRICS_PORT: Final = 8086


def main(argv: Sequence[str] | None = None) -> int:
    """Keep the certificate until a signal stops the process, and return the exit code."""
    return serving.run(_serve, args=_parser().parse_args(argv))


def _parser() -> argparse.ArgumentParser:
    options = serving.parser(
        "dovetail-certificates", description="Make and renew the webhook's certificate, and publish its CA."
    )
    options.add_argument("--secret", required=True, metavar="NAME", help="Secret that the certificate is written into")
    options.add_argument(
        "--name",
        dest="names",
        action="append",
        required=True,
        metavar="HOST",
        help="DNS name or IP address that the server is reached by; may be repeated",
    )
    options.add_argument(
        "--mutating-webhook-configuration",
        dest="configuration",
        required=True,
        metavar="NAME",
        help="MutatingWebhookConfiguration whose webhooks get the CA",
    )
    options.add_argument(
        "--metrics-port",
        type=int,
        default=DEFAULT_METRICS_PORT,
        metavar="N",
        help="port of /livez, /readyz and /metrics (default: %(default)s)",
    )
    return options


async def _serve(args: argparse.Namespace, _settings: Settings, stop: asyncio.Event) -> None:
    target = Target(
        namespace=os.environ.get("POD_NAMESPACE") or DEFAULT_NAMESPACE,
        secret=args.secret,
        names=args.names,
        configuration=args.configuration,
    )
    metrics = Metrics()
    async with Client(load_connection(args.kubeconfig), user_agent="dovetail-certificates") as client:
        keeper = Keeper(client, target=target, metrics=metrics)
        app = web.Application()
        serving.add_health(app, ready={"certificate": lambda: keeper.problem or None}, registry=metrics.registry)
        async with serving.listening(app, host="0.0.0.0", port=args.metrics_port):  # noqa: S104 - probes come from outside
            await serving.together(stop, keeper.run())
