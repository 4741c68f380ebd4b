"""Follows the guests of one kind. A kind that the API server does not have rests until it appears."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from dovetail import names
from dovetail.api.meta import EventType
from dovetail.jobs.guests.kind import Guest, Kind
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.kube.reflector import Reflector
from dovetail.logs import get_logger

log = get_logger("dovetail.operator.guests")

_LOOK_SECONDS: Final = 10.0


class KindWatch:
    """The informer of one kind. `settled` is set once its guests are listed, or the kind is known to be absent."""

    def __init__(
        self,
        client: Client,
        *,
        kind: Kind,
        on_event: Callable[[EventType, Guest, Kind], None],
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self.kind = kind
        self.settled = asyncio.Event()
        self._client = client
        self._look_seconds = look_seconds
        self._reflector = Reflector(
            client,
            resource=kind.resource,
            as_type=Guest,
            on_event=lambda type_, guest: on_event(type_, guest, kind),
            label_selector=names.LABEL_QUEUE,
        )

    async def run(self) -> None:
        """Follow the kind's guests until cancelled. If the kind is absent, look for it every `look_seconds`."""
        while not await self._is_served():
            self.settled.set()
            await asyncio.sleep(self._look_seconds)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run())
            await self._reflector.synced.wait()
            log.info("a kind is followed", kind=self.kind.resource.kind)
            self.settled.set()

    async def _is_served(self) -> bool:
        try:
            async for _ in self._client.pages(self.kind.resource, as_type=dict[str, Any], page_size=1):
                return True
        except KubeError as error:
            log.debug("a kind rests", kind=self.kind.resource.kind, error=str(error))
        return False


class Watch(Protocol):
    """An informer of guests. `settled` is set once its guests are listed."""

    settled: asyncio.Event

    async def run(self) -> None:
        """Follow the guests until cancelled."""


class KindWatches:
    """The informers of all kinds."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self._watches = watches

    async def settled(self) -> None:
        """Wait until the guests of all kinds that exist are listed."""
        for watch in self._watches:
            await watch.settled.wait()

    async def run(self) -> None:
        """Follow the guests of all kinds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches:
                tasks.create_task(watch.run())
