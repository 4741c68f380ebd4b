"""`dovetail-cleanup`: removes what `helm uninstall` leaves in the cluster.

The chart runs it as a hook after the uninstall. Without the hook (`--no-hooks`), run it yourself with your kubeconfig.
It can be repeated.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Final

from dovetail.kube.client import Client
from dovetail.kube.errors import KubeconfigError, KubeError
from dovetail.process import hooks
from dovetail_release import leftovers

_DELETE_CRDS: Final = "kubectl delete crd --selector app.kubernetes.io/name=dovetail"


def main(argv: Sequence[str] | None = None) -> int:
    """Remove everything; exit code 1 if a step failed, 2 without a connection."""
    args = parser().parse_args(argv)
    try:
        failed = asyncio.run(_run(args))
    except KubeconfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = hooks.parser("dovetail-cleanup", description="Remove what `helm uninstall` leaves in the cluster.")
    options.add_argument("--node-namespace", metavar="NAME", help="that of the agents (default: the release's)")
    options.add_argument("--release", default="dovetail", metavar="NAME", help="default: %(default)s")
    options.add_argument(
        "--secret",
        dest="secrets",
        action="append",
        default=[],
        metavar="NAME",
        help="Secret with a certificate that dovetail-certificates issued; may be repeated",
    )
    options.add_argument(
        "--keep-numbers", action="store_true", help="keep the job numbers, because a history that has them stays"
    )
    options.add_argument(
        "--wait",
        type=float,
        default=45.0,
        metavar="SECONDS",
        help="for the release's pods to end (default: %(default)g)",
    )
    options.add_argument(
        "--timeout", type=float, default=110.0, metavar="SECONDS", help="for everything (default: %(default)g)"
    )
    return options


async def _run(args: argparse.Namespace) -> list[str]:
    async with hooks.client(args, prog="dovetail-cleanup") as client:
        return await clean(client, args=args, say=hooks.say)


async def clean(client: Client, *, args: argparse.Namespace, say: hooks.Say) -> list[str]:
    """Take every step, also after one has failed. Returns what failed, which it has said too."""
    failed: list[str] = []
    try:
        async with asyncio.timeout(args.timeout):
            for what, step in _steps(client, args=args):
                try:
                    async for sentence in step:
                        say(sentence)
                except KubeError as error:
                    failed.append(f"Failed to {what}: {error}")
    except TimeoutError:
        failed.append(f"Not finished within {args.timeout:g} s: run dovetail-cleanup again.")
    for problem in failed:
        say(problem)
    say(f"Kept the CRDs. To delete them and all GPUJobs with their pods: {_DELETE_CRDS}")
    return failed


def _steps(client: Client, *, args: argparse.Namespace) -> Sequence[tuple[str, AsyncIterator[str]]]:
    namespaces = dict.fromkeys((args.namespace, args.node_namespace or args.namespace))
    wait = leftovers.wait_for_pods(client, namespaces=namespaces, release=args.release, seconds=args.wait)
    records = leftovers.delete_records(client, namespace=args.namespace, keep_numbers=args.keep_numbers)
    secrets = leftovers.delete_certificates(client, namespace=args.namespace, secrets=args.secrets)
    return (
        ("wait for the release's pods", wait),
        ("delete the placeholders of nodes", leftovers.delete_placeholders(client)),
        ("remove the nodes' capacity", leftovers.remove_capacity(client)),
        ("delete the nodes' reports", leftovers.delete_reports(client)),
        ("delete Leases and ConfigMaps", records),
        ("delete certificates", secrets),
        ("count the GPUJobs", leftovers.count_jobs(client)),
    )
