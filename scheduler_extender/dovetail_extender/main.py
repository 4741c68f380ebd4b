"""`dovetail-extender`: the command line, and the order of start and shutdown."""

import argparse
import asyncio
import ipaddress
import math
import os
import socket
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from dovetail import names
from dovetail.config.errors import ConfigError
from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership, LeaseLostError, Times
from dovetail.logs import get_logger
from dovetail.process import serving
from dovetail.process.certificate import AUTHORITIES, Certificate, appearing
from dovetail.process.live_settings import LiveSettings
from dovetail_extender.cluster.service_endpoint import Endpoint, ServiceEndpoint
from dovetail_extender.decide.filter_score import Rules
from dovetail_extender.service import DEFAULT_NAMESPACE, Extender, Options
from dovetail_extender.verb_server import VerbServer

log = get_logger(__name__)

# Learning runs in its own thread. This bounds how long a request waits for that thread to release the interpreter.
SWITCH_SECONDS: Final = 0.0005
_OPTIONS: Final = {
    "certificates": "--certificates",
    "client_names": "--client-name",
    "service": "--service",
    "address": "--address",
}


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
        help="address of the verbs; its clients can bind pods: without --certificates keep it on loopback "
        "(default: %(default)s)",
    )
    options.add_argument(
        "--port", type=int, default=8888, help="port of the verbs, and of health and metrics (default: %(default)s)"
    )
    serving.add_metrics_options(options, port=None, more="; default: the port of the verbs alone has them")
    options.add_argument(
        "--certificates",
        type=Path,
        metavar="FOLDER",
        help="serve the verbs over mutual TLS: where tls.crt, tls.key and the CAs of clients, ca.crt, are",
    )
    options.add_argument(
        "--client-name",
        dest="client_names",
        action="append",
        default=[],
        metavar="NAME",
        help="with --certificates: a name that a client's certificate must have; may be repeated",
    )
    options.add_argument(
        "--service",
        default="",
        metavar="NAME",
        help="a Service without a selector, whose endpoint this extender is while it holds the lease",
    )
    options.add_argument("--address", default="", metavar="IP", help="with --service: the address of this pod")
    return options


async def _extend(args: argparse.Namespace, settings: Settings, stop: asyncio.Event) -> None:
    check(args)
    certificate = None
    if args.certificates:
        certificate = await appearing(args.certificates, stop=stop, clients=args.certificates / AUTHORITIES)
    if stop.is_set():
        return
    reloading = asyncio.create_task(certificate.watch()) if certificate else None
    try:
        await _lead(args, settings=settings, stop=stop, certificate=certificate)
    finally:
        if reloading is not None:
            reloading.cancel()


async def _lead(
    args: argparse.Namespace, *, settings: Settings, stop: asyncio.Event, certificate: Certificate | None
) -> None:
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
                name=names.EXTENDER_LEASE,
                identity=identity_of(os.environ),
                heir=heir,
                times=times_of(options),
            )
            options = options_of(live.settings, environ=os.environ)
            extender = Extender(client, options=options, leadership=leadership)
            endpoint = endpoint_of(args, client=client, leadership=leadership, namespace=options.namespace)
            server = VerbServer(host=args.host, port=args.port, certificate=certificate, names=args.client_names)
            try:
                await _serve(extender, args=args, server=server, endpoint=endpoint, live=live, stop=stop)
            except* LeaseLostError as lost:
                log.warning("out of office", error=str(lost.exceptions[0]))
            heir = False


async def _serve(
    extender: Extender,
    *,
    args: argparse.Namespace,
    server: VerbServer,
    endpoint: ServiceEndpoint | None,
    live: LiveSettings,
    stop: asyncio.Event,
) -> None:
    """Serve until `stop` is set, or until another extender should take over.

    Raises `LeaseLostError`, in an exception group.
    """
    async with AsyncExitStack() as stack:
        if args.metrics_port is not None:
            health = web.Application()
            _add_health(health, extender=extender, ready=extender.pod_ready())
            await stack.enter_async_context(serving.metrics_listening(health, args=args))
        verbs = server.application(extender.metrics)
        extender.verbs.add_to(verbs)
        _add_health(verbs, extender=extender, ready=extender.ready())
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(extender.run()),
                group.create_task(live.run(apply=lambda new: extender.configure(options_of(new, environ=os.environ)))),
            ]
            if endpoint is not None:
                tasks.append(group.create_task(endpoint.run(obstacle=extender.obstacle)))
            # The order of shutdown: stop accepting requests, finish running binds, stop the watches, release the lease.
            async with server.listening(verbs):
                await _first_of(stop.wait(), extender.until_wanted_elsewhere())
            await extender.drain()
            for task in reversed(tasks):
                task.cancel()
        if endpoint is not None:
            await endpoint.withdraw()
        await extender.resign()


def check(args: argparse.Namespace) -> None:
    """Raise `ConfigError` for an option without the one that it needs."""
    for one, other, why in (
        ("certificates", "client_names", ": the CA may sign for others too, so a client is known by its name"),
        ("service", "address", ""),
    ):
        given, missing = (one, other) if getattr(args, one) else (other, one)
        if getattr(args, given) and not getattr(args, missing):
            raise ConfigError("command line", problem=f"{_OPTIONS[given]} needs {_OPTIONS[missing]}{why}")


def endpoint_of(
    args: argparse.Namespace, *, client: Client, leadership: Leadership, namespace: str
) -> ServiceEndpoint | None:
    """The endpoint that the holder of the lease publishes; None without a Service, and on a loopback address."""
    if not args.service:
        return None
    try:
        address = ipaddress.ip_address(args.address)
    except ValueError as error:
        raise ConfigError(
            "command line", problem=f"--address is {args.address!r}, but must be an IP address"
        ) from error
    if address.is_loopback:
        # The pod's address of a sandbox, whose pods are processes of this machine.
        return None
    endpoint = Endpoint(service=args.service, namespace=namespace, address=str(address), port=args.port)
    return ServiceEndpoint(client, endpoint=endpoint, guard=leadership.guard)


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
        delivery=settings.delivery,
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
