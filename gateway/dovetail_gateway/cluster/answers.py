"""Answers of `dovetail.query` about the cached cluster, for one caller: true decisions, without hidden names."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.audit.allocations import Report
from dovetail.cluster.objects import ClusterObjects
from dovetail.query.audit import audit_of
from dovetail.query.dry_run import DryRun, dry_run_on, prepare
from dovetail.query.explain import subjects
from dovetail.query.explain.explanation import Explanation, explain
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.cluster.other_names import OtherNames

T = TypeVar("T")
# They compute for up to seconds on a large cluster; more at once would only make each of them slower.
_AT_ONCE: Final = 2
# The estimate of a start simulates this many scheduling cycles times nodes. A cycle of 1,000 nodes takes up to 0.1 s,
# and a full estimate takes hundreds of them.
_NODE_CYCLES: Final = 2_000


class Answers:
    """Computes answers in threads, a few at a time."""

    def __init__(self, cache: ClusterCache, *, now: Callable[[], datetime]) -> None:
        self._cache = cache
        self._now = now
        self._secret = secrets.token_bytes(32)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def dry_run(self, job: GPUJob, *, sees: Visibility) -> DryRun:
        """Where and when the job would start if it were submitted now: its own namespace and user are not hidden."""
        sees = sees.including(job.metadata.namespace)

        def compute(objects: ClusterObjects, now: datetime) -> DryRun:
            cycles = _NODE_CYCLES // max(1, len(objects.nodes))
            return dry_run_on(prepare(objects, now=now), job=job, most_cycles=cycles)

        return await self._computed(compute, sees=sees, asked=[job])

    async def explain(self, job: GPUJob, *, sees: Visibility) -> Explanation:
        """Why a job of the cluster waits, or where it is."""

        def compute(objects: ClusterObjects, now: datetime) -> Explanation:
            pods = objects.pods_by_job().get(key_of(job.metadata), ())
            child = objects.batch_job_of([job]).get(job.metadata.uid)
            subject = subjects.of_job(job, pods=pods, settings=objects.settings, child=child)
            return explain(subject, objects=objects, now=now)

        return await self._computed(compute, sees=sees)

    async def audit(self) -> Report:
        """The proof that nothing is promised twice, for a caller who sees everything."""
        return await self._computed(lambda objects, _now: audit_of(objects), sees=Visibility(None))

    async def _computed(
        self, compute: Callable[[ClusterObjects, datetime], T], *, sees: Visibility, asked: Sequence[GPUJob] = ()
    ) -> T:
        await self._slots.acquire()
        # Taken in the loop, so that no informer changes it meanwhile.
        objects, now = self._cache.objects(), self._now()
        computing = asyncio.ensure_future(
            asyncio.to_thread(lambda: compute(self._renamed(objects, sees=sees, asked=asked), now))
        )
        # A thread cannot be ended: its slot is taken until it is done, also when no one waits for it any more.
        computing.add_done_callback(self._done)
        return await asyncio.shield(computing)

    def _done(self, computing: asyncio.Future[Any]) -> None:
        self._slots.release()
        if not computing.cancelled():
            # Marks the error as seen where the request that waited is gone.
            computing.exception()

    def _renamed(self, objects: ClusterObjects, *, sees: Visibility, asked: Sequence[GPUJob]) -> ClusterObjects:
        return OtherNames(sees=sees, jobs=[*objects.jobs, *asked], secret=self._secret).cluster(objects)
