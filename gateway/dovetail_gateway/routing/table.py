"""Routes as values: what is served where, with which types, answers and right."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec
from aiohttp import web

from dovetail_gateway.access.callers import Caller
from dovetail_gateway.access.identities import Identity
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.routing.problems import PROBLEM, ErrorShape

Method = Literal["GET", "POST", "PATCH", "DELETE"]
P = TypeVar("P", bound=msgspec.Struct)
Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B")


class Nothing(msgspec.Struct, frozen=True):
    """No parameters; unknown ones are ignored."""


class Strictly(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No parameters; unknown ones are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """What a caller must be allowed to do.

    `by` says who decides: `reviews` before the handler runs, from SelfSubjectAccessReviews; `API server` when the
    handler sends the request with the caller's token; `token` lets every token pass; `none` needs no token.
    """

    by: Literal["reviews", "API server", "token", "none"]
    verb: str = ""
    resource: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}".strip() or {"token": "a token"}.get(self.by, self.by)


OPEN: Final = Right(by="none")
TOKEN: Final = Right(by="token")
READ: Final = Right(by="reviews", verb="list", resource="gpujobs.dovetail.dev")


def acts(verb: str, *, resource: str = "gpujobs.dovetail.dev") -> Right:
    """A right that the API server checks when it gets the caller's request."""
    return Right(by="API server", verb=verb, resource=resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[P, Q, B]):
    """One request, decoded.

    `caller` is the credential, `who` is whose it is. `sees` is what the caller may see; everything hidden for a right
    that is not READ.
    """

    path: P
    query: Q
    body: B
    caller: Caller
    who: Identity
    sees: Visibility
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A status and a value of the type that the route declares for it; `encoded` is a value that is JSON already.

    `tag` names the content of a tagged route's answer; without one, the answer's digest does. `gzipped` says that
    `encoded` is compressed.
    """

    status: int = 200
    value: Any = None
    encoded: bytes | None = None
    tag: str = ""
    gzipped: bool = False


class Stream(Protocol):
    """A handler that writes its answer itself."""

    async def __call__(self, request: web.Request, *, call: Call[Any, Any, Any]) -> web.StreamResponse:
        """Write the answer. Raises `RequestFailedError` and `KubeError` before the first byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A request header that the route reads."""

    name: str
    description: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation. It has a handler, or a stream that writes its answer of status 200 as `media_type` itself."""

    method: Method
    path: str
    operation: str
    summary: str
    tag: str
    right: Right
    answers: Mapping[int, Any]
    handler: Callable[[Call[Any, Any, Any]], Awaitable[Answer]] | None = None
    path_type: type[msgspec.Struct] = Nothing
    query_type: type[msgspec.Struct] = Strictly
    body_type: Any = None
    headers: tuple[Header, ...] = ()
    errors: ErrorShape = PROBLEM
    synced: bool = True
    # Whether answers have an ETag, and an If-None-Match with it gets a 304.
    tagged: bool = False
    stream: Stream | None = None
    media_type: str = "application/json"


def route(
    method: Method,
    path: str,
    handler: Callable[[Call[P, Q, B]], Awaitable[Answer]],
    *,
    summary: str,
    tag: str,
    right: Right,
    answers: Mapping[int, Any],
    path_type: type[P],
    query_type: type[Q],
    body_type: type[B] | None = None,
    headers: tuple[Header, ...] = (),
    errors: ErrorShape = PROBLEM,
    synced: bool = True,
    tagged: bool = False,
) -> Route:
    """A route whose handler takes exactly these types; the handler's name is the operation's."""
    return Route(
        method=method,
        path=path,
        operation=f"{tag}_{handler.__name__}",
        summary=summary,
        tag=tag,
        right=right,
        answers=answers,
        handler=handler,
        path_type=path_type,
        query_type=query_type,
        body_type=body_type,
        headers=headers,
        errors=errors,
        synced=synced,
        tagged=tagged,
    )
