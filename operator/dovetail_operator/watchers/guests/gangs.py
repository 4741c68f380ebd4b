"""Follows the objects of other APIs that say which pods start together, where the API server has them."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from dovetail.api.meta import EventType, ObjectMeta
from dovetail.jobs.guests.gangs import GANG_KINDS, Gang, GangKind, gang_in, gang_of, written
from dovetail.jobs.guests.kind import Guest
from dovetail.kube.client import Client
from dovetail.kube.queries.optional_watch import OptionalWatch

_LOOK_SECONDS: Final = 10.0


class Gangs:
    """The informers of all kinds of gangs.

    `on_change` is called with the namespace of a gang that has changed, and what the annotation of its pods says.
    """

    def __init__(self, client: Client, *, on_change: Callable[[tuple[str, str]], None]) -> None:
        self._on_change = on_change
        # By namespace, prefix of the kind and name of the gang: the objects that speak of it, by their names.
        self._objects: dict[tuple[str, str, str], dict[str, Guest]] = {}
        self._watches = tuple(
            OptionalWatch(
                client,
                resource=kind.resource,
                as_type=Guest,
                on_event=partial(self.object_event, kind=kind),
                label_selector=kind.label_selector,
                look_seconds=_LOOK_SECONDS,
            )
            for kind in GANG_KINDS
        )

    def object_event(self, type_: EventType, found: Guest, *, kind: GangKind) -> None:
        """Take an event of an object of a kind."""
        meta, name = found.metadata, kind.name_of(found)
        if not name:
            return
        objects = self._objects.setdefault((meta.namespace, kind.prefix, name), {})
        if type_ == "DELETED":
            objects.pop(meta.name, None)
        else:
            objects[meta.name] = found
        if not objects:
            del self._objects[meta.namespace, kind.prefix, name]
        self._on_change((meta.namespace, written(kind, name=name)))

    def of_pod(self, meta: ObjectMeta) -> Gang | None:
        """What the objects say that a pod in the queue names; None without them."""
        if (named := gang_in(meta)) is None:
            return None
        kind, name = named
        objects = self._objects.get((meta.namespace, kind.prefix, name), {})
        return gang_of([objects[key] for key in sorted(objects)], kind=kind) if objects else None

    async def settled(self) -> None:
        """Wait until the objects of all kinds that exist are listed."""
        for watch in self._watches:
            await watch.settled.wait()

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches:
                tasks.create_task(watch.run())
