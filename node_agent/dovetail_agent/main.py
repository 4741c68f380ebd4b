"""`dovetail-agent`: the process around the agent."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector

from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail.kube.unreadable_objects import UnreadableCollector
from dovetail.logs import get_logger
from dovetail.process import heap, serving
from dovetail_agent.agent import Agent, Rules
from dovetail_agent.devices.discovery import AUTO, PROVIDERS, opened
from dovetail_agent.devices.model import Provider
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.features import features_of
from dovetail_agent.metrics import AgentCollector
from dovetail_agent.processes.cgroups import MOUNT
from dovetail_agent.report.publishing import Pace

log = get_logger(__name__)

# A watch sends something every minute: after three silent minutes the data is too old to report. `_BETWEEN_SECONDS` is
# the shortest time between two reports of a node that differ only in load. Where only utilization differs, it is
# `_BETWEEN_LOOKS`: the extender smooths utilization over twice as long, and each report costs the API server some 5 ms.
_BETWEEN_SECONDS: Final = 5.0
_BETWEEN_LOOKS: Final = 2
_OLD_SECONDS: Final = 200.0
_KUBELET_SOCKET: Final = "/var/lib/kubelet/pod-resources/kubelet.sock"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM; exits 2 with one sentence for a bad command line or configuration."""
    options = parser()
    args = options.parse_args(arguments)
    if args.provider != SimulatedProvider.name and args.node is None:
        options.error(f"--provider={args.provider} needs --node: a vendor's library tells of the node that it is on")
    if args.pod_resources is not None and args.node is None:
        options.error("--pod-resources needs --node: kubelet tells of the node that it is on")
    if args.turns is not None and args.node is None:
        options.error("--turns needs --node: only pods of the node that it is on can be frozen")
    if args.suspend_to_host and args.turns is None:
        options.error("--suspend-to-host needs --turns: who is moved to the host waits for its turn there")
    if args.mps_state is not None and args.node is None:
        options.error("--mps-state needs --node: the file tells of the node that it is on")
    sys.exit(serving.run(serve, args=args))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = serving.parser(
        "dovetail-agent", description="Publishes what the devices of a node are and do, and advertises their sums."
    )
    options.add_argument(
        "--provider",
        choices=PROVIDERS,
        default=AUTO,
        help="where the figures come from; auto: all vendors whose library is there, and no devices where none is",
    )
    options.add_argument(
        "--node",
        metavar="NAME",
        help="serve this node alone; default, of simulated alone: every node that is annotated",
    )
    options.add_argument(
        "--pod-resources",
        type=Path,
        metavar="SOCKET",
        help=f"ask kubelet which pods hold which devices, over its socket, commonly {_KUBELET_SOCKET}",
    )
    options.add_argument(
        "--turns",
        type=Path,
        metavar="FOLDER",
        help="let TimeShared tenants take turns by freezing them; dovetail-thaw, their watchdog, shares the folder",
    )
    options.add_argument(
        "--cgroups", type=Path, default=MOUNT, metavar="FOLDER", help=f"where the node's cgroups are; default: {MOUNT}"
    )
    options.add_argument(
        "--suspend-to-host",
        action="store_true",
        help="move TimeShared tenants that do not fit on a card together to the host while they wait for their turn",
    )
    options.add_argument(
        "--mps-state",
        type=Path,
        metavar="FILE",
        help="report MPS as its supervisor, dovetail-mps, leaves it in this file",
    )
    options.add_argument(
        "--reshape",
        action="store_true",
        help="partition idle GPUs in MIG mode again when the operator requests it",
    )
    serving.add_metrics_options(options, port=None, required=True)
    return options


async def serve(args: argparse.Namespace, settings: Settings, stop: asyncio.Event) -> None:
    """Serve nodes until `stop` is set."""
    look_every = rules_of(settings).look_every
    with opened(args.provider, node=args.node, look_every=look_every, vendors=settings.vendors) as provider:
        await _serve(args, provider=provider, settings=settings, stop=stop)


async def _serve(args: argparse.Namespace, *, provider: Provider, settings: Settings, stop: asyncio.Event) -> None:
    async with Client(load_connection(args.kubeconfig), user_agent="dovetail-agent") as client:
        agent = Agent(
            client,
            provider=provider,
            rules=rules_of(settings),
            clock=partial(datetime.now, UTC),
            node=args.node,
            features=features_of(args, settings=settings, client=client, provider=provider),
        )
        async with serving.metrics_listening(health(agent), args=args):
            log.info("agent started", provider=provider.name, node=args.node or "all", metrics_port=args.metrics_port)
            heap.keep_for_good()
            await serving.together(stop, agent.run())


def rules_of(settings: Settings) -> Rules:
    """Return the agent's part of the configuration."""
    look_every = timedelta(seconds=settings.monitor_update_interval)
    return Rules(
        look_every=look_every,
        pace=Pace(
            threshold=settings.resource_change_threshold,
            heartbeat=timedelta(seconds=settings.heartbeat_interval),
            between=timedelta(seconds=_BETWEEN_SECONDS),
            between_utilization=_BETWEEN_LOOKS * look_every,
            idle_below=settings.idle.below,
        ),
        turns_per_device=settings.tenants_per_device,
        vendors=settings.vendors,
        reads_pods=settings.agents_read_pods,
    )


def health(agent: Agent) -> web.Application:
    """Serve /livez, /readyz and /metrics.

    Ready: all three lists have synced and are fresh, and each node that was there at the start has been reported, so
    that a job which comes right after an installation finds the devices.
    """
    registry = CollectorRegistry()
    registry.register(AgentCollector(agent))
    registry.register(UnreadableCollector())
    ProcessCollector(registry=registry)
    app = web.Application()
    checks = {each.resource.plural: partial(_trouble, each) for each in agent.reflectors}
    serving.add_health(app, ready={**checks, "reports": lambda: agent.unreported}, registry=registry)
    return app


def _trouble(reflector: Reflector[Any]) -> str | None:
    if not reflector.synced.is_set():
        return "not listed yet"
    if reflector.age_seconds > _OLD_SECONDS:
        return f"nothing heard for {reflector.age_seconds:.0f} s"
    return None


if __name__ == "__main__":
    main()
