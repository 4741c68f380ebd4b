"""One request at a time to the API server, typed by a msgspec struct.

Errors are those of `dovetail.kube.errors`. Every call has a deadline over all its attempts; reads are repeated a few
times when the trouble is a passing one, writes are not: whoever gets `Unreachable` from a write must look again.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Final, Generic, Literal, NamedTuple, Self, TypeVar

import aiohttp
import msgspec

from dovetail.kube import retry
from dovetail.kube.connection import Connection
from dovetail.kube.errors import (
    DeadlineExceeded,
    KubeError,
    Status,
    StatusError,
    Unauthorized,
    Undecodable,
    Unreachable,
    status_error,
)
from dovetail.kube.objects import Pod
from dovetail.kube.resources import PODS, Resource
from dovetail.kube.token import BearerToken

T = TypeVar("T")
PatchKind = Literal["merge", "json", "strategic"]
Propagation = Literal["Background", "Foreground", "Orphan"]
Query = Mapping[str, str]

PAGE_SIZE: Final = 500
_CONTENT_TYPES: Final[dict[PatchKind, str]] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_CONNECT_SECONDS: Final = 10.0
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


class Listing(NamedTuple, Generic[T]):
    """Objects and the resourceVersion that the list is of."""

    items: list[T]
    resource_version: str


class ListMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The metadata of a list; `continue_token` asks for the next page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a list."""

    metadata: ListMeta
    items: list[T] | None = None


