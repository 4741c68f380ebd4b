"""Prepared queues for dry runs: one for each audience, kept for some seconds, prepared once for all who ask."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from dovetail.api.gpujob import GPUJob
from dovetail.logs import get_logger
from dovetail.query.dry_run import PreparedQueue
from dovetail_gateway.access.limits import tenant_of
from dovetail_gateway.access.shared_calls import SharedCalls
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
# How many queues of limited audiences are kept: in all, of one user who asked for them, and as long as they have no
# more than `MOST_JOBS` jobs together; but always two. A queue takes some 5 KiB for each job of the cluster. These take
# at most 250 MiB for up to 25,000 jobs, and as much as one of them again while the next is prepared.
MOST_LIMITED: Final = 64
MOST_OF_ONE: Final = 2
MOST_JOBS: Final = 50_000
_LEAST_LIMITED: Final = 2


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
    """A prepared queue, the cache's version it is of, and how long it took, in seconds.

    `one` is held while a thread computes on the queue.
    """

    queue: PreparedQueue
    version: int
    took_seconds: float
    one: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    prepared: Prepared
    # When the cluster was as it is in this queue, by the monotonic clock.
    since: float
    # The tenant of the user who asked for it.
    owner: str

    def serves(self, *, version: int, now: float) -> bool:
        """Whether a caller may be answered from it."""
        if now - self.since > OLDEST_SECONDS:
            return False
        return self.prepared.version == version or self.prepared.took_seconds > CHEAP_SECONDS


class Prepare(Protocol):
    """Prepares a queue."""

    async def __call__(self, audience: Audience, *, user: str) -> Prepared:
        """A queue for this audience, prepared in the user's name."""


class PreparedQueues:
    """Keeps prepared queues.

    `prepare` makes one in the name of a user; `version` is that of the cluster now.
    """

    def __init__(
        self,
        prepare: Prepare,
        *,
        version: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._sleep = sleep
        self._prepare = prepare
        self._version = version
        self._clock = clock
        # The least recently used first.
        self._kept: OrderedDict[Audience, _Kept] = OrderedDict()
        self._calls: SharedCalls[Audience, Prepared] = SharedCalls()
        self._background: set[asyncio.Task[Prepared]] = set()
        # One at a time, for the memory.
        self._one = asyncio.Lock()

    async def for_audience(self, audience: Audience, *, user: str) -> Prepared:
        """A queue of at most `OLDEST_SECONDS` ago, for this user's question. Raises what `prepare` raises.

        A preparation ends when all who wait for it have left.
        """
        now, kept = self._clock(), self._kept.get(audience)
        if kept is None or not kept.serves(version=self._version(), now=now):
            return await self._prepared(audience, user=user)
        self._kept.move_to_end(audience)
        if now - kept.since > FRESH_SECONDS:
            self._prepare_in_background(audience, user=user)
        return kept.prepared

    async def keep_ready(self, audience: Audience) -> None:
        """Prepare one for this audience now and before each is too old, so that no one waits for it. Endless."""
        while True:
            took = 0.0
            try:
                took = (await self._prepared(audience, user="")).took_seconds
            except Exception:
                # A caller who asks gets the error. At the next try, the cluster may be another one.
                log.exception("the queue of dry runs cannot be prepared")
            await self._sleep(max(FRESH_SECONDS, min(_REST * took, _LONGEST_REST_SECONDS)))

    def _prepare_in_background(self, audience: Audience, *, user: str) -> None:
        task = asyncio.create_task(self._prepared(audience, user=user))
        self._background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Prepared]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            # Marks the error as seen: the next who asks gets it.
            task.exception()

    async def _prepared(self, audience: Audience, *, user: str) -> Prepared:
        return await self._calls.result(audience, of=lambda: self._made(audience, user=user))

    async def _made(self, audience: Audience, *, user: str) -> Prepared:
        async with self._one:
            self._make_room(audience, user=user)
            since = self._clock()
            prepared = await self._prepare(audience, user=user)
        self._kept[audience] = _Kept(prepared=prepared, since=since, owner=tenant_of(user))
        self._kept.move_to_end(audience)
        return prepared

    def _make_room(self, audience: Audience, *, user: str) -> None:
        """Forget queues of other limited audiences: the user's own ones first, then those used least recently."""
        if audience.sees.everything:
            return
        limited = {each: kept for each, kept in self._kept.items() if not each.sees.everything and each != audience}
        own = [each for each, kept in limited.items() if kept.owner == tenant_of(user)]
        for oldest in own[: len(own) + 1 - MOST_OF_ONE]:
            del self._kept[oldest], limited[oldest]
        jobs = [len(kept.prepared.queue.jobs) for kept in limited.values()]
        # One more comes, of about the size of the newest.
        total, number = sum(jobs) + (jobs[-1] if jobs else 0), len(jobs) + 1
        for oldest, its in zip(list(limited), jobs, strict=True):
            if number <= _LEAST_LIMITED or (number <= MOST_LIMITED and total <= MOST_JOBS):
                return
            del self._kept[oldest]
            total, number = total - its, number - 1
