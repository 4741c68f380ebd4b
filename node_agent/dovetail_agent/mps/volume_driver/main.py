"""`dovetail-mps-csi`: the volume driver for MPS's pipes and shared memory in a node's pods.

It has no service account and no port. It reads the list of tenants that the supervisor writes (`pod_modes`) and answers
only kubelet, on a Unix socket. Its mounts stay when it ends.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dovetail import names
from dovetail.config.settings import Settings
from dovetail.logs import get_logger
from dovetail.process import serving
from dovetail_agent.mps.volume_driver.mounts import BindMounts
from dovetail_agent.mps.volume_driver.server import CsiServer
from dovetail_agent.mps.volume_driver.volumes import MpsVolumes

log = get_logger(__name__)

_REGISTRATION_SECONDS: Final = 120.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM; exits 2 for a bad command line, 1 if kubelet does not register it.

    Both print one sentence.
    """
    sys.exit(serving.run(serve, args=parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = serving.parser("dovetail-mps-csi", description="Gives pods with a share of a device MPS's folders.")
    options.add_argument("--node", metavar="NAME", required=True, help="the node that this is")
    options.add_argument(
        "--directory", type=Path, metavar="DIR", required=True, help="MPS's folder: clients, shm, state"
    )
    options.add_argument(
        "--kubelet",
        type=Path,
        metavar="DIR",
        default=Path("/var/lib/kubelet"),
        help="kubelet's folder (default /var/lib/kubelet)",
    )
    options.add_argument("--staging", type=Path, metavar="DIR", required=True, help="an empty folder of its own")
    options.add_argument(
        "--wait",
        type=float,
        metavar="SECONDS",
        default=10.0,
        help="how long the supervisor may take to learn of a pod that kubelet starts already (default 10)",
    )
    options.add_argument("--pipe-writable", action="store_true", help="let clients write in the folder of the pipes")
    return options


async def serve(args: argparse.Namespace, settings: Settings, stop: asyncio.Event) -> None:  # noqa: ARG001 - a Program
    """Serve kubelet until `stop` is set."""
    pods = args.kubelet / "pods"
    volumes = MpsVolumes(
        BindMounts(root=pods, staging=args.staging),
        directory=args.directory,
        pods=pods,
        pipe_read_only=not args.pipe_writable,
        wait_seconds=args.wait,
    )
    socket = args.kubelet / "plugins_registry" / f"{names.MPS_DRIVER}.sock"
    server = CsiServer(volumes, name=names.MPS_DRIVER, node=args.node, socket=socket)
    async with server.listening():
        log.info("MPS volume driver started", node=args.node, pipe_writable=args.pipe_writable)
        await serving.together(stop, server.stay_registered(within_seconds=_REGISTRATION_SECONDS))


if __name__ == "__main__":
    main()