class Client:
    """The API server through one HTTP session: use it as `async with Client(connection) as client`."""

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str = "dovetail",
        deadline_seconds: float = 30.0,
        backoff: retry.Backoff = retry.BACKOFF,
        rng: random.Random | None = None,
    ) -> None:
        self.connection = connection
        self._user_agent = user_agent
        self._deadline_seconds = deadline_seconds
        self._backoff = backoff
        self._rng = rng or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._token = BearerToken(connection)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        tls = self.connection.ssl_context()
        self._session = aiohttp.ClientSession(
            # Watches take a connection each, so the limit is above aiohttp's.
            connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True, limit=256),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            # The API server compresses at the cost of its CPU and ours; inside a cluster bytes are cheaper.
            headers={"User-Agent": self._user_agent, "Accept": "application/json", "Accept-Encoding": "identity"},
            proxy=self.connection.proxy_url,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        as_type: type[T],
        namespace: str | None = None,
        subresource: str = "",
        deadline_seconds: float | None = None,
    ) -> T:
        """One object. Raises `NotFound`."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return _decode(await self._send("GET", path, deadline_seconds=deadline_seconds), as_type=as_type, path=path)

    async def list(
        self,
        resource: Resource,
        *,
        as_type: type[T],
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        deadline_seconds: float | None = None,
    ) -> Listing[T]:
        """All objects, of all namespaces unless one is named. The deadline is for each page."""
        items: list[T] = []
        resource_version = ""
        async for page in self.pages(
            resource,
            as_type=as_type,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
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
        deadline_seconds: float | None = None,
    ) -> AsyncIterator[Page[T]]:
        """The same list page by page, so that only one page's text is held. Raises `Gone` when it took too long."""
        path = resource.path(namespace=namespace)
        query = {"limit": str(page_size), **selectors(label_selector, field_selector)}
        while True:
            payload = await self._send("GET", path, query=query, deadline_seconds=deadline_seconds)
            page = _decode_page(payload, as_type=as_type, path=path)
            yield page
            if not page.metadata.continue_token:
                return
            query["continue"] = page.metadata.continue_token

    async def create(
        self,
        resource: Resource,
        body: Any,
        *,
        as_type: type[T],
        namespace: str | None = None,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        deadline_seconds: float | None = None,
    ) -> T:
        """Create an object, or POST to one by `name` and `subresource` (`token`, `eviction`). Raises `AlreadyExists`.

        A dry run goes through validation and admission and stores nothing.
        """
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        payload = await self._send(
            "POST",
            path,
            query={"dryRun": "All"} if dry_run else {},
            body=body if subresource else typed(body, resource=resource),
            deadline_seconds=deadline_seconds,
        )
        return _decode(payload, as_type=as_type, path=path)

    async def update(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        as_type: type[T],
        namespace: str | None = None,
        subresource: str = "",
        deadline_seconds: float | None = None,
    ) -> T:
        """Replace an object (or its `status`). Raises `Conflict` when its resourceVersion is no longer the newest."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        payload = await self._send("PUT", path, body=typed(body, resource=resource), deadline_seconds=deadline_seconds)
        return _decode(payload, as_type=as_type, path=path)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        as_type: type[T],
        kind: PatchKind = "merge",
        namespace: str | None = None,
        subresource: str = "",
        deadline_seconds: float | None = None,
    ) -> T:
        """Change a part of an object. A resourceVersion in a merge patch is a precondition (`Conflict`)."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        payload = await self._send(
            "PATCH", path, body=patch, content_type=_CONTENT_TYPES[kind], deadline_seconds=deadline_seconds
        )
        return _decode(payload, as_type=as_type, path=path)

    async def apply(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        as_type: type[T],
        field_manager: str,
        force: bool = False,
        namespace: str | None = None,
        subresource: str = "",
        deadline_seconds: float | None = None,
    ) -> T:
        """Server-side apply: the fields of `body` become ours. Raises `Conflict` for another's field unless forced."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        payload = await self._send(
            "PATCH",
            path,
            query={"fieldManager": field_manager, "force": "true" if force else "false"},
            body=typed(body, resource=resource),
            # JSON is YAML, and older API servers know apply by this type only.
            content_type="application/apply-patch+yaml",
            deadline_seconds=deadline_seconds,
        )
        return _decode(payload, as_type=as_type, path=path)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        propagation: Propagation = "Background",
        grace_period_seconds: int | None = None,
        deadline_seconds: float | None = None,
    ) -> None:
        """Delete an object, with `uid` only that very one (`Conflict` otherwise). Raises `NotFound`."""
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        path = resource.path(namespace=namespace, name=name)
        await self._send("DELETE", path, body=options, deadline_seconds=deadline_seconds)

    async def bind(self, pod: Pod, *, node: str, annotations: Mapping[str, str], deadline_seconds: float) -> None:
        """Bind a pod to a node; the API server merges the annotations into the pod in the same transaction.

        The pod's UID is a precondition. Raises `Conflict` when the pod is bound already or is another one by now,
        `DeadlineExceeded` when nobody knows: the API server gives up at the same time, but may have bound before.
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
        await self._send(
            "POST",
            PODS.path(namespace=meta.namespace, name=meta.name, subresource="binding"),
            query={"timeout": f"{max(1, round(deadline_seconds * 1000))}ms"},
            body=binding,
            deadline_seconds=deadline_seconds,
        )

    @asynccontextmanager
    async def stream(
        self, resource: Resource, *, query: Query, silence_seconds: float, namespace: str | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of a long GET, such as a watch, in chunks as they arrive. One attempt.

        Raises `Unreachable` when it breaks, and when nothing comes for `silence_seconds`.
        """
        path = resource.path(namespace=namespace)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence_seconds)
        async with self._open("GET", path, query=query, timeout=timeout) as response:
            yield self._chunks(response)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str = "application/json",
        deadline_seconds: float | None,
    ) -> bytes:
        seconds = self._deadline_seconds if deadline_seconds is None else deadline_seconds
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with asyncio.timeout(seconds):
                return await self._attempts(method, path, query=query or {}, data=data, content_type=content_type)
        except TimeoutError as error:
            raise DeadlineExceeded(self.connection.server, deadline_seconds=seconds) from error

    async def _attempts(self, method: str, path: str, *, query: Query, data: bytes | None, content_type: str) -> bytes:
        for attempt in range(retry.MAX_ATTEMPTS):
            try:
                async with self._open(method, path, query=query, data=data, content_type=content_type) as response:
                    with self._reaching():
                        return await response.read()
            except KubeError as error:
                if not retry.may_retry(error, method=method, attempt=attempt):
                    raise
                if isinstance(error, Unauthorized):
                    self._token.forget()
                wait = max(self._backoff.seconds(attempt, rng=self._rng), retry.requested_wait_seconds(error))
            await asyncio.sleep(wait)
        raise AssertionError("may_retry ends the attempts")

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        *,
        query: Query,
        data: bytes | None = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,  # noqa: ASYNC109 - aiohttp's own, by phase
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None, "use the client in `async with`"
        headers = {"Content-Type": content_type} if data is not None else {}
        if token := await self._token.get():
            headers["Authorization"] = f"Bearer {token}"
        options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        with self._reaching():
            response = await self._session.request(
                method,
                self.connection.server + path,
                params=query,
                data=data,
                headers=headers,
                server_hostname=self.connection.tls_server_name,
                **options,
            )
        async with response:
            if response.status >= 400:
                with self._reaching():
                    payload = await response.read()
                raise _refusal(response, payload=payload, request=f"{method} {path}")
            yield response

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        with self._reaching():
            async for chunk in response.content.iter_any():
                yield chunk

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except (aiohttp.ClientError, ConnectionError) as error:
            raise Unreachable(self.connection.server, problem=_problem(error)) from error


def selectors(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    """Both selectors as query parameters; those that are None are left out."""
    both = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in both.items() if value is not None}


def typed(body: Any, *, resource: Resource) -> dict[str, Any]:
    """The object as JSON values with its apiVersion and kind, which structs leave out when they are the default."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **msgspec.to_builtins(body)}


def decoder(shape: type[T]) -> msgspec.json.Decoder[T]:
    """A decoder for that type, made once."""
    found = _decoders.get(shape)
    if found is None:
        found = _decoders[shape] = msgspec.json.Decoder(shape)
    return found


def _decode(payload: bytes, *, as_type: type[T], path: str) -> T:
    try:
        return decoder(as_type).decode(payload)
    except msgspec.MsgspecError as error:
        raise Undecodable(path, problem=str(error)) from error


def _decode_page(payload: bytes, *, as_type: type[T], path: str) -> Page[T]:
    page: Page[T] = _decode(payload, as_type=Page[as_type], path=path)  # type: ignore[valid-type]
    return page


def _problem(error: Exception) -> str:
    """What went wrong in few words: aiohttp repeats host and port."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return os.strerror(number) if number and number > 0 else str(error.os_error)
    return str(error) or type(error).__name__


def _refusal(response: aiohttp.ClientResponse, *, payload: bytes, request: str) -> StatusError:
    try:
        status = decoder(Status).decode(payload)
    except msgspec.MsgspecError:
        # A proxy's page, or a filter that answers in plain text.
        status = Status(message=payload[:300].decode(errors="replace").strip())
    status = msgspec.structs.replace(status, code=response.status)
    asked = response.headers.get("Retry-After", "")
    return status_error(status, request=request, retry_after_seconds=float(asked) if asked.isdigit() else None)
