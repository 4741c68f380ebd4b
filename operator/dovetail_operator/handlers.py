"""The operator as kopf runs it: login, start, liveness, clean-up.

kopf owns the process: it takes the signals, logs in to the API server, starts the work, answers the liveness probe and
ends the work. It follows no objects. `dovetail.kube.reflector` does that: kopf decodes objects into dictionaries and
reports no deletion that it missed (docs/decisions/0011-source-of-gpujobs.md).

The work runs in kopf's event loop. kopf cancels every task of the loop that is left when it ends, so the work must
have ended by then: `finish` waits for it.
"""

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import kopf

from dovetail.kube.auth.connection import Connection

registry = kopf.OperatorRegistry()

# Of kopf's own type, which it does not export.
_IDENTITY: Final[Any] = "dovetail-operator"
_TOKEN_LIFE: Final = timedelta(minutes=5)


@dataclass(slots=True, kw_only=True)
class Process:
    """What the handlers share: kopf's memo.

    `work` runs until `stop` is set. `said` is what the liveness probe shows; it never makes the probe fail.
    `standard_login` says that the connection is from $KUBECONFIG or the pod's service account, which kopf's own login
    reads too.
    """

    connection: Connection
    standard_login: bool = False
    work: Callable[[], Coroutine[Any, Any, None]]
    stop: asyncio.Event
    said: Callable[[], Mapping[str, str]] = dict
    task: asyncio.Task[None] | None = field(default=None, init=False)


class _Backoffs:
    """Delays between attempts, without end: kopf waits for an unavailable API server."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.2, 0.5, 1, 2, 5), itertools.repeat(10))


async def run(process: Process, *, liveness: str | None = None) -> None:
    """Run the operator until `process.stop` is set, a signal comes or the work ends.

    kopf serves its liveness probe at the URL `liveness`. Raises the error that ended the work.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    if threading.current_thread() is not threading.main_thread():
        # It warns that it takes no signals there, where `stop_flag` ends it.
        logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    try:
        await kopf.operator(
            registry=registry,
            memo=process,
            stop_flag=process.stop,
            standalone=True,
            # Unused without peering. By default kopf asks for the user's name, and a container's user has none.
            identity=_IDENTITY,
            clusterwide=True,
            liveness_endpoint=liveness,
        )
    finally:
        await _ended(process)
    if process.task is not None:
        process.task.result()


@kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)
async def start(*, settings: kopf.OperatorSettings, memo: Process, **_: Any) -> None:
    """Start the work: elect the leader, fill the caches and run the controller."""
    # kopf watches no objects, so it needs no CRDs, namespaces or peering, and posts no events.
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.networking.error_backoffs = _Backoffs()
    # `dovetail.process.serving` and kubelet limit the time to end.
    settings.process.ultimate_exiting_timeout = None
    memo.task = asyncio.create_task(memo.work(), name="operator")
    memo.task.add_done_callback(lambda _: memo.stop.set())


@kopf.on.login(registry=registry)
def login(*, memo: Process, logger: kopf.Logger, settings: kopf.OperatorSettings, **_: Any) -> kopf.ConnectionInfo:
    """Log in by kopf's own `login_via_client` if that finds the operator's API server.

    Else kopf gets the operator's own connection. kopf runs this in a thread, because a login may run a program.
    """
    if memo.standard_login and (found := _by_official_client(memo.connection, logger=logger, settings=settings)):
        return found
    connection = memo.connection
    return kopf.ConnectionInfo(
        server=connection.server,
        ca_data=connection.ca,
        insecure=connection.insecure,
        certificate_data=connection.client_certificate,
        private_key_data=connection.client_key,
        token=connection.read_token(),
        default_namespace=connection.namespace,
        proxy_url=connection.proxy_url,
        expiration=datetime.now(UTC) + _TOKEN_LIFE if connection.changing_token else None,
    )


def _by_official_client(
    connection: Connection, *, logger: kopf.Logger, settings: kopf.OperatorSettings
) -> kopf.ConnectionInfo | None:
    """kopf's login; None without the `kubernetes` package, on failure, or for another server.

    It prefers the pod's service account to $KUBECONFIG, and with several files takes the last one's current context.
    """
    try:
        found = kopf.login_via_client(logger=logger, settings=settings)
    except Exception as error:  # noqa: BLE001 - the package has errors of many kinds; the operator is logged in already
        logger.debug("kopf's own login failed: %s", error)
        return None
    if found is None or found.server != connection.server or not (found.token or found.certificate_path):
        return None
    return replace(found, default_namespace=connection.namespace, proxy_url=connection.proxy_url)


@kopf.on.probe(registry=registry, id="operator")
async def probe(*, memo: Process, **_: Any) -> dict[str, str]:
    """Show what the operator does.

    The answer itself is the probe: an unavailable API server does not fail it.
    """
    return dict(memo.said())


@kopf.on.cleanup(registry=registry)
async def finish(*, memo: Process, **_: Any) -> None:
    """End the work and wait for it: it finishes its writes and releases the lease."""
    await _ended(memo)


async def _ended(process: Process) -> None:
    process.stop.set()
    if process.task is not None:
        await asyncio.wait({process.task})
