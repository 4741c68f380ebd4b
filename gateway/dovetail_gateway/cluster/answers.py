"""Answers of `dovetail.query` about the cached cluster, for one caller: true decisions, without hidden names."""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from dovetail.answers.doctor import Diagnosis
from dovetail.answers.effects import Effects
from dovetail.answers.inventory import take
from dovetail.answers.moves import MovesList
from dovetail.answers.owners import user_of
from dovetail.answers.questions import Audit, DryRun, Explanation
from dovetail.answers.quotas import QuotaPlan
from dovetail.answers.waste import NodeFindings
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import key_of
from dovetail.cluster.objects import ClusterObjects
from dovetail.formats.timestamps import moment
from dovetail.kube.client import Client
from dovetail.query.action_effects import effects_of
from dovetail.query.dry_run import PreparedQueue, dry_run_on, prepare
from dovetail.query.explain import subjects
from dovetail.query.explain.explanation import explain
from dovetail.query.explain.rows import explanation_row
from dovetail.query.quotas.plan import plan_quotas
from dovetail_gateway.access.fair_queue import FairQueue
from dovetail_gateway.access.identities import Identity
from dovetail_gateway.access.visibility import EVERYTHING, Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.cluster.other_names import OtherNames, reader_of, without_commands
from dovetail_gateway.cluster.pacing import Pacing
from dovetail_gateway.cluster.prepared import Audience, Prepared, PreparedQueues

T = TypeVar("T")
# They compute for up to seconds on a large cluster; more at once would only make each of them slower.
_AT_ONCE: Final = 2
# Of one user; a page of the console asks for three at a time.
_MOST_WAITING: Final = 16
# A diagnosis has the nodes of the whole cluster in memory, so that few of one user may wait.
_MOST_DIAGNOSES: Final = 2
# The estimate of a start simulates this many scheduling cycles times nodes. A cycle of 1,000 nodes takes up to 0.1 s,
# and a full estimate takes hundreds of them.
_NODE_CYCLES: Final = 2_000
# How long findings on nodes serve: agents report every 30 s, and the checks of 1,000 nodes take a while.
_FINDINGS_SECONDS: Final = 10.0
_MOST_FINDINGS: Final = 64


