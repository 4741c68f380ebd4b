"""v3: what workers print, as text, from the API server with the caller's token.

The text is passed on in pieces as the client reads it, so neither a long log nor a slow client costs memory. If the
answer ends early, because the token or the right ends, the connection is aborted: the client sees an incomplete body.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, Final

from aiohttp import web

from dovetail.api.access_reviews import Act
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import Sentence
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, StatusError
from dovetail.query.jobs.states import is_unfinished, phase_of
from dovetail_gateway.access.callers import Caller, Clients
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.open_streams import OpenStreams
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Call
from dovetail_gateway.v3.jobs import Jobs
from dovetail_gateway.v3.types.jobs import JobPath, LogQuery

_INDEX: Final = "batch.kubernetes.io/job-completion-index"
# As the API server says it of a node without an address: KWOK's have none.
_NO_ADDRESS: Final = "no preferred addresses found"
# Pieces that wait for a slow reader; the API server waits for the rest.
_MOST_PIECES: Final = 64
# A longer line is passed on in parts, so that a worker without line ends costs no memory.
_LONGEST_LINE: Final = 64 * 1024
_HEADERS: Final = {
    "Content-Type": "text/plain; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class Logs:
    """The handler of a job's logs."""

    def __init__(
        self, cache: ClusterCache, *, jobs: Jobs, clients: Clients, reviews: Reviews, streams: OpenStreams
    ) -> None:
        self._cache = cache
        self._jobs = jobs
        self._clients = clients
        self._reviews = reviews
        self._streams = streams

    async def read_log(self, request: web.Request, *, call: Call[JobPath, LogQuery, Any]) -> web.StreamResponse:
        """Send what workers have printed, and with `follow` what they print until they end."""
        job, wanted = self._jobs.find(call.path, sees=call.sees), call.query
        pods = self._pods(job, wanted=wanted)
        response = web.StreamResponse(headers=_HEADERS)
        with self._streams.counted(call.who):
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(self._clients.client_for(call.caller))
                logs: dict[int, AsyncIterator[bytes]] = {}
                for worker, pod in pods.items():
                    try:
                        logs[worker] = await stack.enter_async_context(_log(client, pod=pod, wanted=wanted))
                    except KubeError as error:
                        refusal = _refusal(error, pod=pod)
                        if len(pods) == 1:
                            raise refusal from error
                        why = refusal.message if isinstance(refusal, StatusError) else refusal
                        logs[worker] = _only(f"no log: {why}")
                chunks = merged(logs) if wanted.workers > 1 else logs[wanted.worker]
                try:
                    await response.prepare(request)
                    await self._send(response, chunks=chunks, caller=call.caller, namespace=job.metadata.namespace)
                except (KubeError, ConnectionError):
                    _abort(request)
        return response

    def _pods(self, job: GPUJob, *, wanted: LogQuery) -> dict[int, Pod]:
        """The newest pod of each wanted worker that has one. Raises `RequestFailedError` if none has."""
        if wanted.worker >= job.spec.workers:
            sentence = says.NO_SUCH_WORKER(worker=wanted.worker, workers=job.spec.workers)
            raise RequestFailedError(422, reason="Invalid", sentence=sentence)
        newest = dict[str, Pod]()
        for pod in sorted(self._cache.pods_of(job), key=lambda pod: pod.metadata.creation_timestamp):
            newest[pod.metadata.annotations.get(_INDEX, "0")] = pod
        workers = range(wanted.worker, min(job.spec.workers, wanted.worker + wanted.workers))
        found = {worker: newest[str(worker)] for worker in workers if str(worker) in newest}
        if not found:
            raise RequestFailedError(409, reason="NoLog", sentence=_nothing_to_read(job))
        return found

    async def _send(
        self, response: web.StreamResponse, *, chunks: AsyncIterator[bytes], caller: Caller, namespace: str
    ) -> None:
        """Pass the text on. Raises `ConnectionError` if the right to read it ends first, and `KubeError`."""
        act = Act(verb="get", group="", resource="pods", subresource="log", namespace=namespace)
        oldest = self._streams.times.review_seconds

        async def pump() -> None:
            async for chunk in chunks:
                await self._streams.write(response, data=chunk)

        sending = asyncio.ensure_future(pump())
        ending = asyncio.ensure_future(
            self._streams.until_end(caller, may=lambda: self._reviews.may(caller, act=act, oldest=oldest))
        )
        try:
            await asyncio.wait({sending, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise ConnectionError("the caller may no longer read it")
            await sending
        finally:
            for task in (sending, ending):
                task.cancel()
                with suppress(asyncio.CancelledError, KubeError, ConnectionError):
                    await task


def _log(client: Client, *, pod: Pod, wanted: LogQuery) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    return client.follow_log(
        pod.metadata.name,
        namespace=pod.metadata.namespace,
        container=pod.spec.containers[0].name,
        tail_lines=wanted.tail,
        follow=wanted.follow,
    )


async def _only(line: str) -> AsyncIterator[bytes]:
    """A log of this line."""
    yield line.encode()


async def merged(logs: Mapping[int, AsyncIterator[bytes]]) -> AsyncIterator[bytes]:
    """The lines of several logs as they come, such as `2│ step 100` of worker 2. Memory is bounded.

    Raises what reading one of the logs raises.
    """
    pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(_MOST_PIECES)

    async def read(worker: int, *, chunks: AsyncIterator[bytes]) -> None:
        try:
            async for lines in _lines(chunks, prefix=f"{worker}│ ".encode()):
                await pieces.put(lines)
            await pieces.put(None)
        except Exception as error:  # noqa: BLE001 - the reader raises it
            await pieces.put(error)

    reading = [asyncio.create_task(read(worker, chunks=chunks)) for worker, chunks in logs.items()]
    try:
        left = len(reading)
        while left:
            piece = await pieces.get()
            if isinstance(piece, Exception):
                raise piece
            if piece is None:
                left -= 1
            else:
                yield piece
    finally:
        for task in reading:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _lines(chunks: AsyncIterator[bytes], *, prefix: bytes) -> AsyncIterator[bytes]:
    """The text in pieces of whole lines, each line with the prefix."""
    rest, is_cut = b"", False
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        if is_cut and whole and not whole[0]:
            # The end of a line that was passed on in parts, whose last part has its own end already.
            del whole[0]
        is_cut = is_cut and not chunk
        if len(rest) > _LONGEST_LINE:
            whole, rest, is_cut = [*whole, rest], b"", True
        if whole:
            yield b"".join(prefix + line + b"\n" for line in whole)
    if rest:
        yield prefix + rest + b"\n"


def _nothing_to_read(job: GPUJob) -> Sentence:
    """Why a worker without pods has no log."""
    called, status = str(job.status.number or job.metadata.name), job.status
    if job.spec.array is not None or job.spec.sweep is not None:
        return says.LOG_OF_TASKS(job=called)
    if not is_unfinished(job):
        return says.LOG_GONE(job=called)
    none = says.NO_LOG_YET(job=called, phase=phase_of(job))
    return none + says.BECAUSE(reason=status.reason, message=status.message) if status.reason else none


def _refusal(error: Exception, *, pod: Pod) -> Exception:
    """The error as a caller gets it: a node without a kubelet is no failure of the API server."""
    if isinstance(error, StatusError) and _NO_ADDRESS in error.message:
        return RequestFailedError(409, reason="NoLog", sentence=says.NO_KUBELET(node=pod.spec.node_name))
    return error


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
