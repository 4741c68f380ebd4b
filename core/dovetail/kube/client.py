"""Send one request at a time to the API server, typed by a msgspec struct.

Errors are those of `dovetail.kube.errors`. Every call has a deadline that covers all its attempts. A read is retried a
few times when the failure is transient. A write is not retried: after `Unreachable` from a write, read the object to
learn whether the write happened.
"""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Literal, NamedTuple, Self, TypeVar

import msgspec

from dovetail.api.builtin import Pod
from dovetail.api.conversion import values_of
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import PODS, Resource
from dovetail.kube import retry, watch_stream
from dovetail.kube.auth.connection import Connection
from dovetail.kube.errors import TooLarge, Undecodable
from dovetail.kube.page_size import PAGE_BYTES, PageSize
from dovetail.kube.transport import MakeSession, Query, Transport, aiohttp_session
from dovetail.kube.unreadable_objects import OnUnreadable
from dovetail.kube.watch_stream import Page

T = TypeVar("T")
PatchKind = Literal["merge", "json", "strategic"]
Propagation = Literal["Background", "Foreground", "Orphan"]

PAGE_SIZE: Final = 500
_CONTENT_TYPES: Final[dict[PatchKind, str]] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class Listing(NamedTuple, Generic[T]):
    """A list of objects, and the resourceVersion at which the list was consistent."""

    items: list[T]
    resource_version: str


