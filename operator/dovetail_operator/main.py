"""The program `dovetail-operator`."""

import argparse
import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from typing import Final

from aiohttp import web
from prometheus_client import REGISTRY

from dovetail.config.errors import ConfigError
from dovetail.config.settings import Settings
from dovetail.jobs.idle import IdleRules
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership
from dovetail.process import serving
from dovetail.query.preemption_rules import rules_of
from dovetail.queue.inputs.run_ends import RunTimes
from dovetail_operator import handlers, leader
from dovetail_operator.app import Operator, Options
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.history.store import HistoryError
from dovetail_operator.notifications.mail_limits import MailRules

DEFAULT_NAMESPACE: Final = "dovetail-system"
DEFAULT_METRICS_PORT: Final = 8080


def main(argv: Sequence[str] | None = None) -> int:
    """Run the operator until a signal ends it. Returns the exit code."""
    return serving.run(_program, args=parser().parse_args(argv))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = serving.parser("dovetail-operator", description="Queue GPUJobs, run them as Jobs and keep their status.")
    options.add_argument(
        "--metrics-port",
        type=int,
        default=DEFAULT_METRICS_PORT,
        metavar="N",
        help="port of /livez, /readyz and /metrics (default: %(default)s; 0 takes a free one)",
    )
    options.add_argument(
        "--liveness-port",
        type=int,
        metavar="N",
        help="port of kopf's own liveness probe, /healthz (default: none)",
    )
    return options


def make_options(settings: Settings, *, environ: Mapping[str, str]) -> Options:
    """The operator's options from the configuration and the environment."""
    namespace = environ.get("POD_NAMESPACE") or DEFAULT_NAMESPACE
    return Options(
        namespace=namespace,
        policy=settings.policy,
        namespace_policies=settings.namespace_policies,
        memory_strategy=settings.memory_guard,
        look_seconds=settings.monitor_update_interval,
        limits=settings.limits,
        weights=settings.weights,
        smoothing_seconds=settings.utilization_smoothing,
        measurement_max_age_seconds=settings.measurement_max_age,
        vendors=settings.vendors,
        slices_absent_seconds=settings.dra_driver_absence,
        leaves_bad_cards=settings.bad_card == "Restart",
        mps_directory=settings.mps_directory,
        idle=IdleRules(
            after_seconds=settings.idle.after,
            below=settings.idle.below,
            grace_seconds=settings.idle.grace,
            action=settings.idle.action,
        ),
        history_url=settings.history_url,
        history_days=settings.history_days,
        notify_url=settings.notify_url,
        notify_from=settings.notify_from,
        mail_rules=MailRules(domains=settings.notify_domains, per_hour=settings.notify_per_hour),
        run_times=RunTimes(default_seconds=settings.default_time_limit, by_namespace=settings.namespace_time_limits),
        half_life_seconds=settings.fair_share_half_life,
        preemption=rules_of(settings.preemption),
        endings=_endings(settings, namespace=namespace),
        job_limits=settings.job_limits,
        writes_tenants=not settings.agents_read_pods,
    )


def _endings(settings: Settings, *, namespace: str) -> EndingRules:
    return EndingRules(
        ends=settings.memory_overuse != "Warn",
        exempt_namespaces=frozenset({"kube-system", namespace, *settings.exempt_namespaces}),
    )


async def _program(args: argparse.Namespace, settings: Settings, stop: asyncio.Event) -> None:
    connection = load_connection(args.kubeconfig)
    options = make_options(settings, environ=os.environ)
    lease_client = Client(connection, user_agent="dovetail-operator-lease")
    office = leader.leadership(lease_client, namespace=options.namespace, environ=os.environ)
    client = Client(connection, user_agent="dovetail-operator", guard=office.guard)
    operator = _operator(client, options, office=office)
    app = web.Application()
    serving.add_health(app, ready=leader.ready(office, acting=operator.ready()), registry=REGISTRY)

    async def work() -> None:
        async with lease_client, client, serving.listening(app, host="0.0.0.0", port=args.metrics_port):  # noqa: S104 - probes come from outside
            await leader.act(office, operator.run, stop=stop)

    process = handlers.Process(
        connection=connection,
        standard_login=args.kubeconfig is None and not {"KUBECONFIG", "KUBERNETES_SERVICE_HOST"}.isdisjoint(os.environ),
        work=work,
        stop=stop,
        said=partial(_said, office, operator),
    )
    await handlers.run(process, liveness_port=args.liveness_port)


def _said(office: Leadership, operator: Operator) -> dict[str, str]:
    """What kopf's probe shows: the leader, and the age of each kind's last report."""
    ages = {plural: f"reported {age:.0f} s ago" for plural, age in operator.ages_seconds().items() if age < inf}
    return {"leader": office.holder or "none", **ages}


def _operator(client: Client, options: Options, *, office: Leadership) -> Operator:
    try:
        return Operator(client, options, office=office, registry=REGISTRY)
    except HistoryError as error:
        raise ConfigError("history_url", problem=str(error)) from error
