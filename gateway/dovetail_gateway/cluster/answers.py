"""Answers of `dovetail.query` about the cached cluster, for one caller: true decisions, without hidden names."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final, TypeVar

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.audit.allocations import Report
from dovetail.cluster.objects import ClusterObjects
from dovetail.query.action_effects import Effects
from dovetail.query.audit import audit_of, proven_by
from dovetail.query.doctor import nodes
from dovetail.query.doctor.findings import Finding
from dovetail.query.doctor.picture import Picture
from dovetail.query.dry_run import DryRun, prepare
from dovetail.query.explain import subjects
from dovetail.query.explain.explanation import Explanation, explain
from dovetail.query.jobs.owners import user_of
from dovetail_gateway.access.callers import Caller
from dovetail_gateway.access.visibility import EVERYTHING, Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.cluster.other_names import OtherNames, without_commands
from dovetail_gateway.cluster.prepared import Audience, Prepared, PreparedQueues
from dovetail_gateway.cluster.turns import Turns

T = TypeVar("T")
# They compute for up to seconds on a large cluster; more at once would only make each of them slower.
_AT_ONCE: Final = 2
# The estimate of a start simulates this many scheduling cycles times nodes. A cycle of 1,000 nodes takes up to 0.1 s,
# and a full estimate takes hundreds of them.
_NODE_CYCLES: Final = 2_000
# How long findings on nodes serve: agents report every 30 s, and the checks of 1,000 nodes take a while.
_FINDINGS_SECONDS: Final = 10.0


class Answers:
    """Computes answers in threads, a few at a time, and one at a time for each caller.

    In threads and not in processes, since a second copy of the cluster would cost more than all the answers. They take
    the interpreter from the event loop for at most `main.SWITCH_SECONDS` at a time.
    """

    def __init__(self, cache: ClusterCache, *, now: Callable[[], datetime], release: str) -> None:
        """`release` is the namespace of the chart's own objects."""
        self._cache = cache
        self._release = release
        # What is wrong with nodes, by whether the reader sees everything.
        self._findings: dict[bool, tuple[Sequence[Finding], datetime]] = {}
        self._now = now
        self._secret = secrets.token_bytes(32)
        # Threads of their own: each of the event loop's would keep memory of the last answer that it computed.
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="answers")
        self._turns = Turns()
        self._prepared = PreparedQueues(self._prepare, version=lambda: cache.version)

    async def keep_ready(self) -> None:
        """Keep the queue ready for the dry runs of those who see everything, once the cluster is listed. Endless."""
        await self._cache.complete()
        await self._prepared.keep_ready(Audience(sees=EVERYTHING, user=""))

    async def dry_run(self, job: GPUJob, *, caller: Caller, sees: Visibility, in_place_of: str = "") -> DryRun:
        """Where and when the job would start if it were submitted now: its own namespace and user are not hidden.

        `in_place_of` is the UID of a waiting job that is left out.
        """
        async with self._turns.turn(caller.key):
            prepared = await self._prepared.for_audience(Audience.of_job(job, sees=sees, user=user_of(job)))
            cycles = self._most_cycles()
            return await self._in_thread(lambda: prepared.dry_run(job, most_cycles=cycles, in_place_of=in_place_of))

    async def effects(self, job: GPUJob, *, changed: GPUJob, caller: Caller, sees: Visibility) -> Effects:
        """What a change to a job of the cluster would do. Raises `RequestError` for a request that cannot be read."""
        async with self._turns.turn(caller.key):
            prepared = await self._prepared.for_audience(Audience.of_job(job, sees=sees, user=user_of(job)))
            cycles = self._most_cycles()
            return await self._in_thread(lambda: prepared.effects(job, changed=changed, most_cycles=cycles))

    def _most_cycles(self) -> int:
        return _NODE_CYCLES // max(1, len(self._cache.gpunodes))

    async def _prepare(self, audience: Audience) -> Prepared:
        version = self._cache.version

        def compute(objects: ClusterObjects, now: datetime) -> Prepared:
            began = time.perf_counter()
            queue = prepare(objects, now=now)
            return Prepared(queue=queue, version=version, took_seconds=time.perf_counter() - began)

        return await self._computed(compute, sees=audience.sees, users=[audience.user])

    async def explain(self, job: GPUJob, *, caller: Caller, sees: Visibility) -> Explanation:
        """Why a job of the cluster waits, or where it is."""

        def compute(objects: ClusterObjects, now: datetime) -> Explanation:
            pods = objects.pods_by_job().get(key_of(job.metadata), ())
            child = objects.batch_job_of([job]).get(job.metadata.uid)
            subject = subjects.of_job(job, pods=pods, settings=objects.settings, child=child)
            return explain(subject, objects=objects, now=now)

        async with self._turns.turn(caller.key):
            return await self._computed(compute, sees=sees)

    async def audit(self, *, caller: Caller) -> Report:
        """The proof that nothing is promised twice, for a caller who sees everything.

        Without findings that last: an answer cannot wait for them.
        """
        async with self._turns.turn(caller.key):
            return await self._computed(lambda objects, _now: proven_by(audit_of(objects)), sees=EVERYTHING)

    async def node_findings(self, *, caller: Caller, sees: Visibility) -> tuple[Sequence[Finding], datetime]:
        """What `dovetail doctor` finds on nodes, and when that was computed: at most `_FINDINGS_SECONDS` ago.

        Commands of processes without an allocation are for callers who see everything.
        """
        kept = self._findings.get(sees.everything)
        if kept is not None and (self._now() - kept[1]).total_seconds() < _FINDINGS_SECONDS:
            return kept

        def compute(objects: ClusterObjects, now: datetime) -> tuple[Sequence[Finding], datetime]:
            reports = objects.gpunodes if sees.everything else list(map(without_commands, objects.gpunodes))
            picture = Picture.of_nodes(
                now=now, nodes=objects.nodes, gpunodes=reports, slices=objects.slices or (), release=self._release
            )
            return list(nodes.judge(picture, settings=objects.settings)), now

        async with self._turns.turn(caller.key):
            self._findings[sees.everything] = found = await self._computed(compute, sees=EVERYTHING)
        return found

    async def _computed(
        self, compute: Callable[[ClusterObjects, datetime], T], *, sees: Visibility, users: Sequence[str] = ()
    ) -> T:
        # Taken in the loop, so that no informer changes it meanwhile.
        objects, now = self._cache.objects(), self._now()
        return await self._in_thread(lambda: compute(self._renamed(objects, sees=sees, users=users), now))

    async def _in_thread(self, compute: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, compute)

    def _renamed(self, objects: ClusterObjects, *, sees: Visibility, users: Sequence[str]) -> ClusterObjects:
        return OtherNames(sees=sees, jobs=objects.jobs, users=users, secret=self._secret).cluster(objects)
