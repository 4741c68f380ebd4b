"""The aiohttp application of a route table: limits, caller, decoding, right, handler, answer."""

import asyncio
import hashlib
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web

from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import Sentence
from dovetail.decoding import Decoder, UnreadableError, convert
from dovetail.kube.errors import KubeError
from dovetail.logs import get_logger
from dovetail.process.bodies import Bodies, BodyError
from dovetail.process.connections import Connections
from dovetail.process.hosts import Hosts
from dovetail_gateway.access import loopback_peer
from dovetail_gateway.access.callers import ANONYMOUS, LOCAL, Caller, caller_of
from dovetail_gateway.access.fair_queue import CrowdedError, FairQueue
from dovetail_gateway.access.identities import NO_ONE, Identities, Identity
from dovetail_gateway.access.legacy_account import LegacyAccount
from dovetail_gateway.access.limits import Addresses, RateLimit
from dovetail_gateway.access.tokens import TokenError, bearer
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.metrics import Metrics
from dovetail_gateway.oidc.renewal import RenewedSessions
from dovetail_gateway.routing.browser import check_site, session_caller, session_of
from dovetail_gateway.routing.numbers import decode_request
from dovetail_gateway.routing.problems import PROBLEM, ErrorShape, RequestFailedError, of_kube, too_many, unauthorized
from dovetail_gateway.routing.table import Answer, Call, Header, Route, Stream

log = get_logger("dovetail.gateway")

# An object in etcd has at most 1.5 MiB.
MAX_BODY_BYTES: Final = 2 << 20
# Bearer tokens of identity providers can be large.
HEADER_BYTES: Final = 32 << 10
_BODIES_BYTES: Final = 32 << 20
_BODY_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 30.0
_REFUSED_SECONDS: Final = (0.5, 1.5)
# How many requests are let in within one turn of the event loop: of one user one, so that a user who sends a hundred at
# once delays the next request of another by one of them.
_ENTRIES: Final = 4
_MOST_WAITING: Final = 1024
_NOTHING_SEEN: Final = Visibility(frozenset())
_ENCODER: Final = msgspec.json.Encoder()
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})


class Sight(Protocol):
    """What the server needs of the cluster's cache: whether it is complete, and what a caller sees of it."""

    @property
    def obstacle(self) -> str:
        """Why no answer is possible yet; empty when the cache is complete."""

    async def seen_by(self, caller: Caller, *, named: Sequence[str] = ()) -> Visibility:
        """What the caller may see, with the namespaces that the request has named. Raises `KubeError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Who gets in: names of the gateway, rates, sessions of browsers, and who may come without a token."""

    hosts: Hosts
    addresses: Addresses
    rates: RateLimit
    identities: Identities
    sessions: RenewedSessions
    legacy: LegacyAccount | None = None
    # Whether `legacy` is for processes of the gateway's own user alone.
    legacy_own_user: bool = False
    # Whether requests of the gateway's own user from this machine without a token have the rights of its kubeconfig.
    anonymous_loopback: bool = False


