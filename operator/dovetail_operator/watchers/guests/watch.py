"""Follows the guests of one kind. A kind that the API server does not have rests until it appears."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from dovetail import names
from dovetail.api.meta import EventType
from dovetail.jobs.guests.kind import Guest, Kind
from dovetail.kube.client import Client
from dovetail.kube.queries.optional_watch import OptionalWatch

LOOK_SECONDS: Final = 10.0


class KindWatch(OptionalWatch[Guest]):
    """The informer of one kind. `settled` is set once its guests are listed, or the kind is known to be absent."""

    def __init__(
        self,
        client: Client,
        *,
        kind: Kind,
        on_event: Callable[[EventType, Guest, Kind], None],
        label_selector: str = names.LABEL_QUEUE,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.kind = kind
        super().__init__(
            client,
            resource=kind.resource,
            as_type=Guest,
            on_event=lambda type_, guest: on_event(type_, guest, kind),
            label_selector=label_selector,
            look_seconds=look_seconds,
        )


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
