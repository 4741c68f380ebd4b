"""GPUJobs by kopf: their changes.

kopf runs in a thread with an event loop of its own. When it stops for whatever reason (a watch error other than 410
ends it), it cancels every task of its loop, whoever made it; here that ends nothing of ours, and it is started again.
Only low-level event handlers are used: they are level-triggered, add no finalizer and write no annotation.
"""

import asyncio
import contextlib
import itertools
import logging
import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import kopf

from dovetail.kube.connection import Connection
from dovetail.kube.retry import Backoff
from dovetail.logs import get_logger
from dovetail.names import GROUP, VERSION

log = get_logger("dovetail.operator.watch")

# `type` is None for an object that was found by listing. Called in the thread of kopf.
OnChange = Callable[[str | None, dict[str, Any]], None]

_TOKEN_LIFE: Final = timedelta(minutes=5)
_PAGE_SIZE: Final = 500
_JOIN_SECONDS: Final = 10.0
# A line for every change of every job, and one that signals are not handled in this thread, which is as it should be.
_LOG_LEVELS: Final = {"kopf.objects": logging.WARNING, "kopf._core.reactor.running": logging.ERROR}


class _Backoffs:
    """Waits between attempts, without end: an API server that is away is waited for, not given up."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.2, 0.5, 1, 2, 5), itertools.repeat(10))


class _NoDifferences(kopf.DiffBaseStorage):
    """kopf works out what of an object has changed since a handler succeeded, and copies all of it for that at every
    event. Our handler is told of every change and asks no difference."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return cast("kopf.BodyEssence", {})

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        """Nothing to keep."""


class GPUJobWatch:
    """Follows the GPUJobs of all namespaces from `start` to `stop`."""

    def __init__(self, connection: Connection, *, on_change: OnChange) -> None:
        self._connection = connection
        self._on_change = on_change
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        # How often kopf has stopped since it last told of a change.
        self._failures = 0

    def start(self) -> None:
        """Begin to follow. The CRD must exist by now: kopf looks for it once."""
        for name, level in _LOG_LEVELS.items():
            logging.getLogger(name).setLevel(level)
        self._thread.start()

    def stop(self) -> None:
        """Stop following; blocks for a moment."""
        self._stopping.set()
        if self._loop is not None and self._stop is not None:
            # The loop may have ended by itself just now.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        backoff, rng = Backoff(first_seconds=1.0), random.Random()  # noqa: S311 - spreads retries
        while True:
            try:
                asyncio.run(self._operate())
            except Exception as error:  # noqa: BLE001 - whatever ended it, it must go on
                log.warning("kopf stopped watching GPUJobs and is started again", error=str(error))
            wait = backoff.seconds(self._failures, rng=rng)
            self._failures += 1
            if self._stopping.wait(wait):
                return

    async def _operate(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self._stopping.is_set():
            return
        await kopf.operator(
            registry=self._registry(),
            settings=_settings(),
            standalone=True,
            clusterwide=True,
            stop_flag=self._stop,
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        kopf.on.event(GROUP, VERSION, "gpujobs", registry=registry)(self._changed)
        return registry

    def _login(self, **_: Any) -> kopf.ConnectionInfo:
        connection = self._connection
        expires = datetime.now(UTC) + _TOKEN_LIFE if connection.changing_token else None
        return kopf.ConnectionInfo(
            server=connection.server,
            ca_data=connection.ca,
            insecure=connection.insecure,
            certificate_data=connection.client_certificate,
            private_key_data=connection.client_key,
            token=connection.read_token(),
            default_namespace=connection.namespace,
            proxy_url=connection.proxy_url,
            expiration=expires,
        )

    async def _changed(self, event: Any, **_: Any) -> None:
        self._failures = 0
        self._on_change(event["type"], event["object"])


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    # The CRD is there before we start, and watching for CRDs and namespaces would need rights over the cluster.
    settings.scanning.disabled = True
    settings.networking.error_backoffs = _Backoffs()
    settings.watching.chunk_size = _PAGE_SIZE
    settings.queueing.idle_timeout = 1.0
    # How long each event waits for later ones of the same object.
    settings.queueing.batch_window = 0.02
    settings.persistence.diffbase_storage = _NoDifferences()
    settings.process.ultimate_exiting_timeout = None
    settings.posting.enabled = False
    return settings
