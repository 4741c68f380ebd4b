"""A gateway on this machine for one person: the console with the rights of a kubeconfig, until it is stopped."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import Connection
from dovetail.process import connections, serving
from dovetail_gateway.access.callers import LOCAL
from dovetail_gateway.access.places import Holder
from dovetail_gateway.app import Gateway, Options, gateway
from dovetail_gateway.console.serve import PATH
from dovetail_gateway.routing.server import HEADER_BYTES, refuse

if TYPE_CHECKING:
    from dovetail_gateway.samples.store import SampleStore

HOST = "127.0.0.1"
# How long the lists of a large cluster may take before the reason of the delay is shown.
_PATIENCE_SECONDS = 10.0


async def serve(
    connection: Connection,
    *,
    settings: Settings,
    port: int,
    opened: Callable[[str, str], None],
    delayed: Callable[[str], None],
    stop: asyncio.Event,
    store: "SampleStore | None" = None,
) -> None:
    """Serve on loopback until `stop`; without a `store`, what was used is known since the start.

    `opened` gets the address, and the code that signs one browser in as the kubeconfig's user. `delayed` gets the
    reason why the cluster is not complete after a while. Raises `ConfigError` for a port that is taken.
    """
    async with gateway(connection, settings=settings, options=Options(), store=store) as made:
        listening = connections.listening(
            made.application,
            host=HOST,
            port=port,
            tls=None,
            connections=made.connections,
            most_header_bytes=HEADER_BYTES,
            refuse=refuse,
        )
        async with listening as bound:
            opened(f"http://{HOST}:{bound}{PATH}", made.codes.issue(LOCAL, holder=Holder(user="", address=HOST)))
            await serving.together(
                stop,
                made.cache.run(),
                made.feed.run(),
                made.sampler.run(),
                made.answers.keep_ready(),
                _watch(made, delayed=delayed),
            )


async def _watch(made: Gateway, *, delayed: Callable[[str], None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await made.cache.complete()
            return
    delayed(made.cache.obstacle)
