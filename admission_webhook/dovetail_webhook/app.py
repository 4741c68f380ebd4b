"""The webhook over HTTP: `POST /mutate`, `POST /translate` and `POST /convert` answer every review, readable or not."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from dovetail import logs
from dovetail.process.bodies import Bodies, BodyError
from dovetail.process.connections import Connections
from dovetail_webhook import admission_review, converter
from dovetail_webhook.admission_review import ReviewError
from dovetail_webhook.answer import Answer, Answerer
from dovetail_webhook.handler import MAX_MEMORY, Reviewer, too_heavy
from dovetail_webhook.metrics import Metrics
from dovetail_webhook.slots import Slots
from dovetail_webhook.weight import memory_of

AT_ONCE: Final = 4
_CONVERT: Final = "/convert"
# The API server waits 5 s (`timeoutSeconds`). It discards a later answer together with its reason.
_BODY_SECONDS: Final = 3.0
_ANSWER_SECONDS: Final = 4.0
_SEND_SECONDS: Final = 5.0
# With 60 MiB for the program, the sum stays below the chart's limit of 384Mi. docs/performance.md has the figures.
# An object in etcd is smaller than 1.5 MiB, and the review of an update contains two.
MAX_BODY_BYTES: Final = 3_584 << 10
# The API server converts a list in one review: 12 MiB are more than 5,000 quotas with one use each.
MAX_CONVERSION_BYTES: Final = 12 << 20
_BODIES_BYTES: Final = 28 << 20
_REVIEWS_BYTES: Final = max(MAX_MEMORY, converter.MAX_MEMORY)
log = logs.get_logger("dovetail.webhook")


def application(
    reviewer: Reviewer,
    *,
    metrics: Metrics,
    connections: Connections | None = None,
    seconds: float = _ANSWER_SECONDS,
    only_known: bool = False,
) -> web.Application:
    """The application that serves `/mutate` and `/translate` with this reviewer, and `/convert`.

    `seconds` bounds the time from a request's headers to its answer. With `only_known`, a client without a certificate
    gets no review. It may convert, because API servers show no certificate for that: the answer is a function of the
    request alone.
    """
    served = Connections() if connections is None else connections
    desk = _Desk(metrics=metrics, connections=served, seconds=seconds)
    app = web.Application(middlewares=[_known_clients()] if only_known else [])
    app.add_routes(
        [
            web.post("/mutate", partial(desk.review, answerer=reviewer, bounds=_REVIEW)),
            web.post("/translate", partial(desk.review, answerer=replace(reviewer, translates=True), bounds=_REVIEW)),
            web.post(_CONVERT, partial(desk.review, answerer=converter.Converter(), bounds=_CONVERSION)),
        ]
    )
    return app


def _known_clients() -> Middleware:
    """Refuse requests of a client without a certificate with status 403, but for a conversion."""

    @web.middleware
    async def serve(request: web.Request, handler: Handler) -> web.StreamResponse:
        shown = request.transport is not None and request.transport.get_extra_info("peercert")
        if shown or request.path == _CONVERT:
            return await handler(request)
        response = web.Response(status=403, text="the client has shown no certificate\n")
        response.force_close()
        return response

    return serve


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """What one review of a kind may take.

    `memory_of` says how much memory its answer takes at most, `too_heavy` why that is too much; empty if it is not.
    """

    body_bytes: int
    memory_of: Callable[[bytearray], int]
    too_heavy: Callable[[bytearray], str]


_REVIEW: Final = _Bounds(body_bytes=MAX_BODY_BYTES, memory_of=memory_of, too_heavy=too_heavy)
_CONVERSION: Final = _Bounds(
    body_bytes=MAX_CONVERSION_BYTES, memory_of=converter.memory_to_convert, too_heavy=converter.too_heavy
)


class _Desk:
    """Receives reviews and sends the answers. Reviews of both kinds share its bounds of memory and threads."""

    def __init__(self, *, metrics: Metrics, connections: Connections, seconds: float) -> None:
        self._metrics = metrics
        self._connections = connections
        self._seconds = seconds
        self._bodies = Bodies(most_bytes=MAX_BODY_BYTES, memory=_BODIES_BYTES, seconds=min(_BODY_SECONDS, seconds))
        self._slots = Slots(count=AT_ONCE, memory=_REVIEWS_BYTES)

    async def review(self, http: web.Request, *, answerer: Answerer, bounds: _Bounds) -> web.StreamResponse:
        deadline = asyncio.get_running_loop().time() + self._seconds
        with self._connections.answering(http):
            try:
                async with self._bodies.read(http, most_bytes=bounds.body_bytes) as body:
                    with self._metrics.duration.time():
                        response = await self._response(body, answerer=answerer, bounds=bounds, deadline=deadline)
                    # Inside the block, so that the body still counts as held: a client that does not read its answer
                    # must not cost more memory than one that sends.
                    return await _sent(response, to=http)
            except BodyError as error:
                log.warning("a body is not taken", error=str(error), status=error.status)
                self._metrics.reviews.labels("unknown", "unread").inc()
                response = web.Response(status=error.status, text=f"{error}\n")
                response.force_close()
                return response

    async def _response(self, body: bytearray, *, answerer: Answerer, bounds: _Bounds, deadline: float) -> web.Response:
        try:
            answer = await self._answer(body, answerer=answerer, bounds=bounds, deadline=deadline)
        except ReviewError as error:
            log.warning("bad request", error=str(error))
            self._metrics.reviews.labels("unknown", "unread").inc()
            return web.Response(status=400, text=f"{error}\n")
        self._metrics.reviews.labels(answer.kind, answer.outcome).inc()
        return web.Response(body=answer.body, content_type="application/json")

    async def _answer(self, body: bytearray, *, answerer: Answerer, bounds: _Bounds, deadline: float) -> Answer:
        if problem := bounds.too_heavy(body):
            return _without_review(body, answerer=answerer, problem=problem)
        work: Callable[[], Answer] = lambda: answerer.answer(body)  # noqa: E731 - typed, where partial is not
        try:
            async with asyncio.timeout_at(deadline):
                return await self._slots.run(work, memory=bounds.memory_of(body))
        except TimeoutError:
            problem = f"no answer within {self._seconds:g} s, as others were reviewed: try again"
            return _without_review(body, answerer=answerer, problem=problem)


def _without_review(body: bytearray, *, answerer: Answerer, problem: str) -> Answer:
    uid = admission_review.uid_of(body)
    if not uid:
        raise ReviewError(problem)
    return answerer.refuse(uid, problem=problem)


async def _sent(response: web.Response, *, to: web.Request) -> web.Response:
    """Send a response in time; abort the connection of a client that does not read it."""
    try:
        async with asyncio.timeout(_SEND_SECONDS):
            await response.prepare(to)
            await response.write_eof()
    except TimeoutError:
        if to.transport is not None:
            to.transport.abort()
    return response
