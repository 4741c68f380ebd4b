"""An informer: a paged list that a watch keeps up to date by resuming and relisting."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from dovetail.api.meta import EventType, ObjectMeta, key_of
from dovetail.api.resources import Resource
from dovetail.decoding import problem_of
from dovetail.kube import retry, watch_stream
from dovetail.kube.client import Client, selectors
from dovetail.kube.errors import KubeError, status_error
from dovetail.kube.unreadable_objects import OnUnreadable, Unreadable, UnreadableObjects

log = logging.getLogger("dovetail.kube.reflector")

# The API server ends a watch itself after this time, and sends a bookmark about every minute.
_WATCH_SECONDS: Final = 300
_SILENCE_SECONDS: Final = 150.0
_SHORT_WATCH_SECONDS: Final = 1.0


class KubeObject(Protocol):
    """Any object with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=KubeObject)


class Reflector(Generic[T]):
    """An informer: follows all objects that the selectors choose.

    `run()` follows them until it is cancelled.

    `on_event` is called for every change, in the order of each object's changes, after `store` contains the change. A
    relist reports what it finds as changes too: an object that was deleted while no watch ran is a DELETED with its
    last known state. An object that was replaced under its name is a DELETED and an ADDED.

    No single object ends `run()`. An unreadable object keeps its last readable state in `store`, and stays out of
    `store` if it was never readable. A change at which `on_event` fails is kept and delivered again when the next watch
    begins, unless a later change of that object has succeeded before. Both kinds are counted in
    `dovetail_unreadable_objects_total`, logged once, listed in `unreadable` while they last, and reported to
    `on_unreadable` once per resourceVersion.

    `stand_in` receives an unreadable object's metadata and its last readable state. It returns the object to keep until
    the real one is readable again, or None to keep the last readable state.

    `transform` reduces each object to what is worth keeping, like an informer's transform in client-go: it saves
    memory.

    `on_page` is called with the new and changed objects of a page of a list, before `on_event` is called for each of
    them: what is cheaper for many objects at once can be done there. If it fails, `on_event` is called as without it.

    `matters` receives an object's last state and its new one, and says whether `on_event` is called for that change,
    like an update predicate of controller-runtime. `store` has the new state in any case.
    """

    def __init__(
        self,
        client: Client,
        *,
        resource: Resource,
        as_type: type[T],
        on_event: Callable[[EventType, T], None] | None = None,
        on_page: Callable[[Sequence[T]], None] | None = None,
        on_unreadable: OnUnreadable | None = None,
        transform: Callable[[T], T] | None = None,
        stand_in: Callable[[ObjectMeta, T | None], T | None] | None = None,
        matters: Callable[[T, T], bool] | None = None,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        silence_seconds: float = _SILENCE_SECONDS,
        backoff: retry.Backoff = retry.BACKOFF,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random = retry.JITTER,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.resource_version = ""
        self.last_error: KubeError | None = None
        self._client = client
        self._as_type = as_type
        self._on_event = on_event or (lambda _type, _object: None)
        self._on_page = on_page or (lambda _objects: None)
        self._transform = transform or (lambda found: found)
        self._stand_in = stand_in or (lambda _meta, _known: None)
        self._matters = matters or (lambda _old, _new: True)
        self._namespace = namespace
        self._selectors = selectors(label_selector, field_selector=field_selector)
        self._silence_seconds = silence_seconds
        self._backoff = backoff
        self._clock = clock
        self._rng = rng
        self._decoder = watch_stream.decoder(as_type)
        self._store: dict[str, T] = {}
        self._unreadable = UnreadableObjects(resource.kind, report=on_unreadable)
        # By UID: an object and its successor with the same name are different objects.
        self._undelivered: dict[str, tuple[EventType, T]] = {}
        self._contact_at: float | None = None
        self._failures = 0

    @property
    def store(self) -> Mapping[str, T]:
        """All objects as last seen, by `key_of`.

        A live view: it changes only while the caller awaits.
        """
        return MappingProxyType(self._store)

    @property
    def unreadable(self) -> Mapping[str, Unreadable]:
        """The objects whose current version could not be decoded or handled, by `key_of`.

        A live view.
        """
        return self._unreadable.found

    @property
    def age_seconds(self) -> float:
        """Seconds since the last list, event or bookmark; infinite before the first."""
        return float("inf") if self._contact_at is None else self._clock() - self._contact_at

    async def run(self) -> None:
        """List and watch until cancelled.

        Errors are logged, followed by a wait, then a resume or a relist.
        """
        while True:
            try:
                if not self.resource_version:
                    await self._relist()
                await self._watch()
            except KubeError as error:
                await self._recover(error)

    async def _relist(self) -> None:
        seen: set[str] = set()
        resource_version = ""
        async for page in self._client.pages(
            self.resource,
            as_type=msgspec.Raw,
            namespace=self._namespace,
            label_selector=self._selectors.get("labelSelector"),
            field_selector=self._selectors.get("fieldSelector"),
        ):
            self._contact()
            seen.update(self._take([self._decode(item) for item in page.items or ()]))
            resource_version = page.metadata.resource_version
        for key in self._store.keys() - seen:
            self._drop(self._store[key].metadata)
        for key in self._unreadable.found.keys() - seen:
            self._unreadable.discard(key)
        self.resource_version = resource_version
        if not self.synced.is_set():
            log.info("%s: %d objects listed", self.resource.plural, len(self._store))
        self.synced.set()

    async def _watch(self) -> None:
        self._deliver_again()
        started = self._clock()
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version,
            # Random, so that many watches do not end at the same moment.
            "timeoutSeconds": str(_WATCH_SECONDS + self._rng.randrange(_WATCH_SECONDS)),
            **self._selectors,
        }
        buffer = watch_stream.LineBuffer()
        async with self._client.stream(
            self.resource, query=query, namespace=self._namespace, silence_seconds=self._silence_seconds
        ) as chunks:
            self._contact()
            async for chunk in chunks:
                for line in buffer.feed(chunk):
                    self._handle(line)
        if self._clock() - started < _SHORT_WATCH_SECONDS:
            # A proxy that ends every watch at once must not make this loop spin.
            await self._pause()
        else:
            self._failures = 0

    def _contact(self) -> None:
        self._contact_at = self._clock()
        self.last_error = None

    async def _recover(self, error: KubeError) -> None:
        self.last_error = error
        resume = retry.may_resume(error)
        log.log(
            logging.WARNING if self._failures else logging.INFO,
            "%s: %s; %s", self.resource.plural, error, "resuming" if resume else "listing again",
        )  # fmt: skip
        if not resume:
            self.resource_version = ""
        await self._pause(at_least_seconds=retry.requested_wait_seconds(error))

    async def _pause(self, *, at_least_seconds: float = 0.0) -> None:
        wait = self._backoff.seconds(self._failures, rng=self._rng)
        self._failures += 1
        await asyncio.sleep(max(wait, at_least_seconds))

    def _handle(self, line: bytes) -> None:
        event = watch_stream.event(line)
        if isinstance(event, watch_stream.Failure):
            raise status_error(event.object, request=f"watch of {self.resource.plural}")
        self._contact()
        self._failures = 0
        if isinstance(event, watch_stream.Bookmark):
            self.resource_version = event.object.metadata.resource_version
        else:
            self._change(event)

    def _change(self, event: watch_stream.Change) -> None:
        found = self._decode(event.object)
        meta = found.metadata
        self.resource_version = meta.resource_version
        if isinstance(event, watch_stream.Deleted):
            self._unreadable.discard(key_of(meta))
            self._drop(meta, last=None if isinstance(found, watch_stream.Unread) else found)
        else:
            self._keep(found)

    def _take(self, page: Sequence[T | watch_stream.Unread]) -> set[str]:
        """Keep the objects of a page; their keys."""
        news = [found for found in page if not isinstance(found, watch_stream.Unread) and self._is_news(found.metadata)]
        try:
            self._on_page(news)
        except Exception as error:  # noqa: BLE001 - each object is delivered by itself too, and costs only itself
            log.warning("%s: a page is handled one by one: %s", self.resource.plural, problem_of(error))
        for found in page:
            self._keep(found)
        return {key_of(found.metadata) for found in page}

    def _is_news(self, meta: ObjectMeta) -> bool:
        known = self._store.get(key_of(meta))
        return known is None or known.metadata.resource_version != meta.resource_version

    def _decode(self, raw: msgspec.Raw) -> T | watch_stream.Unread:
        return watch_stream.read(raw, decoder=self._decoder, path=self.resource.plural)

    def _keep(self, found: T | watch_stream.Unread) -> None:
        if isinstance(found, watch_stream.Unread):
            self._keep_known(found)
        elif self._put(found):
            self._unreadable.discard(key_of(found.metadata))

    def _keep_known(self, found: watch_stream.Unread) -> None:
        # The last known state stays: a pod that can no longer be read still holds its devices.
        meta, key = found.metadata, key_of(found.metadata)
        known = self._store.get(key)
        if known is not None and known.metadata.uid != meta.uid:
            self._drop(known.metadata)
            known = None
        self._unreadable.add(meta, key=key, problem=f"cannot be read: {found.problem}")
        if (assumed := self._stand_in(meta, known)) is not None:
            self._put(assumed)

    def _put(self, new: T) -> bool:
        """Store an object; False if it is stored already, or if `transform` or `on_event` fails."""
        key = key_of(new.metadata)
        old = self._store.get(key)
        if old is not None and old.metadata.uid != new.metadata.uid:
            self._drop(old.metadata)
            old = None
        if old is not None and old.metadata.resource_version == new.metadata.resource_version:
            return False
        try:
            new = self._transform(new)
        except Exception as error:  # noqa: BLE001 - one object costs only itself
            problem = f"cannot be kept: {type(error).__name__}: {problem_of(error)}"
            self._unreadable.add(new.metadata, key=key, problem=problem, error=error)
            return False
        self._store[key] = new
        if old is None:
            return self._deliver("ADDED", found=new)
        if new.metadata.uid not in self._undelivered and not self._matters(old, new):
            return True
        return self._deliver("MODIFIED", found=new)

    def _drop(self, meta: ObjectMeta, *, last: T | None = None) -> None:
        known = self._store.get(key_of(meta))
        if known is not None and known.metadata.uid == meta.uid:
            del self._store[key_of(meta)]
            self._deliver("DELETED", found=last or known)

    def _deliver(self, event: EventType, *, found: T, again: bool = False) -> bool:
        meta = found.metadata
        try:
            self._on_event(event, found)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other objects are served
            problem = f"cannot be handled: {type(error).__name__}: {problem_of(error)}"
            known = self._unreadable.found.get(key_of(meta))
            # What is delivered again is older than the problem of a successor under its name.
            if not (again and known is not None and known.uid != meta.uid):
                self._unreadable.add(meta, key=key_of(meta), problem=problem, error=error)
            self._undelivered[meta.uid] = (event, found)
            return False
        self._undelivered.pop(meta.uid, None)
        return True

    def _deliver_again(self) -> None:
        for event, found in list(self._undelivered.values()):
            if self._deliver(event, found=found, again=True):
                self._unreadable.discard_version(found.metadata, key=key_of(found.metadata))
            successor = self._store.get(key_of(found.metadata))
            # A handler that knows objects by name only has just removed the successor too.
            if event == "DELETED" and successor is not None:
                self._deliver("ADDED", found=successor)
