"""Keeps a folder in sync with a Secret, as kubelet does for a mount.

Runs as a sandbox component. Kubelet swaps a link, so that a reader never sees one file of the old Secret and one of the
new. Here the key is written before the certificate, and the webhook keeps its old pair while the two do
not match.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from dovetail.api.meta import EventType, ObjectMeta
from dovetail.api.resources import Resource
from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail.kube.retry import retrying
from dovetail.logs import get_logger
from dovetail.process import serving

log = get_logger("dovetail.sandbox.secret_volume")

_SECRETS: Final = Resource(plural="secrets", kind="Secret")


class _Secret(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    data: dict[str, bytes] | None = None


async def follow(client: Client, *, name: str, namespace: str, folder: Path) -> None:
    """Write the Secret's files at each change, until cancelled. What cannot be written is tried again.

    The files of a deleted Secret stay, as on a node.
    """
    wanted, written, changed = dict[str, bytes](), dict[str, bytes](), asyncio.Event()

    def secret_event(event: EventType, secret: _Secret) -> None:
        if event != "DELETED":
            wanted.clear()
            wanted.update(secret.data or {})
            changed.set()

    async def write(_attempt: int) -> None:
        _write({key: text for key, text in wanted.items() if written.get(key) != text}, folder=folder)
        written.clear()
        written.update(wanted)

    def failed(error: Exception, wait_seconds: float) -> None:
        log.warning("Secret cannot be written", secret=name, problem=str(error), again_in_seconds=wait_seconds)

    async def write_changes() -> None:
        while await changed.wait():
            changed.clear()
            await retrying(write, may_retry=lambda error, _attempt: isinstance(error, OSError), failed=failed)

    reflector = Reflector(
        client,
        resource=_SECRETS,
        as_type=_Secret,
        on_event=secret_event,
        namespace=namespace,
        field_selector=f"metadata.name={name}",
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(reflector.run())
        group.create_task(write_changes())


def _write(files: dict[str, bytes], *, folder: Path) -> None:
    # Alphabetically, tls.key follows tls.crt: the reverse order writes the key first.
    for name, text in sorted(files.items(), reverse=True):
        beside = folder / f".{name}.new"
        beside.write_bytes(text)
        beside.chmod(0o600)
        beside.replace(folder / name)


def main(argv: Sequence[str] | None = None) -> int:
    """Follow the Secret until a signal ends the process, and return the exit code."""
    options = serving.parser("dovetail-secret-volume", description="Keep a folder in sync with a Secret.")
    options.add_argument("--secret", required=True, metavar="NAME", help="the Secret")
    options.add_argument("--namespace", required=True, metavar="NAME", help="its namespace")
    options.add_argument("--folder", type=Path, required=True, metavar="FOLDER", help="where its files go")
    return serving.run(_serve, args=options.parse_args(argv))


async def _serve(args: argparse.Namespace, _settings: Settings, stop: asyncio.Event) -> None:
    args.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    async with Client(load_connection(args.kubeconfig), user_agent="dovetail-secret-volume") as client:
        following = follow(client, name=args.secret, namespace=args.namespace, folder=args.folder)
        await serving.together(stop, following)


if __name__ == "__main__":
    sys.exit(main())
