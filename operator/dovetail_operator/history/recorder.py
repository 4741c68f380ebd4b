"""Writes a record when a job begins, ends or is deleted, and before its object is deleted.

Each record is written once. The API server and the store together are enough to continue after a restart at any point:
an ended job without a final record gets it. A record without an end whose job is gone gets its end, because the job was
deleted while no operator ran.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeGuard

import msgspec
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from dovetail.api.gpujob import is_finished
from dovetail.api.historyquery import OTHERS, JobRecord
from dovetail.api.meta import key_of
from dovetail.jobs.records import cut_short, record_of
from dovetail.jobs.runs import end_of_run
from dovetail.kube.client import Client
from dovetail.kube.retry import Backoff, always, retrying
from dovetail.logs import get_logger
from dovetail_operator.history import deleted_namespaces
from dovetail_operator.history.log_tail import last_lines
from dovetail_operator.history.store import HistoryError, HistoryStore
from dovetail_operator.state.due_records import Due, Dues
from dovetail_operator.state.state import State

log = get_logger("dovetail.operator.history")

# The maximum number of series. All others are summed up under one name.
MOST_SERIES: Final = 500
# Many jobs begin and end together: one transaction covers them. A job is not deleted before its record is written.
_GATHER_SECONDS: Final = 1.0
_LOGS_AT_ONCE: Final = 8
# If jobs end faster than kubelets answer, records take precedence over logs.
_MOST_BEHIND: Final = 400
_TIDY_SECONDS: Final = 3600.0
_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=30.0)


class History:
    """Keeps records of the state's jobs in a store."""

    def __init__(
        self,
        client: Client,
        *,
        state: State,
        store: HistoryStore,
        dues: Dues,
        keep_days: int,
        registry: CollectorRegistry,
        now: Callable[[], datetime],
        rng: random.Random,
        gather_seconds: float = _GATHER_SECONDS,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        self.store = store
        self.synced = asyncio.Event()
        self._client = client
        self._state = state
        self._keep_days = keep_days
        self._now = now
        self._rng = rng
        self._gather_seconds = gather_seconds
        self._backoff = backoff
        self._changed = asyncio.Event()
        self._used = UsedCollector()
        self._finished = Counter("dovetail_jobs_finished", "Jobs that have ended.", ["phase"], registry=registry)
        self._failures = Counter(
            "dovetail_history_failures", "Attempts to use the history's database that failed.", registry=registry
        )
        registry.register(self._used)
        self._dues = dues
        dues.call_on_change(self._changed.set)

    async def run(self) -> None:
        """Keep records until cancelled. The state must be complete."""
        await self._until_done(self._begin, what="history cannot be opened")
        self.synced.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_always())
            tasks.create_task(self._tidy_always())

    async def _begin(self) -> None:
        await asyncio.to_thread(self.store.open)
        there = {job.metadata.uid for job in self._state.store.jobs.values()}
        lost = [record for record in await asyncio.to_thread(self.store.unfinished) if record.uid not in there]
        message = "Its object was deleted while no operator looked: it ended at this time at the latest"
        ends = [cut_short(record, now=self._now(), message=message) for record in lost]
        await asyncio.to_thread(self.store.write, ends)
        self._used.start(await asyncio.to_thread(self.store.used))

    async def _write_always(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(self._gather_seconds)
            self._changed.clear()
            while dues := self._dues.take():
                await self._until_done(partial(self._write, dues), what="records wait")

    async def _write(self, dues: Sequence[Due]) -> None:
        kept = await asyncio.to_thread(self.store.final, [due.job.metadata.uid for due in dues])
        fresh = [due for due in dues if due.job.metadata.uid not in kept]
        for record in await asyncio.to_thread(self.store.write, await self._records(fresh)):
            self._finished.labels(record.phase).inc()
            self._used.add(record)
        self._dues.done(dues)

    async def _records(self, dues: Sequence[Due]) -> list[JobRecord]:
        gate = asyncio.Semaphore(_LOGS_AT_ONCE)
        behind = len(self._dues) > _MOST_BEHIND
        gone = await deleted_namespaces.lost_with_namespace(self._client, jobs=(due.job for due in dues))

        async def record(due: Due) -> JobRecord:
            found = record_of(due.job)
            if not is_finished(due.job):
                message = "Its object was deleted before it had ended"
                stopped = end_of_run(due.job.status)
                return cut_short(found, now=self._now(), message=message, stopped=stopped) if due.gone else found
            if due.job.metadata.uid in gone:
                return record_of(deleted_namespaces.cancelled(due.job))
            pods = self._state.store.pods.pods_of(self._state.store.child_of(due.job))
            if due.gone or behind or not pods:
                return found
            async with gate:
                return msgspec.structs.replace(found, log=await last_lines(self._client, pods=pods))

        found = await asyncio.gather(*map(record, dues), return_exceptions=True)
        return [each for due, each in zip(dues, found, strict=True) if _is_record(each, of=due)]

    async def _tidy_always(self) -> None:
        while True:
            before = self._now() - timedelta(days=self._keep_days)
            try:
                gone = await asyncio.to_thread(self.store.forget, before=before)
            except HistoryError as error:
                log.warning("old records stay for now", error=str(error))
            else:
                if gone:
                    log.info("old records dropped", records=gone, days=self._keep_days)
            await asyncio.sleep(_TIDY_SECONDS)

    async def _until_done(self, act: Callable[[], Any], *, what: str) -> None:
        async def once(attempt: int) -> None:
            if attempt:
                # The database may be a different one by now, without our table.
                await asyncio.to_thread(self.store.open)
            await act()

        def failed(error: Exception, wait: float) -> None:
            self._failures.inc()
            trace = None if isinstance(error, HistoryError) else error
            log.warning(what, error=str(error), wait_seconds=round(wait, 1), exc_info=trace)

        await retrying(once, may_retry=always, failed=failed, backoff=self._backoff, rng=self._rng)


class UsedCollector(Collector):
    """GPU seconds of ended jobs by namespace and user, for accounting. Continues the sums of an earlier operator."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str], float] = {}

    def start(self, used: Mapping[tuple[str, str], float]) -> None:
        """Set the sums that the store returned."""
        self._used = dict(used)

    def add(self, record: JobRecord) -> None:
        """Add the record of an ended job."""
        key = record.namespace, record.user
        self._used[key] = self._used.get(key, 0.0) + record.gpu_seconds

    def collect(self) -> Iterable[CounterMetricFamily]:
        """The largest sums by namespace and user, and the rest as one."""
        family = CounterMetricFamily(
            "dovetail_gpu_seconds", "GPU seconds of jobs that have ended.", labels=["namespace", "user"]
        )
        ordered = sorted(self._used.items(), key=lambda item: -item[1])
        for (namespace, user), seconds in ordered[:MOST_SERIES]:
            family.add_metric([namespace, user], seconds)
        if rest := ordered[MOST_SERIES:]:
            family.add_metric([OTHERS, OTHERS], sum(seconds for _, seconds in rest))
        return [family]


def _is_record(found: JobRecord | BaseException, *, of: Due) -> TypeGuard[JobRecord]:
    """Whether a record was built. A job without one does not affect the others."""
    if isinstance(found, JobRecord):
        return True
    if not isinstance(found, Exception):
        raise found
    log.warning("no record can be made of a job", job=key_of(of.job.metadata), error=str(found), exc_info=found)
    return False
