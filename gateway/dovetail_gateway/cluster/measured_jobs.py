"""What jobs were measured to use: computed once for all who ask, and kept for some seconds.

It has the jobs of all namespaces. Each answer takes those that its reader may list; no job's figures depend on another.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dovetail.query.right_sizes import MeasuredJob, measured
from dovetail_gateway.access.shared_calls import SharedCalls
from dovetail_gateway.cluster.cache import ClusterCache

# What took longer serves for a while after the cluster changed: agents report every 30 s.
_CHEAP_SECONDS: Final = 0.05
_FRESH_SECONDS: Final = 10.0
# Also while nothing changes, a job that runs is measured for longer.
_OLDEST_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    jobs: Sequence[MeasuredJob]
    version: int
    at: datetime
    took_seconds: float

    def serves(self, *, version: int, now: datetime) -> bool:
        """Whether it answers a question of `now`."""
        age = (now - self.at).total_seconds()
        if not 0 <= age < _OLDEST_SECONDS:
            return False
        return self.version == version or (self.took_seconds > _CHEAP_SECONDS and age < _FRESH_SECONDS)


class MeasuredJobs:
    """The jobs of the cluster with their right sizes."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._kept: _Kept | None = None
        self._calls: SharedCalls[int, _Kept] = SharedCalls()

    async def all(self, *, now: datetime) -> Sequence[MeasuredJob]:
        """Those of all namespaces that were measured, or that save something."""
        version, kept = self._cache.version, self._kept
        if kept is None or not kept.serves(version=version, now=now):
            kept = await self._calls.result(version, of=lambda: self._computed(version, now=now))
        return kept.jobs

    async def _computed(self, version: int, *, now: datetime) -> _Kept:
        jobs = self._cache.all_with_figures(now=now)

        def compute() -> _Kept:
            began = time.thread_time()
            found = measured(jobs(), now=now)
            return _Kept(jobs=found, version=version, at=now, took_seconds=time.thread_time() - began)

        # In a thread: thousands of jobs take a while, and the objects never change.
        kept = await asyncio.to_thread(compute)
        # One that took longer is older than what another question has found meanwhile.
        if self._kept is None or self._kept.version <= version:
            self._kept = kept
        return kept
