"""`dovetail-mps`: the process that runs MPS on its node and follows the node's tenants.

It writes its findings to a file for the node's agent, which reports them: a GPUNode has one writer.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.event_recorder import EventRecorder
from dovetail.kube.unreadable_objects import UnreadableCollector
from dovetail.logs import get_logger
from dovetail.process import serving
from dovetail.process.guarded_loops import Guard
from dovetail_agent.feature.events import LIMITS, warn_pod
from dovetail_agent.mps import pod_modes, state_file
from dovetail_agent.mps.client_folder import ClientFolder
from dovetail_agent.mps.control import PROGRAM, Control, environment
from dovetail_agent.mps.daemon import Daemon
from dovetail_agent.mps.devices import NvmlDevices
from dovetail_agent.mps.leftovers import SharedMemory
from dovetail_agent.mps.probe import Verdict, probed
from dovetail_agent.mps.state_file import State
from dovetail_agent.mps.supervisor import Supervisor
from dovetail_agent.tenant_source import TenantSource

log = get_logger(__name__)

_EVERY_SECONDS: Final = 5.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM; exits 2 with one sentence for a bad command line or configuration."""
    sys.exit(serving.run(serve, args=parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = serving.parser("dovetail-mps", description="Keeps NVIDIA's MPS at work on a node, and proves its limits.")
    options.add_argument("--node", metavar="NAME", required=True, help="the node that this is")
    options.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        required=True,
        help="where the pipes and the state file are: pipe, state",
    )
    options.add_argument(
        "--program", metavar="FILE", default=PROGRAM, help=f"MPS's control program (default {PROGRAM})"
    )
    serving.add_metrics_options(options, port=None, required=True)
    return options


async def serve(args: argparse.Namespace, settings: Settings, stop: asyncio.Event) -> None:
    """Serve the node until `stop` is set."""
    async with Client(load_connection(args.kubeconfig), user_agent="dovetail-mps") as client:
        work = Work(client, args=args, settings=settings)
        async with serving.metrics_listening(health(work), args=args):
            log.info("MPS supervisor started", node=args.node, directory=str(args.directory))
            try:
                await serving.together(
                    stop, work.tenants.reflector.run(), work.run(), work.list_tenants(), work.events.run()
                )
            finally:
                work.supervisor.stop()
                work.disclaim("Stopped", message="the supervisor was ended, and the control daemon with it")


def health(work: "Work") -> web.Application:
    """Serve /livez, /readyz (the limits are proven) and /metrics."""
    registry = CollectorRegistry()
    registry.register(MpsCollector(work))
    registry.register(UnreadableCollector())
    ProcessCollector(registry=registry)
    app = web.Application()
    serving.add_health(app, ready={"mps": lambda: None if work.state.live else work.state.message}, registry=registry)
    return app


class Work:
    """The loop: read the node's tenants, take one supervisor step, write and report the result."""

    def __init__(self, client: Client, *, args: argparse.Namespace, settings: Settings) -> None:
        self._file = args.directory / "state" / "mps.json"
        self.events = EventRecorder(client, component="dovetail-mps", limits=LIMITS)
        self._list = pod_modes.path_in(args.directory)
        self._changed, self._unlisted, self._informed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        before = state_file.read(self._file) or State(at=0.0)
        self.supervisor = supervisor_of(args, kept=before.exclusive, remember=self._remember)
        self.state = before
        self.disclaim("Starting", message="the supervisor has just begun")
        self._node: str = args.node
        self.tenants = TenantSource(
            client,
            node=self._node,
            reads_pods=settings.agents_read_pods,
            vendors=settings.vendors,
            changed=self._tenants_changed,
        )

    def disclaim(self, reason: str, *, message: str) -> None:
        """Write a state in which nothing is enforced. Exclusive devices stay exclusive."""
        self.state = msgspec.structs.replace(
            self.state, at=time.time(), live=False, reason=reason, message=message, clients={}
        )
        state_file.write(self._file, state=self.state)

    async def run(self) -> None:
        """Take a step every 5 s and at each change of tenants, once the tenants are known."""
        await self._first_known()
        # The end of this process ends the daemon, and with it every client of the node. So a failed step is logged and
        # the loop goes on. A state that no step renews becomes too old to count.
        guard = Guard("a step of MPS")
        while True:
            self._changed.clear()
            with guard.around():
                await self._step()
            try:
                await asyncio.wait_for(self._changed.wait(), _EVERY_SECONDS)
            except TimeoutError:
                continue

    async def _step(self) -> None:
        done = await asyncio.to_thread(self.supervisor.step, self.tenants.tenants(self._node))
        self.state = done.state
        self._remember(done.state)
        self._report_lost(done.lost)

    def _remember(self, state: State) -> None:
        state_file.write(self._file, state=state)

    async def list_tenants(self) -> None:
        """Write the list of tenants for the volume driver, also while a step blocks.

        It starts once the tenants are known.
        """
        await self._first_known()
        guard = Guard("the list of tenants")
        while True:
            self._unlisted.clear()
            with guard.around():
                pod_modes.write(self._list, tenants=self.tenants.tenants(self._node))
            await self._unlisted.wait()

    async def _first_known(self) -> None:
        """Wait for the first list of tenants: an empty one would open every device to all processes."""
        await self.tenants.reflector.synced.wait()
        if not self.tenants.knows(self._node):
            await self._informed.wait()

    def _tenants_changed(self, _node: str) -> None:
        for event in (self._changed, self._unlisted, self._informed):
            event.set()

    def _report_lost(self, lost: Mapping[str, str]) -> None:
        tenants = {tenant.uid: tenant for tenant in self.tenants.tenants(self._node)}
        for uid, how in lost.items():
            if tenant := tenants.get(uid):
                message = f"What it had on the card under MPS is lost: {how}"
                warn_pod(self.events, tenant=tenant, node=self._node, reason="MPSClientLost", message=message)


def supervisor_of(args: argparse.Namespace, *, kept: Sequence[str], remember: Callable[[State], None]) -> Supervisor:
    """Build the supervisor from the command line and create its directories."""
    pipe, logs, state, clients, shared = (args.directory / name for name in ("pipe", "log", "state", "clients", "shm"))
    for folder in (pipe, logs, state, clients, shared):
        folder.mkdir(parents=True, exist_ok=True)
    shared.chmod(0o1777)  # every client's /dev/shm, for any user
    variables = environment(pipe=pipe, log=logs)
    return Supervisor(
        daemon=Daemon([args.program, "-f", "-multiuser-server"], variables=variables, clock=time.monotonic),
        control=Control(variables, program=args.program),
        cards=NvmlDevices(),
        probe=partial(_probe, variables=environment(pipe=clients, log=logs)),
        clock=time.monotonic,
        wall=time.time,
        shared=SharedMemory(shared),
        clients=ClientFolder(clients, pipes=pipe),
        remember=remember,
        kept=kept,
    )


class MpsCollector(Collector):
    """The supervisor's metrics, read at scrape time."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def collect(self) -> Iterable[Metric]:
        """Yield the metric families."""
        state = self._work.state
        yield GaugeMetricFamily(
            "dovetail_mps_live",
            "Whether limits under MPS were proven and hold (1) or not (0).",
            value=float(state.live),
        )
        yield GaugeMetricFamily("dovetail_mps_clients", "Clients of MPS.", value=sum(state.clients.values()))
        yield GaugeMetricFamily(
            "dovetail_mps_exclusive_devices", "Cards kept in EXCLUSIVE_PROCESS.", value=len(state.exclusive)
        )
        yield CounterMetricFamily("dovetail_mps_starts", "Starts of the control daemon.", value=state.starts_total)
        yield CounterMetricFamily(
            "dovetail_mps_crashes", "Control daemons and servers that ended by themselves.", value=state.crashes_total
        )


def _probe(uuid: str, size: int, *, variables: Mapping[str, str]) -> Verdict:
    return probed(uuid, size=size, variables=variables)


if __name__ == "__main__":
    main()
