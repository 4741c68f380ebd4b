"""`dovetail-local-node`: the process of the local node."""

import argparse
import asyncio
import hashlib
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
from dovetail_local_node.limits import choice
from dovetail_local_node.limits.choice import Kernel
from dovetail_local_node.limits.groups import Groups
from dovetail_local_node.limits.scope import Systemd
from dovetail_local_node.log_server import LogServer
from dovetail_local_node.machine import this_machine
from dovetail_local_node.pod_life import Node
from dovetail_local_node.pods import Pods
from dovetail_local_node.registration import Registration
from dovetail_local_node.runs import Runs


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM. The jobs' processes go on; the next local node finds them."""
    args = parser().parse_args(arguments)
    args.groups = _groups(args)
    code = serving.run(serve, args=args)
    args.groups.leave()
    sys.exit(code)


def _groups(args: argparse.Namespace) -> Groups:
    """Where the cgroups of jobs are. May start this program again, in a cgroup that is delegated to it."""
    name = f"dovetail-{hashlib.sha256(bytes(args.state)).hexdigest()[:10]}"
    found = choice.choose(name, kernel=Kernel())
    if not found.hierarchies:
        systemd = Systemd(user=args.user, is_root=os.getuid() == 0, environ=os.environ)
        if reason := systemd.enter():
            found = choice.none(reason)
    # For `gflowd status`, which also answers while the API server is away.
    choice.sentence_file(args.state).write_text(found.sentence, encoding="utf-8")
    return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = serving.parser(
        "dovetail-local-node", description="Runs the jobs of one user as processes of this machine."
    )
    options.add_argument("--node", required=True, metavar="NAME", help="name of the Node that this machine becomes")
    options.add_argument("--user", required=True, metavar="NAME", help="whose jobs run: the submitter of a GPUJob")
    options.add_argument(
        "--account",
        action="append",
        default=[],
        metavar="NAME",
        help="a service account that acts for this user; repeatable",
    )
    options.add_argument("--state", type=Path, required=True, metavar="FOLDER", help="where runs are recorded")
    options.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="the user's logs and environments")
    options.add_argument(
        "--umask", type=partial(int, base=8), default=0o022, metavar="MODE", help="of jobs (default: 022)"
    )
    options.add_argument("--mark", metavar="NAME=VALUE", help="a variable that every job gets, to find its processes")
    options.add_argument("--certificate", type=Path, required=True, metavar="FILE", help="the log server's certificate")
    options.add_argument("--key", type=Path, required=True, metavar="FILE", help="its key")
    options.add_argument("--client-ca", type=Path, required=True, metavar="FILE", help="CA of those who may read logs")
    options.add_argument("--port", type=int, required=True, metavar="N", help="port of the log server")
    serving.add_metrics_options(options, port=None, required=True)
    options.set_defaults(metrics_host=node_object.ADDRESS)
    return options


async def serve(args: argparse.Namespace, _settings: Settings, stop: asyncio.Event) -> None:
    """Serve the node until `stop` is set."""
    machine = this_machine()
    async with Client(load_connection(args.kubeconfig), user_agent="dovetail-local-node") as client:
        node = _node(args, client=client, boot_id=machine.boot_id)
        pods = Pods(node, name=args.node)
        now = partial(datetime.now, UTC)
        registration = Registration(
            client=client, name=args.node, machine=machine, port=args.port, now=now, limits=args.groups.sentence
        )
        tls = log_server.tls_context(certificate=args.certificate, key=args.key, authority=args.client_ca)
        logs = LogServer(runs=node.runs, uid_of=pods.uid_of).app()
        health = web.Application()
        serving.add_health(health, ready={"node": lambda: registration.problem or None})
        async with (
            serving.guarded(logs, host=node_object.ADDRESS, port=args.port, tls=tls),
            serving.metrics_listening(health, args=args),
        ):
            await serving.together(stop, registration.run(), pods.run())


def _node(args: argparse.Namespace, *, client: Client, boot_id: str) -> Node:
    data = local_submission.Folders(args.data)
    for folder in (args.data, data.logs):
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        folder.chmod(0o700)  # also one that another program has made
    name, _, value = (args.mark or "").partition("=")
    return Node(
        client=client,
        runs=Runs.below(args.state),
        environments=Environments(folder=data.environments, own=os.environ),
        place=Place(
            user=args.user,
            accounts=tuple(args.account),
            node=args.node,
            address=node_object.ADDRESS,
            logs=data.logs,
            home=Path.home(),
        ),
        boot_id=boot_id,
        now=partial(datetime.now, UTC),
        extra={name: value} if name else {},
        groups=args.groups,
        umask=args.umask,
    )


if __name__ == "__main__":
    main()
