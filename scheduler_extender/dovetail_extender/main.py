"""`dovetail-extender`: the command line, and the order of start and shutdown."""

import argparse
import asyncio
import math
import os
import socket
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership, LeaseLostError, Times
from dovetail.logs import get_logger
from dovetail.process import serving
from dovetail.process.live_settings import LiveSettings
from dovetail_extender.decide.filter_score import Rules
from dovetail_extender.server import MAX_BODY_BYTES
from dovetail_extender.service import DEFAULT_NAMESPACE, LEASE, Extender, Options

log = get_logger(__name__)

# Learning runs in its own thread. This bounds how long a request waits for that thread to release the interpreter.
SWITCH_SECONDS: Final = 0.0005


def main(argv: Sequence[str] | None = None) -> int:
    """Answer kube-scheduler until a signal stops the process, and return the exit code."""
    return serving.run(_extend, args=_parser().parse_args(argv))


def _parser() -> argparse.ArgumentParser:
    options = serving.parser(
        "dovetail-extender",
        description="Dovetail's scheduler extender: answers kube-scheduler's filter, prioritize and bind.",
    )
    options.add_argument(
        "--host",
        default="127.0.0.1",
        help="address of the verbs; its clients can bind pods, so keep it on loopback (default: %(default)s)",
    )
    options.add_argument(
        "--port", type=int, default=8888, help="port of the verbs, and of health and metrics (default: %(default)s)"
    )
    options.add_argument(
        "--metrics-port",
        type=int,
        help="a port on all addresses for /livez, /readyz and /metrics alone, for kubelet and Prometheus",
    )
    return options


async def _extend(args: argparse.Namespace, settings: Settings, stop: asyncio.Event) -> None:
    options = options_of(settings, environ=os.environ)
    sys.setswitchinterval(SWITCH_SECONDS)
    connection = load_connection(args.kubeconfig)
    async with Client(connection, user_agent="dovetail-extender") as client:
        live = LiveSettings(client, namespace=options.namespace, settings=settings, log_level=args.log_level)
        heir = True
        while not stop.is_set():
            # What is in memory was true only while this extender held the lease, so each term starts from fresh lists.
            leadership = Leadership(
                client,
                namespace=options.namespace,
                name=LEASE,
                identity=identity_of(os.environ),
                heir=heir,
                times=times_of(options),
            )
            options = options_of(live.settings, environ=os.environ)
            extender = Extender(client, options=options, leadership=leadership)
            try:
                await _serve(extender, args=args, live=live, stop=stop)
            except* LeaseLostError as lost:
                log.warning("out of office", error=str(lost.exceptions[0]))
            heir = False


async def _serve(extender: Extender, *, args: argparse.Namespace, live: LiveSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set, or until another extender should take over.

    Raises `LeaseLostError`, in an exception group.
    """
    async with AsyncExitStack() as stack:
        if args.metrics_port is not None:
            health = web.Application()
            _add_health(health, extender=extender, ready=extender.pod_ready())
            await stack.enter_async_context(serving.listening(health, host="0.0.0.0", port=args.metrics_port))  # noqa: S104 - kubelet and Prometheus come from outside the pod
        verbs = web.Application(client_max_size=MAX_BODY_BYTES)
        extender.verbs.add_to(verbs)
        _add_health(verbs, extender=extender, ready=extender.ready())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(extender.run())
            following = group.create_task(
                live.run(apply=lambda new: extender.configure(options_of(new, environ=os.environ)))
            )
            # The order of shutdown: stop accepting requests, finish running binds, stop the watches, release the lease.
            async with serving.listening(verbs, host=args.host, port=args.port):
                await _first_of(stop.wait(), extender.until_wanted_elsewhere())
            await extender.drain()
            following.cancel()
            running.cancel()
        await extender.resign()


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def identity_of(environ: Mapping[str, str]) -> str:
    """The holder identity for the lease: the pod's name, or the host's name outside a pod.

    A pod's name suffices, because the containers of a pod that restart never run at the same time.
    """
    return environ.get("POD_NAME") or socket.gethostname()


def options_of(settings: Settings, *, environ: Mapping[str, str]) -> Options:
    """The extender's options from the configuration and the environment."""
    return Options(
        rules=Rules(
            rankings=settings.rankings,
            fragmentation=settings.fragmentation_policy,
            hold_ttl_seconds=settings.hold_ttl_seconds,
        ),
        limits=settings.limits,
        smoothing_seconds=settings.utilization_smoothing,
        measurement_max_age_seconds=settings.measurement_max_age,
        bind_deadline_seconds=settings.bind_deadline_seconds,
        vendors=settings.vendors,
        slices_absent_seconds=settings.dra_driver_absence,
        namespace=environ.get("POD_NAMESPACE") or DEFAULT_NAMESPACE,
    )


def times_of(options: Options) -> Times:
    """Lease times that cover a bind's deadline at any moment, even after one failed renewal."""
    times = Times()
    needed = options.bind_deadline_seconds + 2 * times.renew_seconds + 3 * times.look_seconds
    return replace(times, duration_seconds=max(times.duration_seconds, math.ceil(needed)))


def _add_health(app: web.Application, *, extender: Extender, ready: Mapping[str, serving.Check]) -> None:
    serving.add_health(app, ready=ready, registry=extender.metrics.registry)