class Answers:
    """Computes answers in threads, a few at a time, and one at a time for each user.

    In threads and not in processes, since a second copy of the cluster would cost more than all the answers. They take
    the interpreter from the event loop for at most `main.SWITCH_SECONDS` at a time. An answer that no one waits for any
    more ends at its next checkpoint.
    """

    def __init__(self, cache: ClusterCache, *, now: Callable[[], datetime], release: str) -> None:
        """`release` is the namespace of the chart's own objects."""
        self._cache = cache
        self._release = release
        # What is wrong with nodes, by what the readers see: a check may name a tenant.
        self._findings: OrderedDict[Visibility, NodeFindings] = OrderedDict()
        self._now = now
        self._secret = secrets.token_bytes(32)
        # Threads of their own: each of the event loop's would keep memory of the last answer that it computed. One more
        # for queues that are prepared while no one waits.
        self._threads = ThreadPoolExecutor(_AT_ONCE + 1, thread_name_prefix="answers")
        self._queue = FairQueue(at_once=_AT_ONCE, most_of_one=1, most_waiting=_MOST_WAITING)
        self._doctor = FairQueue(at_once=1, most_of_one=1, most_waiting=_MOST_DIAGNOSES)
        self._pacing = Pacing()
        self._prepared = PreparedQueues(self._prepare, version=lambda: cache.version)

    async def keep_ready(self) -> None:
        """Keep the queue ready for the dry runs of those who see everything, once the cluster is listed. Endless."""
        await self._cache.complete()
        await self._prepared.keep_ready(Audience(sees=EVERYTHING, user=""))

    async def dry_run(self, job: GPUJob, *, who: Identity, sees: Visibility, in_place_of: str = "") -> DryRun:
        """Where and when the job would start if it were submitted now: its own namespace and user are not hidden.

        `in_place_of` is the UID of a waiting job that is left out. Raises `CrowdedError`.
        """

        def compute(queue: PreparedQueue, most_cycles: int) -> DryRun:
            return dry_run_on(queue, job=job, most_cycles=most_cycles, in_place_of=in_place_of, reader=reader_of(sees))

        return await self._on_prepared(compute, job=job, who=who, sees=sees)

    async def effects(self, job: GPUJob, *, changed: GPUJob, who: Identity, sees: Visibility) -> Effects:
        """What a change to a job of the cluster would do.

        Raises `CrowdedError`, and `RequestError` for a request that cannot be read.
        """

        def compute(queue: PreparedQueue, most_cycles: int) -> Effects:
            return effects_of(queue, job=job, changed=changed, most_cycles=most_cycles, reader=reader_of(sees))

        return await self._on_prepared(compute, job=job, who=who, sees=sees)

    async def quota_plan(self, changed: GPUQuota, *, who: Identity, sees: Visibility) -> QuotaPlan:
        """What a changed quota would do to the cluster's jobs. Raises `CrowdedError`."""
        objects, now = self._cache.objects(), self._now()

        def compute() -> QuotaPlan:
            others = self._others(objects, sees=sees, users=[who.username])
            return plan_quotas(
                others.cluster(objects), changed=[others.quota(changed)], now=now, reader=reader_of(sees)
            )

        async with self._queue.slot(who.username):
            return await self._in_thread(compute, user=who.username)

    async def _on_prepared(
        self, compute: Callable[[PreparedQueue, int], T], *, job: GPUJob, who: Identity, sees: Visibility
    ) -> T:
        """Compute on the queue that is prepared for those who see this, in at most so many scheduling cycles."""
        user, audience = who.username, Audience.of_job(job, sees=sees, user=user_of(job))
        async with self._queue.slot(user):
            prepared = await self._prepared.for_audience(audience, user=user)
            cycles = _NODE_CYCLES // max(1, len(self._cache.gpunodes))
            async with prepared.one:
                return await self._in_thread(lambda: compute(prepared.queue, cycles), user=user)

    async def _prepare(self, audience: Audience, *, user: str) -> Prepared:
        version = self._cache.version

        def compute(objects: ClusterObjects, now: datetime) -> Prepared:
            began = time.thread_time()
            queue = prepare(objects, now=now)
            return Prepared(queue=queue, version=version, took_seconds=time.thread_time() - began)

        return await self._computed(compute, sees=audience.sees, users=[audience.user], user=user)

    async def explain(self, job: GPUJob, *, who: Identity, sees: Visibility) -> Explanation:
        """Why a job of the cluster waits, or where it is. Raises `CrowdedError`."""

        def compute(objects: ClusterObjects, now: datetime) -> Explanation:
            pods = objects.pods_by_job().get(key_of(job.metadata), ())
            child = objects.batch_job_of([job]).get(job.metadata.uid)
            subject = subjects.of_job(job, pods=pods, settings=objects.settings, child=child)
            return explanation_row(explain(subject, objects=objects, now=now), reader=reader_of(sees))

        async with self._queue.slot(who.username):
            return await self._computed(compute, sees=sees, user=who.username)

    async def moves(
        self,
        jobs: Sequence[GPUJob],
        *,
        budgets: Sequence[PodDisruptionBudget] | None,
        to_apply: bool,
        who: Identity,
        sees: Visibility,
    ) -> MovesList:
        """Which running jobs would have to restart elsewhere so that these jobs start. Raises `CrowdedError`."""
        from dovetail.query.explain.moves import moves_for  # noqa: PLC0415 - few processes are asked

        def compute(objects: ClusterObjects, now: datetime) -> MovesList:
            reader = reader_of(sees)
            return moves_for(jobs, objects=objects, budgets=budgets, now=now, to_apply=to_apply, reader=reader)

        async with self._queue.slot(who.username):
            return await self._computed(compute, sees=sees, user=who.username)

    async def audit(self, *, who: Identity, sees: Visibility) -> Audit:
        """The proof that nothing is promised twice, about the whole cluster. Raises `CrowdedError`.

        Without findings that last: an answer cannot wait for them.
        """
        from dovetail.query.audit import audit_for, audit_of, proven_by  # noqa: PLC0415 - few processes are asked

        def compute(objects: ClusterObjects, _now: datetime) -> Audit:
            return audit_for(reader_of(sees), report=proven_by(audit_of(objects)))

        async with self._queue.slot(who.username):
            return await self._computed(compute, sees=EVERYTHING, user=who.username)

    async def node_findings(self, *, who: Identity, sees: Visibility) -> NodeFindings:
        """What `dovetail doctor` finds on nodes, computed at most `_FINDINGS_SECONDS` ago.

        Commands of processes without an allocation are for callers who see everything. Raises `CrowdedError`.
        """
        from dovetail.cluster.picture import Picture  # noqa: PLC0415 - few processes are asked
        from dovetail.query.doctor import nodes  # noqa: PLC0415
        from dovetail.query.doctor.findings import node_findings  # noqa: PLC0415

        kept = self._findings.get(sees)
        if kept is not None and (self._now() - moment(kept.as_of)).total_seconds() < _FINDINGS_SECONDS:
            return kept

        def compute(objects: ClusterObjects, now: datetime) -> NodeFindings:
            reports = objects.gpunodes if sees.everything else list(map(without_commands, objects.gpunodes))
            picture = Picture.of_nodes(
                now=now, nodes=objects.nodes, gpunodes=reports, slices=objects.slices or (), release=self._release
            )
            return node_findings(list(nodes.judge(picture, settings=objects.settings)), at=now)

        # Nodes name no one, so nothing else is renamed.
        only_nodes = replace(self._cache.objects(), pods=(), jobs=(), batch_jobs=None, quotas=None)
        async with self._queue.slot(who.username):
            found = await self._computed(compute, objects=only_nodes, sees=sees, user=who.username)
        self._findings[sees] = found
        self._findings.move_to_end(sees)
        if len(self._findings) > _MOST_FINDINGS:
            self._findings.popitem(last=False)
        return found

    async def diagnosis(self, client: Client, *, namespace: str, node: str | None, who: Identity) -> Diagnosis | None:
        """What `dovetail doctor` finds, read with the rights of `client`; None if there is no such node.

        One at a time, since each reads all nodes and pods. Raises `CrowdedError` and `KubeError`.
        """
        from dovetail.kube.queries.picture import read_picture  # noqa: PLC0415 - few processes are asked
        from dovetail.query.doctor.diagnosis import CRDS, has_node, judge  # noqa: PLC0415
        from dovetail.query.doctor.findings import diagnosis_of  # noqa: PLC0415

        async with self._doctor.slot(who.username):
            picture = await read_picture(client, release=self._release, namespace=namespace, crds=CRDS, now=self._now)
            if node is not None and not has_node(picture, node=node):
                return None
            return await self._in_thread(lambda: diagnosis_of(judge(picture, node=node)), user=who.username)

    async def overview(self, *, who: Identity, sees: Visibility) -> bytes:
        """All devices and how many jobs run and wait, as JSON of an `Overview`. Raises `CrowdedError`."""
        from dovetail.query.nodes.overview import overview  # noqa: PLC0415 - few processes are asked

        reader, jobs = self._cache.node_reader(), self._cache.jobs.values()
        seen = [job for job in jobs if sees.sees(job.metadata.namespace)]

        def compute(objects: ClusterObjects, now: datetime) -> bytes:
            found = take(
                objects.gpunodes, pods=objects.pods, scheduler="", namespace="", nodes=objects.nodes, reader=reader
            )
            return msgspec.json.encode(overview(found, jobs=seen, now=now, reader=reader_of(sees)))

        async with self._queue.slot(who.username):
            return await self._computed(compute, sees=EVERYTHING, user=who.username)

    async def _computed(
        self,
        compute: Callable[[ClusterObjects, datetime], T],
        *,
        sees: Visibility,
        user: str,
        users: Sequence[str] = (),
        objects: ClusterObjects | None = None,
    ) -> T:
        """Compute in the name of `user` on the cluster, without the names that are hidden; those of `users` are not."""
        # Taken in the loop, so that no informer changes it meanwhile.
        found, now = objects or self._cache.objects(), self._now()
        return await self._in_thread(lambda: compute(self._renamed(found, sees=sees, users=users), now), user=user)

    async def _in_thread(self, compute: Callable[[], T], *, user: str) -> T:
        computation = self._pacing.computation(user)
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, computation.run, compute)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            computation.abandon()
            # The slot and the queue are free only once the thread is, however often the caller is cancelled.
            while not running.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({running})
            running.exception()
            raise

    def _renamed(self, objects: ClusterObjects, *, sees: Visibility, users: Sequence[str]) -> ClusterObjects:
        return self._others(objects, sees=sees, users=users).cluster(objects)

    def _others(self, objects: ClusterObjects, *, sees: Visibility, users: Sequence[str]) -> OtherNames:
        return OtherNames(sees=sees, jobs=objects.jobs, pods=objects.pods, users=users, secret=self._secret)
