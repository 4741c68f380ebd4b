"""The connection to the cluster, from a command's options: one client for each command."""

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import GPUJOBS, Resource
from dovetail.decoding import UnreadableError, decode
from dovetail.process.identity import ProcessId, alive
from dovetail.query.jobs.groups import in_order
from dovetail_cli.ui.errors import NoConnectionError

if TYPE_CHECKING:
    from dovetail.kube.auth.connection import Connection
    from dovetail.kube.client import Client

T = TypeVar("T")

# A page waits for the one before it. A job has 2-8 KiB, so a page of these stays below the client's limit of 16 MiB.
_PAGE_SIZE: Final = 2_000
# A person with a queue of their own need not know what a kubeconfig is.
_STOPPED: Final = "the queue of this machine is stopped: `gflowd up` continues it"
_STARTS: Final = "the queue of this machine still starts: `gflowd status` shows how far it is"
_NOTHING: Final = (
    "there is no queue yet: `gflowd up` starts one on this machine; for a cluster, name its kubeconfig with "
    "--kubeconfig or $KUBECONFIG (~/.kube/config does not exist)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A client and the namespace that the command works in."""

    client: "Client"
    namespace: str


def load(kubeconfig: str | None, *, context: str | None) -> "Connection":
    """The API server that the options name.

    Raises `NoConnectionError` where there is none at all, and `KubeconfigError`.
    """
    from dovetail.kube.auth.connection import default_kubeconfigs, load_connection
    from dovetail.kube.errors import KubeconfigError

    try:
        return load_connection(Path(kubeconfig) if kubeconfig else None, context=context)
    except KubeconfigError as error:
        of_queue, of_user = default_kubeconfigs()
        if kubeconfig or os.environ.get("KUBECONFIG") or of_queue.exists() or of_user.exists():
            raise
        raise NoConnectionError(_absent(of_queue.parent)) from error


def _absent(queue: Path) -> str:
    """What to say where the queue of this machine, whose folder this is, has no kubeconfig."""
    if not queue.is_dir():
        return _NOTHING
    try:
        return _STARTS if alive(decode((queue / "state.json").read_bytes(), as_type=_Started).starter) else _STOPPED
    except (OSError, UnreadableError):
        return _STOPPED


class _Started(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a queue: the process that starts it, as long as it runs."""

    starter: ProcessId | None = None


def work(
    task: Callable[[Cluster], Awaitable[T]],
    *,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None = None,
    brief: bool = False,
) -> T:
    """Do `task` with the cluster that the options name, and return what it returns.

    With `brief`, for a command that sends a few requests, the client comes without aiohttp, whose import takes a third
    of the time of such a command, until it is asked for a stream.
    """
    # The HTTP client takes most of a command's start; what fails before it need not wait for it.
    import asyncio

    from dovetail.kube.client import Client
    from dovetail.kube.errors import Unreachable
    from dovetail.kube.transport import aiohttp_session, brief_session

    make_session = brief_session if brief else aiohttp_session
    connection = load(kubeconfig, context=context)

    async def session() -> T:
        async with Client(
            connection, user_agent="dovetail-cli", on_unreadable=leave_out, make_session=make_session
        ) as client:
            return await task(Cluster(client=client, namespace=namespace or connection.namespace))

    try:
        return asyncio.run(session())
    except Unreachable as error:
        error.add_note(f"tried {connection.source}")
        if connection.local_data is not None:
            error.add_note("to start the queue of this machine: gflowd up")
        raise


async def list_jobs(cluster: Cluster) -> list[GPUJob]:
    """The jobs of the namespace in the order of their numbers; those without one yet come last."""
    jobs = await read_jobs(cluster, namespace=cluster.namespace)
    return in_order(jobs)


async def read_jobs(cluster: Cluster, *, namespace: str | None = None) -> list[GPUJob]:
    """The readable jobs of a namespace, or of all; unreadable ones are named on standard error."""
    found = await cluster.client.list(GPUJOBS, as_type=GPUJob, namespace=namespace, page_size=_PAGE_SIZE)
    return found.items


def leave_out(resource: Resource, meta: ObjectMeta, problem: str) -> None:
    """Name an object that cannot be read on standard error; the command shows the others."""
    name = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
    print(f"dovetail: {resource.kind} {name} is left out: it {problem}", file=sys.stderr)
