"""The webhook over HTTP: `POST /mutate` and `POST /translate` answer every review, readable or not.

Small reviews are answered one after the other. Concurrent large ones are bounded by count and memory; others wait in
order.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from aiohttp import web

from dovetail import logs
from dovetail.process.bodies import Bodies, BodyError
from dovetail.process.connections import Connections
from dovetail_webhook import admission_review
from dovetail_webhook.admission_review import ReviewError
from dovetail_webhook.handler import MAX_MEMORY, Answer, Reviewer, too_heavy
from dovetail_webhook.metrics import Metrics
from dovetail_webhook.weight import memory_of

T = TypeVar("T")


class Slots:
    """Runs work in threads, in order of arrival, at most `count` and `memory` bytes at a time.

    It uses threads because a review of megabytes may take 0.1 s, during which probes, deadlines and small reviews must
    continue.
    """

    def __init__(self, *, count: int, memory: int) -> None:
        self._free = count
        self._memory = memory
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._threads = ThreadPoolExecutor(max_workers=count, thread_name_prefix="review")

    async def run(self, work: Callable[[], T], *, memory: int) -> T:
        """Run `work` once a slot and `memory` bytes are free, and return its result.

        `memory` must not exceed the total. Work that has begun occupies its slot to its end even if the caller is
        cancelled, because a thread cannot be stopped.
        """
        await self._take(memory)
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        running.add_done_callback(lambda _: self._give(memory))
        return await asyncio.shield(running)

    async def _take(self, memory: int) -> None:
        if not self._waiting and self._has(memory):
            self._hold(memory)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (memory, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
                self._wake()
            elif not turn.cancelled():
                self._give(memory)
            raise

    def _give(self, memory: int) -> None:
        self._free += 1
        self._memory += memory
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._has(self._waiting[0][0]):
            memory, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._hold(memory)
                turn.set_result(None)

    def _has(self, memory: int) -> bool:
        return self._free > 0 and memory <= self._memory

    def _hold(self, memory: int) -> None:
        self._free -= 1
        self._memory -= memory


AT_ONCE: Final = 4
# Memory of a review, up to which it is answered without a thread. A pod of 8 kB counts as 100 kB. Of 300 µs of CPU for
# a review with its HTTP, a thread takes 110.
_SMALL: Final = 256 << 10
# The API server waits 5 s (`timeoutSeconds`). It discards a later answer together with its reason.
_BODY_SECONDS: Final = 3.0
_ANSWER_SECONDS: Final = 4.0
_SEND_SECONDS: Final = 5.0
# With 60 MiB for the program, the sum stays below the chart's limit of 384Mi. docs/performance.md has the figures.
# An object in etcd is smaller than 1.5 MiB, and the review of an update contains two.
MAX_BODY_BYTES: Final = 3_584 << 10
_BODIES_BYTES: Final = 28 << 20
log = logs.get_logger("dovetail.webhook")


def application(
    reviewer: Reviewer,
    *,
    metrics: Metrics,
    connections: Connections | None = None,
    seconds: float = _ANSWER_SECONDS,
) -> web.Application:
    """The application that serves `/mutate` and `/translate` with this reviewer.

    `seconds` bounds the time from a request's headers to its answer.
    """
    served = Connections() if connections is None else connections
    desk = _Desk(metrics=metrics, connections=served, seconds=seconds)
    app = web.Application()
    app.router.add_post("/mutate", partial(desk.review, reviewer=reviewer))
    app.router.add_post("/translate", partial(desk.review, reviewer=replace(reviewer, translates=True)))
    return app


class _Desk:
    """Receives reviews and sends the answers, within bounds of memory and threads."""

    def __init__(self, *, metrics: Metrics, connections: Connections, seconds: float) -> None:
        self._metrics = metrics
        self._connections = connections
        self._seconds = seconds
        self._bodies = Bodies(most_bytes=MAX_BODY_BYTES, memory=_BODIES_BYTES, seconds=min(_BODY_SECONDS, seconds))
        self._slots = Slots(count=AT_ONCE, memory=MAX_MEMORY)

    async def review(self, http: web.Request, *, reviewer: Reviewer) -> web.StreamResponse:
        deadline = asyncio.get_running_loop().time() + self._seconds
        with self._connections.answering(http):
            try:
                async with self._bodies.read(http) as body:
                    with self._metrics.duration.time():
                        response = await self._response(body, reviewer=reviewer, deadline=deadline)
                    # Inside the block, so that the body still counts as held: a client that does not read its answer
                    # must not cost more memory than one that sends.
                    return await _sent(response, to=http)
            except BodyError as error:
                log.warning("a body is not taken", error=str(error), status=error.status)
                self._metrics.reviews.labels("unknown", "unread").inc()
                response = web.Response(status=error.status, text=f"{error}\n")
                response.force_close()
                return response

    async def _response(self, body: bytearray, *, reviewer: Reviewer, deadline: float) -> web.Response:
        try:
            answer = await self._answer(body, reviewer=reviewer, deadline=deadline)
        except ReviewError as error:
            log.warning("bad request", error=str(error))
            self._metrics.reviews.labels("unknown", "unread").inc()
            return web.Response(status=400, text=f"{error}\n")
        self._metrics.reviews.labels(answer.kind, answer.outcome).inc()
        return web.Response(body=answer.body, content_type="application/json")

    async def _answer(self, body: bytearray, *, reviewer: Reviewer, deadline: float) -> Answer:
        if problem := too_heavy(body):
            return _without_review(body, reviewer=reviewer, problem=problem)
        if (memory := memory_of(body)) <= _SMALL:
            return reviewer.answer(body)
        work: Callable[[], Answer] = lambda: reviewer.answer(body)  # noqa: E731 - typed, where partial is not
        try:
            async with asyncio.timeout_at(deadline):
                return await self._slots.run(work, memory=memory)
        except TimeoutError:
            problem = f"no answer within {self._seconds:g} s, as others were reviewed: try again"
            return _without_review(body, reviewer=reviewer, problem=problem)


def _without_review(body: bytearray, *, reviewer: Reviewer, problem: str) -> Answer:
    uid = admission_review.uid_of(body)
    if not uid:
        raise ReviewError(problem)
    return reviewer.refuse(uid, problem=problem)


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
