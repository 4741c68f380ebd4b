"""An informer of a kind that the API server may not have: a CRD of another project."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from dovetail.api.meta import EventType
from dovetail.api.resources import Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, KubeError, NotFound
from dovetail.kube.reflector import KubeObject, Reflector
from dovetail.kube.retry import BACKOFF, JITTER
from dovetail.logs import get_logger

log = get_logger("dovetail.kube.optional")

LOOK_SECONDS: Final = 60.0
T = TypeVar("T", bound=KubeObject)


class OptionalWatch(Generic[T]):
    """Follows the objects of a kind where it is installed and access is allowed; `run()` does so until cancelled.

    `settled` is set when all are listed, or when it is clear that they cannot be listed now.
    """

    def __init__(
        self,
        client: Client,
        *,
        resource: Resource,
        as_type: type[T],
        on_event: Callable[[EventType, T], None],
        label_selector: str | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.settled = asyncio.Event()
        self._client = client
        self._resource = resource
        self._look_seconds = look_seconds
        self._wanted = asyncio.Event()
        self._reflector = Reflector(
            client, resource=resource, as_type=as_type, on_event=on_event, label_selector=label_selector
        )

    async def run(self) -> None:
        """Follow the objects. If the kind is absent, look for it every `look_seconds`; after an outage, sooner."""
        failures = 0
        while (absence := await self._absence()) is not None:
            self.settled.set()
            wait_seconds = self._look_seconds
            if not isinstance(absence, NotFound | Forbidden):
                wait_seconds = min(wait_seconds, BACKOFF.seconds(failures, rng=JITTER))
                failures += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    await self._wanted.wait()
            self._wanted.clear()
        log.info("a kind of another project is followed", kind=self._resource.kind)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run())
            tasks.create_task(self._settle())

    def look_now(self) -> None:
        """Look for an absent kind at once: the caller has just seen it."""
        self._wanted.set()

    async def _settle(self) -> None:
        await self._reflector.synced.wait()
        self.settled.set()

    async def _absence(self) -> KubeError | None:
        """Why the kind cannot be listed; None if it can."""
        try:
            async for _ in self._client.pages(self._resource, as_type=dict[str, Any], page_size=1):
                break
        except KubeError as error:
            log.debug("a kind is absent", kind=self._resource.kind, error=str(error))
            return error
        return None
