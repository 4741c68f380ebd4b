"""Prepared queues for dry runs: one for each audience, kept for some seconds, prepared once for all who ask."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.logs import get_logger
from dovetail.query.action_effects import Effects, effects_of
from dovetail.query.dry_run import DryRun, PreparedQueue, dry_run_on
from dovetail_gateway.access.visibility import Visibility

log = get_logger("dovetail.gateway")

# A queue that takes longer to prepare serves for a while after the cluster changed; a cheaper one is prepared again.
CHEAP_SECONDS: Final = 0.05
# From this age on, the next one is prepared in the background, and this one serves meanwhile.
FRESH_SECONDS: Final = 5.0
OLDEST_SECONDS: Final = 30.0
# A queue that is always ready is prepared again after so many times the seconds that it took, so that it costs at most
# some 5 % of a core, and before it is too old.
_REST: Final = 20
_LONGEST_REST_SECONDS: Final = 20.0
# How many queues of limited audiences are kept. On a cluster of 10,000 jobs, each takes some 50 MiB, and as much again
# while it is prepared.
MOST_LIMITED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """For whom names are hidden: what they see, and the user of the job, whose own name is never hidden.

    Callers share a prepared queue only if both are equal, so that no one gets another's view.
    """

    sees: Visibility
    user: str

    @classmethod
    def of_job(cls, job: GPUJob, *, sees: Visibility, user: str | None) -> "Audience":
        """The audience of a dry run; for those who see everything it does not depend on the user."""
        sees = sees.including(job.metadata.namespace)
        return cls(sees=sees, user="" if sees.everything else user or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A prepared queue, the cache's version it is of, and how long it took, in seconds."""

    queue: PreparedQueue
    version: int
    took_seconds: float
    _one: threading.Lock = field(default_factory=threading.Lock)

    def dry_run(self, job: GPUJob, *, most_cycles: int, in_place_of: str = "") -> DryRun:
        """The decision on a job. Called in any thread; one is computed at a time."""
        with self._one:
            return dry_run_on(self.queue, job=job, most_cycles=most_cycles, in_place_of=in_place_of)

    def effects(self, job: GPUJob, *, changed: GPUJob, most_cycles: int) -> Effects:
        """What a change to a job would do. Called in any thread; one is computed at a time."""
        with self._one:
            return effects_of(self.queue, job=job, changed=changed, most_cycles=most_cycles)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    prepared: Prepared
    # When the cluster was as it is in this queue, by the monotonic clock.
    since: float

    def serves(self, *, version: int, now: float) -> bool:
        """Whether a caller may be answered from it."""
        if now - self.since > OLDEST_SECONDS:
            return False
        return self.prepared.version == version or self.prepared.took_seconds > CHEAP_SECONDS


class PreparedQueues:
    """Keeps prepared queues. `prepare` makes one; `version` is that of the cluster now."""

    def __init__(
        self,
        prepare: Callable[[Audience], Awaitable[Prepared]],
        *,
        version: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._sleep = sleep
        self._prepare = prepare
        self._version = version
        self._clock = clock
        self._kept: dict[Audience, _Kept] = {}
        self._running: dict[Audience, asyncio.Task[Prepared]] = {}
        # One at a time, for the memory.
        self._one = asyncio.Lock()

    async def for_audience(self, audience: Audience) -> Prepared:
        """A queue of at most `OLDEST_SECONDS` ago. Raises what `prepare` raises."""
        now, kept = self._clock(), self._kept.get(audience)
        if kept is None or not kept.serves(version=self._version(), now=now):
            return await asyncio.shield(self._preparing(audience))
        if now - kept.since > FRESH_SECONDS:
            self._preparing(audience)
        return kept.prepared

    async def keep_ready(self, audience: Audience) -> None:
        """Prepare one for this audience now and before each is too old, so that no one waits for it. Endless."""
        while True:
            took = 0.0
            try:
                took = (await asyncio.shield(self._preparing(audience))).took_seconds
            except Exception:
                # A caller who asks gets the error. At the next try, the cluster may be another one.
                log.exception("the queue of dry runs cannot be prepared")
            await self._sleep(max(FRESH_SECONDS, min(_REST * took, _LONGEST_REST_SECONDS)))

    def _preparing(self, audience: Audience) -> asyncio.Task[Prepared]:
        """The one preparation for this audience; it goes on when no one waits for it any more."""
        running = self._running.get(audience)
        if running is None:
            running = self._running[audience] = asyncio.create_task(self._made(audience))
            running.add_done_callback(lambda done: self._done(done, audience=audience))
        return running

    async def _made(self, audience: Audience) -> Prepared:
        async with self._one:
            self._make_room(audience)
            since = self._clock()
            prepared = await self._prepare(audience)
        self._kept[audience] = _Kept(prepared=prepared, since=since)
        return prepared

    def _done(self, done: asyncio.Task[Prepared], *, audience: Audience) -> None:
        del self._running[audience]
        if not done.cancelled():
            # Marks the error as seen where the request that waited is gone.
            done.exception()

    def _make_room(self, audience: Audience) -> None:
        """Forget the oldest queues of other limited audiences."""
        limited = [each for each in self._kept if not each.sees.everything and each != audience]
        for oldest in limited[: len(limited) + 1 - MOST_LIMITED] if not audience.sees.everything else ():
            del self._kept[oldest]
