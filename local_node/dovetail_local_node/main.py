"""`dovetail-local-node`: the process of the local node."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from aiohttp import web

from dovetail.config.settings import Settings
from dovetail.jobs import local_submission
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.process import serving
from dovetail_local_node import log_server, node_object
from dovetail_local_node.environments import Environments
from dovetail_local_node.launch import Place
from dovetail_local_node.log_server import LogServer
from dovetail_local_node.machine import this_machine
from dovetail_local_node.pod_life import Node
from dovetail_local_node.pods import Pods
from dovetail_local_node.registration import Registration
from dovetail_local_node.runs import Runs


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM. The jobs' processes go on; the next local node finds them."""
    sys.exit(serving.run(serve, args=parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = serving.parser(
        "dovetail-local-node", description="Runs the jobs of one user as processes of this machine."
    )
    options.add_argument("--node", required=True, metavar="NAME", help="name of the Node that this machine becomes")
    options.add_argument("--user", required=True, metavar="NAME", help="whose jobs run: the submitter of a GPUJob")
    options.add_argument("--state", type=Path, required=True, metavar="FOLDER", help="where runs are recorded")
    options.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="the user's logs and environments")
    options.add_argument("--mark", metavar="NAME=VALUE", help="a variable that every job gets, to find its processes")
    options.add_argument("--certificate", type=Path, required=True, metavar="FILE", help="the log server's certificate")
    options.add_argument("--key", type=Path, required=True, metavar="FILE", help="its key")
    options.add_argument("--client-ca", type=Path, required=True, metavar="FILE", help="CA of those who may read logs")
    options.add_argument("--port", type=int, required=True, metavar="N", help="port of the log server")
    options.add_argument(
        "--metrics-port", type=int, required=True, metavar="N", help="port of /livez, /readyz and /metrics"
    )
    return options


async def serve(args: argparse.Namespace, _settings: Settings, stop: asyncio.Event) -> None:
    """Serve the node until `stop` is set."""
    machine = this_machine()
    async with Client(load_connection(args.kubeconfig), user_agent="dovetail-local-node") as client:
        node = _node(args, client=client, boot_id=machine.boot_id)
        pods = Pods(node, name=args.node)
        now = partial(datetime.now, UTC)
        registration = Registration(client=client, name=args.node, machine=machine, port=args.port, now=now)
        tls = log_server.tls_context(certificate=args.certificate, key=args.key, authority=args.client_ca)
        logs = LogServer(runs=node.runs, uid_of=pods.uid_of).app()
        health = web.Application()
        serving.add_health(health, ready={"node": lambda: registration.problem or None})
        async with (
            serving.listening(logs, host=node_object.ADDRESS, port=args.port, tls=tls),
            serving.listening(health, host=node_object.ADDRESS, port=args.metrics_port),
        ):
            await serving.together(stop, registration.run(), pods.run())


def _node(args: argparse.Namespace, *, client: Client, boot_id: str) -> Node:
    data = local_submission.Folders(args.data)
    name, _, value = (args.mark or "").partition("=")
    return Node(
        client=client,
        runs=Runs(folder=args.state / "runs"),
        environments=Environments(folder=data.environments, own=os.environ),
        place=Place(user=args.user, node=args.node, address=node_object.ADDRESS, logs=data.logs, home=Path.home()),
        boot_id=boot_id,
        now=partial(datetime.now, UTC),
        extra={name: value} if name else {},
    )


if __name__ == "__main__":
    main()
