"""The program `dovetail-certificates`."""

import argparse
import asyncio
import os
from collections.abc import Sequence
from functools import partial
from typing import Final

from aiohttp import web

from dovetail.config.errors import ConfigError
from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.process import serving
from dovetail_certificates.checks import Check
from dovetail_certificates.extender import Attached, ExtenderKeeper
from dovetail_certificates.keeper import Keeper, Target
from dovetail_certificates.metrics import Metrics

DEFAULT_NAMESPACE: Final = "dovetail-system"
DEFAULT_METRICS_PORT: Final = 8086
_OPTIONS: Final = {
    "secret": "--secret",
    "names": "--name",
    "extender_secret": "--extender-secret",
    "extender_names": "--extender-name",
    "client_names": "--client-name",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Keep the certificates until a signal stops the process, and return the exit code."""
    return serving.run(_serve, args=_parser().parse_args(argv))


def _parser() -> argparse.ArgumentParser:
    options = serving.parser(
        "dovetail-certificates",
        description="Make and renew the certificates of the webhook and of an attached extender.",
    )
    options.add_argument("--secret", metavar="NAME", help="Secret of the webhook's certificate; NAME-ca has its CA")
    options.add_argument(
        "--name",
        dest="names",
        action="append",
        metavar="HOST",
        help="DNS name or IP address that the webhook is reached by; may be repeated",
    )
    options.add_argument(
        "--extender-secret",
        metavar="NAME",
        help="Secret of the extender's certificate; NAME-client gets its client's, and NAME-ca the CA",
    )
    options.add_argument(
        "--extender-name",
        dest="extender_names",
        action="append",
        metavar="HOST",
        help="name by which kube-scheduler verifies the extender; may be repeated",
    )
    options.add_argument(
        "--client-name",
        dest="client_names",
        action="append",
        metavar="NAME",
        help="name in the certificate of kube-scheduler; may be repeated",
    )
    serving.add_metrics_options(options, port=DEFAULT_METRICS_PORT)
    return options


async def _serve(args: argparse.Namespace, _settings: Settings, stop: asyncio.Event) -> None:
    target, attached = targets(args)
    metrics = Metrics()
    async with Client(load_connection(args.kubeconfig), user_agent="dovetail-certificates") as client:
        checks: dict[str, Check] = {}
        if target is not None:
            checks["certificate"] = Keeper.of_webhook(client, target=target, metrics=metrics)
        if attached is not None:
            checks["extender certificates"] = ExtenderKeeper(client, attached=attached, metrics=metrics)
        app = web.Application()
        ready = {name: partial(_problem_of, check) for name, check in checks.items()}
        serving.add_health(app, ready=ready, registry=metrics.registry)
        async with serving.metrics_listening(app, args=args):
            await serving.together(stop, *(check.run() for check in checks.values()))


def targets(args: argparse.Namespace) -> tuple[Target | None, Attached | None]:
    """The webhook and the extender whose certificates are kept. Raises `ConfigError` for incomplete options."""
    namespace = os.environ.get("POD_NAMESPACE") or DEFAULT_NAMESPACE
    target = attached = None
    if _whole(args, "secret", "names"):
        target = Target(namespace=namespace, secret=args.secret, names=args.names)
    if _whole(args, "extender_secret", "extender_names", "client_names"):
        attached = Attached(
            namespace=namespace,
            secret=args.extender_secret,
            names=args.extender_names,
            client_names=args.client_names,
        )
    if target is None and attached is None:
        raise ConfigError("command line", problem="name --secret for the webhook, --extender-secret, or both")
    return target, attached


def _whole(args: argparse.Namespace, *options: str) -> bool:
    """Whether these options are set. Raises `ConfigError` if only some of them are."""
    given = {option: bool(getattr(args, option)) for option in options}
    if any(given.values()) and not all(given.values()):
        missing = ", ".join(_OPTIONS[option] for option, is_set in given.items() if not is_set)
        present = next(_OPTIONS[option] for option, is_set in given.items() if is_set)
        raise ConfigError("command line", problem=f"{present} needs {missing}")
    return all(given.values())


def _problem_of(check: Check) -> str | None:
    return check.problem or None
