"""ResourceSlices of some drivers, watched where the cluster serves and permits them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from dovetail.api.builtin import ResourceSlice
from dovetail.api.meta import EventType
from dovetail.api.resources import RESOURCESLICES, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, KubeError, NotFound
from dovetail.kube.reflector import Reflector
from dovetail.logs import get_logger

log = get_logger("dovetail.kube.slices")

_LOOK_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 15.0
_RETRY_SECONDS: Final = 1.0


class _ApiGoneError(Exception):
    """The API server no longer serves the API version that the watch follows."""


async def list_slices(client: Client, *, drivers: Sequence[str]) -> list[ResourceSlice]:
    """List the drivers' ResourceSlices; empty where the cluster has no such API.

    Raises `KubeError`, such as `Forbidden`.
    """
    for resource in RESOURCESLICES:
        found: list[ResourceSlice] = []
        try:
            for driver in drivers:
                found += (await client.list(resource, as_type=ResourceSlice, field_selector=_of(driver))).items
        except NotFound:
            continue
        return found
    return []


class SliceWatch:
    """Follows the drivers' ResourceSlices; `run()` does so until it is cancelled.

    The API server filters by driver, so slices of other drivers (networks, channels) cost nothing here. Where the API
    is absent (404), the watch probes for it every `look_seconds`, also after an upgrade removes the version that it
    follows. Where access is forbidden (403), the known slices stay. `settled` is set when all slices are listed, when
    it is clear that they cannot be listed, or after `patience_seconds`. After that there is no reason to wait.
    """

    def __init__(
        self,
        client: Client,
        *,
        drivers: Sequence[str],
        on_event: Callable[[EventType, ResourceSlice], None],
        look_seconds: float = _LOOK_SECONDS,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self.settled = asyncio.Event()
        self._client = client
        self._drivers = drivers
        self._on_event = on_event
        self._look_seconds = look_seconds
        self._patience_seconds = patience_seconds
        self._said = ""
        # The wait before the next probe: long where the API is absent or forbidden, short where nothing is known.
        self._wait_seconds = _RETRY_SECONDS

    async def run(self) -> None:
        """Probe for the API, and follow it while it is served."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lose_patience())
            tasks.create_task(self._follow_what_is_served())

    async def _follow_what_is_served(self) -> None:
        while True:
            resource = await self._served()
            if resource is None:
                await asyncio.sleep(self._wait_seconds)
            else:
                await self._follow(resource)

    async def _lose_patience(self) -> None:
        try:
            async with asyncio.timeout(self._patience_seconds):
                await self.settled.wait()
        except TimeoutError:
            log.warning("ResourceSlices are not listed yet: DRA drivers on managed nodes are not seen until they are")
            self.settled.set()

    async def _served(self) -> Resource | None:
        """The newest version of the API that is served and that we may read; None if there is none."""
        for resource in RESOURCESLICES:
            try:
                async for _ in self._client.pages(resource, as_type=msgspec.Raw, page_size=1):
                    self._say(f"ResourceSlices are followed by {resource.api_version}")
                    return resource
            except NotFound:
                continue
            except Forbidden as error:
                self._do_without(f"DRA drivers on managed nodes are not seen: {error}")
                return None
            except KubeError as error:
                self._wait_seconds = _RETRY_SECONDS
                self._say(f"ResourceSlices cannot be listed: {error}")
                return None
        self._do_without("this cluster has no ResourceSlices")
        return None

    def _do_without(self, why: str) -> None:
        self._wait_seconds = self._look_seconds
        self._say(why)
        self.settled.set()

    async def _follow(self, resource: Resource) -> None:
        reflectors = [
            Reflector(
                self._client,
                resource=resource,
                as_type=ResourceSlice,
                on_event=self._on_event,
                field_selector=_of(driver),
            )
            for driver in self._drivers
        ]
        try:
            async with asyncio.TaskGroup() as tasks:
                for reflector in reflectors:
                    tasks.create_task(reflector.run())
                tasks.create_task(self._settle(reflectors))
                tasks.create_task(self._until_gone(reflectors))
        except* _ApiGoneError:
            self._say(f"{resource.api_version} is served no more")
        for reflector in reflectors:
            for last in list(reflector.store.values()):
                self._on_event("DELETED", last)

    async def _settle(self, reflectors: Sequence[Reflector[ResourceSlice]]) -> None:
        for reflector in reflectors:
            await reflector.synced.wait()
        self.settled.set()

    async def _until_gone(self, reflectors: Sequence[Reflector[ResourceSlice]]) -> None:
        while not any(isinstance(each.last_error, NotFound) for each in reflectors):  # noqa: ASYNC110 - has no event
            await asyncio.sleep(_RETRY_SECONDS)
        raise _ApiGoneError

    def _say(self, text: str) -> None:
        """Log the text if it differs from the last one."""
        if text != self._said:
            self._said = text
            log.info(text)


def _of(driver: str) -> str:
    return f"spec.driver={driver}"
