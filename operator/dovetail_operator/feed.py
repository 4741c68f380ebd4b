"""GPUJobs from the API server to the operator: kopf's changes, and a list now and then against what they miss.

kopf tells of no object that went while its watch was broken, and does not say when its first list is complete. So the
first list is ours, and each sign of a new list of kopf's, and some time without one, is followed by another of ours.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from dovetail import decoding
from dovetail.api.gpujob import GPUJob
from dovetail.decoding import UnreadableError
from dovetail.kube import wire
from dovetail.kube.client import Client
from dovetail.kube.connection import Connection
from dovetail.kube.errors import KubeError
from dovetail.kube.resources import GPUJOBS
from dovetail.kube.retry import Backoff
from dovetail.logs import get_logger
from dovetail_operator.changes import Changes
from dovetail_operator.watch import GPUJobWatch

log = get_logger("dovetail.operator.feed")

_COMPARE_SECONDS: Final = 300.0
_AFTER_RELIST_SECONDS: Final = 2.0


class Feed:
    """Tells the operator of every change of a GPUJob; `synced` is set once it has all there are."""

    def __init__(self, client: Client, connection: Connection, *, rng: random.Random) -> None:
        self.synced = asyncio.Event()
        self.watch = GPUJobWatch(connection, on_change=self._changed_in_thread)
        self._client = client
        self._rng = rng
        self._relisted = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._changes: Changes | None = None

    async def run(self, changes: Changes) -> None:
        """Follow until cancelled."""
        self._changes = changes
        await self._compare()
        self.synced.set()
        self.watch.start()
        try:
            while True:
                await self._next_comparison()
                await self._compare()
        finally:
            await asyncio.to_thread(self.watch.stop)

    async def _next_comparison(self) -> None:
        try:
            async with asyncio.timeout(_COMPARE_SECONDS):
                await self._relisted.wait()
        except TimeoutError:
            return
        # The list goes on for a while: one comparison for all of it.
        await asyncio.sleep(_AFTER_RELIST_SECONDS)
        self._relisted.clear()

    async def _compare(self) -> None:
        """Take over a list of all GPUJobs, and drop those that are no more. Tries until it succeeds.

        One that cannot be read any more is there all the same: what was known of it stays.
        """
        assert self._changes is not None, "set when it runs"
        items, resource_version = await retrying(
            lambda: self._client.list(GPUJOBS, as_type=msgspec.Raw), what="listing GPUJobs", rng=self._rng
        )
        jobs, unread = list[GPUJob](), set[str]()
        for item in items:
            if (job := decode_job(item)) is not None:
                jobs.append(job)
            else:
                unread.add(wire.metadata_of(item, path=GPUJOBS.plural).uid)
        for job in self._changes.state.missing_from(jobs, resource_version=resource_version):
            if job.metadata.uid not in unread:
                self._changes.job_gone(job)
        for job in jobs:
            self._changes.job_changed(job)

    def _changed_in_thread(self, type_: str | None, raw: dict[str, Any]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._changed, type_, raw)
        except RuntimeError:
            log.debug("a change of a GPUJob came after the end")

    def _changed(self, type_: str | None, raw: dict[str, Any]) -> None:
        assert self._changes is not None, "set before the watch starts"
        if type_ is None:
            self._relisted.set()
        job = decode_job(raw)
        if job is None:
            return
        if type_ == "DELETED":
            self._changes.job_gone(job)
        else:
            self._changes.job_changed(job)


async def retrying(request: Callable[[], Any], *, what: str, rng: random.Random) -> Any:
    """The answer to `request`, tried for as long as the API server does not give it."""
    backoff, failures = Backoff(), 0
    while True:
        try:
            return await request()
        except KubeError as error:
            wait = backoff.seconds(failures, rng=rng)
            failures += 1
            log.warning("request is tried again", what=what, error=str(error), wait_seconds=round(wait, 1))
            await asyncio.sleep(wait)


def decode_job(raw: object) -> GPUJob | None:
    """The GPUJob, or None for one that cannot be read: it is logged and left alone, and blocks no other."""
    try:
        if isinstance(raw, msgspec.Raw):
            return decoding.decode(raw, as_type=GPUJob)
        return decoding.convert(raw, as_type=GPUJob)
    except UnreadableError as error:
        log.warning("a GPUJob cannot be read and is left alone", error=str(error))
        return None
