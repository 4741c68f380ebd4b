"""The program `dovetail-operator`."""

import argparse
import asyncio
import os
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership
from dovetail.process import serving
from dovetail.process.live_settings import LiveSettings
from dovetail_operator import handlers, leader
from dovetail_operator.app import Operator, build_operator
from dovetail_operator.options import make_options

DEFAULT_METRICS_PORT: Final = 8080


def main(argv: Sequence[str] | None = None) -> int:
    """Run the operator until a signal ends it. Returns the exit code."""
    return serving.run(_program, args=parser().parse_args(argv))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = serving.parser("dovetail-operator", description="Queue GPUJobs, run them as Jobs and keep their status.")
    serving.add_metrics_options(options, port=DEFAULT_METRICS_PORT, more="; 0 takes a free one")
    options.add_argument(
        "--liveness-port",
        type=int,
        metavar="N",
        help="port of kopf's own liveness probe, /healthz, on the address of --metrics-host (default: none)",
    )
    return options


async def _program(args: argparse.Namespace, settings: Settings, stop: asyncio.Event) -> None:
    connection = load_connection(args.kubeconfig)
    options = make_options(settings, environ=os.environ)
    lease_client = Client(connection, user_agent="dovetail-operator-lease")
    office = leader.leadership(lease_client, namespace=options.namespace, environ=os.environ)
    client = Client(connection, user_agent="dovetail-operator", guard=office.guard)
    registry = _registry()
    operator = build_operator(client, options=options, office=office, registry=registry)
    live = LiveSettings(client, namespace=options.namespace, settings=settings, log_level=args.log_level)

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(operator.run())
            tasks.create_task(live.run(apply=lambda new: operator.configure(make_options(new, environ=os.environ))))

    app = web.Application()
    serving.add_health(app, ready=leader.ready(office, acting=operator.informers.ready()), registry=registry)

    async def work() -> None:
        async with lease_client, client, serving.metrics_listening(app, args=args):
            await leader.act(office, run=run, stop=stop)

    process = handlers.Process(
        connection=connection,
        standard_login=args.kubeconfig is None and not {"KUBECONFIG", "KUBERNETES_SERVICE_HOST"}.isdisjoint(os.environ),
        work=work,
        stop=stop,
        said=partial(_said, office, operator),
    )
    liveness = None if args.liveness_port is None else f"http://{args.metrics_host}:{args.liveness_port}/healthz"
    await handlers.run(process, liveness=liveness)


def _registry() -> CollectorRegistry:
    """Metrics of this operator: a process may run one after another, and the library's own registry takes each once."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


def _said(office: Leadership, operator: Operator) -> dict[str, str]:
    """What kopf's probe shows: the leader, and the age of each kind's last report."""
    ages = {
        plural: f"reported {age:.0f} s ago" for plural, age in operator.informers.ages_seconds().items() if age < inf
    }
    return {"leader": office.holder or "none", **ages}