class Server:
    """Serves routes. `connections` gets the deadlines of each connection."""

    def __init__(
        self,
        *,
        sight: Sight,
        admission: Admission,
        metrics: Metrics,
        connections: Connections,
    ) -> None:
        self._sight = sight
        self._admission = admission
        self._metrics = metrics
        self._connections = connections
        self._entry = FairQueue(at_once=_ENTRIES, most_of_one=1, most_waiting=_MOST_WAITING)
        self._rng = random.Random()  # noqa: S311 - spreads refusals, guards nothing
        self._bodies = Bodies(most_bytes=MAX_BODY_BYTES, memory=_BODIES_BYTES, seconds=_BODY_SECONDS)

    def application(self, routes: Sequence[Route]) -> web.Application:
        """The application with all routes. What no route serves is a problem too."""
        app = web.Application(middlewares=[self._around], client_max_size=MAX_BODY_BYTES)
        for each in routes:
            handler = self._handler(each) if each.stream is None else self._streaming(each, stream=each.stream)
            # GET serves HEAD too, but for a stream.
            if each.method == "GET" and each.stream is None:
                app.router.add_get(each.path, handler)
            else:
                app.router.add_route(each.method, each.path, handler)
        return app

    @property
    def _around(self) -> Any:
        @web.middleware
        async def around(
            request: web.Request, *, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            shape: ErrorShape = getattr(request.match_info.handler, "errors", PROBLEM)
            started = time.perf_counter()
            status = 500
            with self._connections.answering(request):
                try:
                    await self._admit(request)
                    response = await handler(request)
                except RequestFailedError as error:
                    response = _failed(error, shape=shape)
                except KubeError as error:
                    response = _failed(of_kube(error), shape=shape)
                except CrowdedError as error:
                    response = _failed(too_many(error.sentence, wait_seconds=error.wait_seconds), shape=shape)
                except BodyError as error:
                    response = _failed(
                        RequestFailedError(error.status, reason="Body", sentence=error.sentence), shape=shape
                    )
                    response.force_close()
                except web.HTTPRedirection:
                    raise
                except web.HTTPException as error:
                    response = _failed(_of_router(error), shape=shape)
                except Exception:
                    log.exception("a request failed", method=request.method, route=_name(request))
                    response = _failed(
                        RequestFailedError(500, reason="Internal", sentence=says.GATEWAY_FAILED()),
                        shape=shape,
                    )
                status = response.status
                self._metrics.observe(_name(request), status=status, seconds=time.perf_counter() - started)
                return response

        return around

    async def _admit(self, request: web.Request) -> None:
        """Raise `RequestFailedError` for a request of a wrong host, or one that is too many."""
        if not self._admission.hosts.admits(request.headers.get("Host", "")):
            raise RequestFailedError(421, reason="Host", sentence=says.WRONG_HOST())
        known, address = self._known(request), self.address(request)
        async with self._entry.slot(f"address {address}" if known is None else known.username):
            # For one turn of the event loop, in which what has come meanwhile takes its place in the queue.
            await asyncio.sleep(0)
        rates = self._admission.rates
        wait = rates.wait_of_address(address) if known is None else rates.wait_of_user(known.username)
        if wait:
            # One that asks again at once on each of its connections gets as many refusals a second as it has of these,
            # and not all of them at one moment.
            await asyncio.sleep(self._rng.uniform(*_REFUSED_SECONDS))
            raise too_many(says.TOO_MANY_REQUESTS(), wait_seconds=wait)
        if known is not None:
            self._own(request, who=known)

    def _own(self, request: web.Request, *, who: Identity) -> None:
        """Count the connection for the user. Raises `RequestFailedError` if that is one too many."""
        if not self._connections.belong(request, user=who.username):
            raise too_many(says.TOO_MANY_CONNECTIONS(user=who.username), wait_seconds=1.0, closes=True)

    def address(self, request: web.Request) -> str:
        """Where the request comes from, also behind a trusted proxy."""
        forwarded = request.headers.getall("X-Forwarded-For", [])
        return self._admission.addresses.client(request.remote or "", forwarded=forwarded)

    def _known(self, request: web.Request) -> Identity | None:
        """Whose request it is, if that is known without asking anyone: such requests do not count for an address."""
        header, caller = request.headers.get("Authorization"), None
        if header is None:
            caller = self._admission.sessions.holder_of(session_of(request))
        else:
            with suppress(TokenError):
                caller = caller_of(bearer(header))
        return None if caller is None else self._admission.identities.known(caller)

    def _handler(self, each: Route) -> Callable[[web.Request], Awaitable[web.Response]]:
        handler, decoder = each.handler, None if each.body_type is None else Decoder(each.body_type)
        assert handler is not None, "only streams have no handler"

        async def answer_to(request: web.Request) -> Answer:
            caller, who = await self._identified(request, route=each)
            path = _decoded(request.match_info, as_type=each.path_type)
            query = _decoded(_query(request), as_type=each.query_type)
            _check_headers(request, headers=each.headers)
            async with self._bodies.read(request) as read:
                body = None if decoder is None else _body(request, body=read, decoder=decoder, as_type=each.body_type)
                sees = await self._seen(caller, route=each, named=_namespaces_in(path, query, body))
                call = Call(
                    path=path, query=query, body=body, caller=caller, who=who, sees=sees, headers=request.headers
                )
                return await handler(call)

        async def serve(request: web.Request) -> web.Response:
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    answer = await answer_to(request)
            except TimeoutError as error:
                late = says.NO_ANSWER_IN_TIME(seconds=_ANSWER_SECONDS)
                raise RequestFailedError(504, reason="Timeout", sentence=late) from error
            return _response(answer, route=each, known=request.headers.get("If-None-Match", ""))

        serve.errors = each.errors  # type: ignore[attr-defined]  # the middleware reads it, also before the handler runs
        return serve

    def _streaming(self, each: Route, *, stream: Stream) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            caller, who = await self._identified(request, route=each)
            path = _decoded(request.match_info, as_type=each.path_type)
            query = _decoded(_query(request), as_type=each.query_type)
            _check_headers(request, headers=each.headers)
            sees = await self._seen(caller, route=each, named=_namespaces_in(path, query))
            call = Call(path=path, query=query, body=None, caller=caller, who=who, sees=sees, headers=request.headers)
            return await stream(request, call=call)

        serve.errors = each.errors  # type: ignore[attr-defined]  # the middleware reads it, also before the handler runs
        return serve

    async def _identified(self, request: web.Request, *, route: Route) -> tuple[Caller, Identity]:
        """The caller, and whose credential it is. Raises `RequestFailedError`, `KubeError` and `CrowdedError`."""
        caller = ANONYMOUS if route.right.by == "none" else await self._caller(request, route=route)
        if route.synced and (obstacle := self._sight.obstacle):
            sentence = says.NOT_READY(obstacle=obstacle)
            raise RequestFailedError(503, reason="NotSynced", sentence=sentence, headers={"Retry-After": "1"})
        if caller is ANONYMOUS:
            return caller, NO_ONE
        who = await self._admission.identities.of(caller, address=self.address(request))
        self._own(request, who=who)
        return caller, who

    async def _seen(self, caller: Caller, *, route: Route, named: Sequence[str]) -> Visibility:
        """What the caller sees. Raises `RequestFailedError` without the route's right."""
        if route.right.by != "reviews":
            return _NOTHING_SEEN
        sees = await self._sight.seen_by(caller, named=named)
        if not sees.everything and not sees.namespaces:
            sentence = says.MAY_NOT(verb=route.right.verb, resource=route.right.resource) + says.IN_NO_NAMESPACE()
            raise RequestFailedError(403, reason="Forbidden", sentence=sentence)
        return sees

    async def _caller(self, request: web.Request, *, route: Route) -> Caller:
        if header := request.headers.get("Authorization"):
            try:
                caller = caller_of(bearer(header))
            except TokenError as error:
                raise unauthorized(error.sentence) from error
            if caller.expires_at is not None and caller.expires_at <= time.time():
                raise unauthorized(says.TOKEN_EXPIRED())
            return caller
        if (found := await session_caller(request, sessions=self._admission.sessions)) is not None:
            return found
        if self._admission.anonymous_loopback and self.address(request) in _LOOPBACK and not _from_a_page(request):
            # Other users of the machine reach this port too.
            if not _from_own_user(request):
                raise unauthorized(says.OWN_USER_ALONE())
            return LOCAL
        if self._admission.legacy is not None and not route.path.startswith("/api/v3/"):
            check_site(request)
            if self._admission.legacy_own_user and not _from_own_user(request):
                raise unauthorized(says.OWN_USER_ALONE())
            return caller_of(await self._admission.legacy.token())
        raise unauthorized(says.NO_TOKEN())


def _from_own_user(request: web.Request) -> bool:
    transport = request.transport
    if transport is None:
        return False
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    return loopback_peer.uid_of(peer, own=own) == os.geteuid()


def _namespaces_in(*parts: Any) -> list[str]:
    """The namespaces that a request names."""
    named = [getattr(part, "namespace", None) for part in parts]
    named += [each for part in parts for each in getattr(part, "namespaces", ())]
    return [each for each in named if isinstance(each, str) and each]


def _from_a_page(request: web.Request) -> bool:
    """Whether a browser sent the request for a page, which must not use the rights of the local user."""
    return "Origin" in request.headers or request.headers.get("Sec-Fetch-Site", "none") != "none"


def _query(request: web.Request) -> dict[str, str]:
    query = request.query
    if len(query) != len(set(query)):
        twice = next(name for name in query if len(query.getall(name)) > 1)
        raise RequestFailedError(400, reason="Invalid", sentence=says.PARAMETER_TWICE(parameter=twice))
    if empty := next((name for name, value in query.items() if value.lower() == "null"), None):
        raise RequestFailedError(422, reason="Invalid", sentence=says.PARAMETER_NULL(parameter=empty))
    return dict(query)


def _check_headers(request: web.Request, *, headers: Sequence[Header]) -> None:
    """Raise `RequestFailedError` for a header that does not match its pattern."""
    for header in headers:
        if (value := request.headers.get(header.name)) is not None and not re.fullmatch(header.pattern, value):
            sentence = says.WRONG_HEADER(header=header.name, value=value[:64], pattern=header.pattern)
            raise RequestFailedError(422, reason="Invalid", sentence=sentence)


def _decoded(values: Any, *, as_type: type[msgspec.Struct]) -> Any:
    try:
        return convert(dict(values), as_type=as_type, strict=False)
    except UnreadableError as error:
        raise RequestFailedError(422, reason="Invalid", sentence=_unreadable(error)) from error


def _body(request: web.Request, *, body: bytearray, decoder: Decoder[Any], as_type: Any) -> Any:
    if request.content_type != "application/json":
        sentence = says.WRONG_CONTENT_TYPE(content_type=request.content_type)
        raise RequestFailedError(415, reason="ContentType", sentence=sentence)
    try:
        return decode_request(bytes(body), as_type=as_type, decoder=decoder)
    except UnreadableError as error:
        is_json = isinstance(error.__cause__, msgspec.ValidationError)
        raise RequestFailedError(422 if is_json else 400, reason="Invalid", sentence=_unreadable(error)) from error


def _unreadable(error: UnreadableError) -> Sentence:
    return says.REQUEST_UNREADABLE(problem=error.problem)


def _response(answer: Answer, *, route: Route, known: str) -> web.Response:
    """The answer as it is sent; one with a tag that the caller knows is 304 without a body."""
    assert answer.status in route.answers, f"{route.operation} declares no answer {answer.status}"
    declared = route.answers[answer.status]
    is_error = declared is route.errors.as_type
    body = answer.encoded if answer.encoded is not None else _ENCODER.encode(answer.value)
    headers = dict(_HEADERS)
    if answer.gzipped:
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    if route.tagged and answer.status == 200:
        tag = f'W/"{answer.tag or hashlib.blake2s(body, digest_size=12).hexdigest()}"'
        headers["ETag"] = tag
        if tag.removeprefix("W/") in {each.strip().removeprefix("W/") for each in known.split(",")}:
            return web.Response(status=304, headers=headers)
    return web.Response(
        body=body,
        status=answer.status,
        content_type=route.errors.content_type if is_error else "application/json",
        headers=headers,
    )


def _failed(error: RequestFailedError, *, shape: ErrorShape) -> web.Response:
    response = web.Response(
        body=_ENCODER.encode(shape.write(error)),
        status=error.status,
        content_type=shape.content_type,
        headers={**_HEADERS, **error.headers},
    )
    if error.closes:
        response.force_close()
    return response


def refuse(status: int, *, sentence: str) -> web.Response:
    """The answer to what is no HTTP request."""
    return _failed(
        RequestFailedError(status, reason="Unreadable", sentence=says.NO_HTTP(problem=sentence)), shape=PROBLEM
    )


def _of_router(error: web.HTTPException) -> RequestFailedError:
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
    sentences = {404: says.NO_SUCH_PATH, 405: says.OTHER_METHODS}
    known = sentences.get(error.status)
    sentence = says.NO_HTTP(problem=error.reason or "refused") if known is None else known()
    return RequestFailedError(
        error.status, reason=(error.reason or "").replace(" ", ""), sentence=sentence, headers=headers
    )


def _name(request: web.Request) -> str:
    """The route's own path, so that metrics have few labels."""
    resource = request.match_info.route.resource
    return "none" if resource is None else resource.canonical