class Client:
    """The API server, reached through one HTTP session.

    Use it as `async with Client(connection) as client`. `guard` runs right before each write is sent; if it raises, the
    write is not sent and the error reaches the caller. `make_session` chooses the HTTP implementation (see
    `transport`). `on_unreadable` receives the objects of lists that cannot be decoded, and the lists omit them. Without
    it, such an object raises `Undecodable`.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str = "dovetail",
        deadline_seconds: float = 30.0,
        backoff: retry.Backoff = retry.BACKOFF,
        rng: random.Random = retry.JITTER,
        guard: Callable[[], None] | None = None,
        on_unreadable: Callable[[Resource, ObjectMeta, str], None] | None = None,
        make_session: MakeSession = aiohttp_session,
    ) -> None:
        self.connection = connection
        self._on_unreadable = on_unreadable
        self._transport = Transport(
            connection,
            user_agent=user_agent,
            deadline_seconds=deadline_seconds,
            backoff=backoff,
            rng=rng,
            guard=guard,
            make_session=make_session,
        )

    async def __aenter__(self) -> Self:
        self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def get(
        self,
        resource: Resource,
        *,
        name: str,
        as_type: type[T],
        namespace: str | None = None,
        subresource: str = "",
        deadline_seconds: float | None = None,
    ) -> T:
        """Get one object. Raises `NotFound`."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return _decode(
            await self._transport.send("GET", path=path, deadline_seconds=deadline_seconds), as_type=as_type, path=path
        )

    async def list(
        self,
        resource: Resource,
        *,
        as_type: type[T],
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page_size: int = PAGE_SIZE,
        on_unreadable: OnUnreadable | None = None,
        deadline_seconds: float | None = None,
    ) -> Listing[T]:
        """List all objects, in all namespaces unless you name one.

        The deadline applies to each page.

        Raises `Undecodable` for an object that cannot be decoded. With `on_unreadable` the object is reported there and
        omitted instead; the client's own callback is the default.
        """
        items: list[T] = []
        resource_version = ""
        async for page in self.pages(
            resource,
            as_type=as_type,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            page_size=page_size,
            on_unreadable=on_unreadable,
            deadline_seconds=deadline_seconds,
        ):
            items += page.items or ()
            resource_version = page.metadata.resource_version
        return Listing(items, resource_version)

    async def pages(
        self,
        resource: Resource,
        *,
        as_type: type[T],
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page_size: int = PAGE_SIZE,
        on_unreadable: OnUnreadable | None = None,
        deadline_seconds: float | None = None,
    ) -> AsyncIterator[Page[T]]:
        """List page by page, so that memory holds the text of one page only.

        Raises `Gone` when the continue token expires before the last page. A page has at most `page_size` objects and
        `PAGE_BYTES` bytes. A page that exceeds `PAGE_BYTES` is abandoned and requested again with fewer objects, which
        a continue token permits.
        """
        path = resource.path(namespace=namespace)
        if on_unreadable is None and self._on_unreadable is not None:
            on_unreadable = partial(self._on_unreadable, resource)
        query, size = selectors(label_selector, field_selector=field_selector), PageSize(page_size)
        while True:
            try:
                payload = await self._transport.send(
                    "GET",
                    path=path,
                    query={**query, "limit": str(size.count)},
                    most_bytes=PAGE_BYTES,
                    deadline_seconds=deadline_seconds,
                )
            except TooLarge:
                if not size.shrink():
                    raise
                continue
            page = watch_stream.page(payload, as_type=as_type, path=path, on_unreadable=on_unreadable)
            size.arrived(objects=len(page.items or ()), size_bytes=len(payload))
            yield page
            if not page.metadata.continue_token:
                return
            query["continue"] = page.metadata.continue_token

    async def create(
        self,
        resource: Resource,
        *,
        body: Any,
        as_type: type[T],
        namespace: str | None = None,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        strict: bool = False,
        deadline_seconds: float | None = None,
    ) -> T:
        """Create an object, or POST to its `subresource` (`token`, `eviction`).

        Raises `AlreadyExists`.

        With `dry_run` the API server validates and admits the object but does not store it. With `strict` the API
        server refuses fields that it does not know; without it, the API server drops them.
        """
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        payload = await self._transport.send(
            "POST",
            path=path,
            query=({"dryRun": "All"} if dry_run else {}) | ({"fieldValidation": "Strict"} if strict else {}),
            body=body if subresource else typed(body, resource=resource),
            deadline_seconds=deadline_seconds,
        )
        return _decode(payload, as_type=as_type, path=path)

    async def update(
        self,
        resource: Resource,
        *,
        name: str,
        body: Any,
        as_type: type[T],
        namespace: str | None = None,
        subresource: str = "",
        deadline_seconds: float | None = None,
    ) -> T:
        """Replace an object or its `status`.

        Raises `Conflict` when its resourceVersion is not the newest.
        """
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        payload = await self._transport.send(
            "PUT", path=path, body=typed(body, resource=resource), deadline_seconds=deadline_seconds
        )
        return _decode(payload, as_type=as_type, path=path)

    async def patch(
        self,
        resource: Resource,
        *,
        name: str,
        patch: Any,
        as_type: type[T],
        kind: PatchKind = "merge",
        namespace: str | None = None,
        subresource: str = "",
        deadline_seconds: float | None = None,
    ) -> T:
        """Change part of an object. Raises `Conflict` when a merge patch has an old resourceVersion."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        payload = await self._transport.send(
            "PATCH", path=path, body=patch, content_type=_CONTENT_TYPES[kind], deadline_seconds=deadline_seconds
        )
        return _decode(payload, as_type=as_type, path=path)

    async def apply(
        self,
        resource: Resource,
        *,
        name: str,
        body: Any,
        as_type: type[T],
        field_manager: str,
        force: bool = False,
        namespace: str | None = None,
        subresource: str = "",
        deadline_seconds: float | None = None,
    ) -> T:
        """Apply an object server-side: `field_manager` becomes the owner of the fields of `body`.

        Raises `Conflict` for a field that another manager owns, unless `force` is set.
        """
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        payload = await self._transport.send(
            "PATCH",
            path=path,
            query={"fieldManager": field_manager, "force": "true" if force else "false"},
            body=typed(body, resource=resource),
            # JSON is valid YAML, and older API servers accept only this content type for apply.
            content_type="application/apply-patch+yaml",
            deadline_seconds=deadline_seconds,
        )
        return _decode(payload, as_type=as_type, path=path)

    async def delete(
        self,
        resource: Resource,
        *,
        name: str,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation = "Background",
        grace_period_seconds: int | None = None,
        deadline_seconds: float | None = None,
    ) -> None:
        """Delete an object.

        `uid` and `resource_version` are preconditions: with `uid` only that object is deleted and not a successor with
        its name, with `resource_version` only that version. Raises `Conflict` when a precondition fails, and
        `NotFound`.
        """
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if wanted := {name: value for name, value in preconditions.items() if value is not None}:
            options["preconditions"] = wanted
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        path = resource.path(namespace=namespace, name=name)
        await self._transport.send("DELETE", path=path, body=options, deadline_seconds=deadline_seconds)

    async def log(
        self,
        pod: str,
        *,
        namespace: str,
        container: str | None = None,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
        deadline_seconds: float | None = None,
    ) -> bytes:
        """Get the last lines of a container's log; of these the first `limit_bytes` bytes.

        Raises `NotFound`, and any `StatusError` that the kubelet answers with.
        """
        path = PODS.path(namespace=namespace, name=pod, subresource="log")
        return await self._transport.send(
            "GET",
            path=path,
            query=_log_query(container, tail_lines=tail_lines, limit_bytes=limit_bytes),
            deadline_seconds=deadline_seconds,
        )

    @asynccontextmanager
    async def follow_log(
        self,
        pod: str,
        *,
        namespace: str,
        container: str | None = None,
        tail_lines: int | None = None,
        follow: bool = True,
        timestamps: bool = False,
        since: str | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream the same log in chunks as the container writes it, until the container ends.

        Without `follow`, stream what it has written until now. With `timestamps`, a kubelet begins each line with its
        time and a blank; with `since` (RFC 3339), it sends only lines from that second on.
        """
        path = PODS.path(namespace=namespace, name=pod, subresource="log")
        query = {
            **_log_query(container, tail_lines=tail_lines, since=since),
            "follow": "true" if follow else "false",
            **({"timestamps": "true"} if timestamps else {}),
        }
        async with self._transport.stream(path, query=query, silence_seconds=None) as chunks:
            yield chunks

    async def bind(self, pod: Pod, *, node: str, annotations: Mapping[str, str], deadline_seconds: float) -> None:
        """Bind a pod to a node.

        The API server merges the annotations into the pod in the same transaction.

        The pod's UID is a precondition. Raises `Conflict` when the pod is already bound or has been replaced. Raises
        `DeadlineExceeded` when the outcome is unknown: the API server stops at the same deadline, but may have bound
        before.
        """
        meta = pod.metadata
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "annotations": dict(annotations),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }  # fmt: skip
        await self._transport.send(
            "POST",
            path=PODS.path(namespace=meta.namespace, name=meta.name, subresource="binding"),
            query={"timeout": f"{max(1, round(deadline_seconds * 1000))}ms"},
            body=binding,
            deadline_seconds=deadline_seconds,
        )

    @asynccontextmanager
    async def stream(
        self, resource: Resource, *, query: Query, silence_seconds: float, namespace: str | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream the body of a long GET, such as a watch, in chunks as they arrive. One attempt.

        Raises `Unreachable` when the connection breaks, and when no data arrives for `silence_seconds`.
        """
        path = resource.path(namespace=namespace)
        async with self._transport.stream(path, query=query, silence_seconds=silence_seconds) as chunks:
            yield chunks


def selectors(label_selector: str | None, *, field_selector: str | None) -> dict[str, str]:
    """Both selectors as query parameters, without those that are None."""
    both = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in both.items() if value is not None}


def _log_query(
    container: str | None, *, tail_lines: int | None, limit_bytes: int | None = None, since: str | None = None
) -> dict[str, str]:
    asked = {"container": container, "tailLines": tail_lines, "limitBytes": limit_bytes, "sinceTime": since}
    return {name: str(value) for name, value in asked.items() if value is not None}


def typed(body: Any, *, resource: Resource) -> dict[str, Any]:
    """The object as JSON values with apiVersion and kind, which structs omit as defaults."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **values_of(body)}


def _decode(payload: bytes, *, as_type: type[T], path: str) -> T:
    found = watch_stream.read(msgspec.Raw(payload), decoder=watch_stream.decoder(as_type), path=path)
    if isinstance(found, watch_stream.Unread):
        raise Undecodable(path, problem=found.problem)
    return found
