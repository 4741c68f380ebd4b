"""Takes a sample of the cluster every 30 s, and keeps what follows from it in memory and in the database."""

import asyncio
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.formats.timestamps import moment
from dovetail.logs import get_logger
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.samples import readings
from dovetail_gateway.samples.batches import Batch, KeptCurve, Kind, SamplesError
from dovetail_gateway.samples.bounds import MOST_DEVICES, MOST_PROJECTS, OTHERS, admitted
from dovetail_gateway.samples.columns import DEVICE, HELD, NAMESPACE
from dovetail_gateway.samples.curves import Curve
from dovetail_gateway.samples.marks import Mark, latest, marks_of
from dovetail_gateway.samples.readings import Group, Holding, Place, Reading
from dovetail_gateway.samples.rings import STEP_SECONDS, TIERS, Rings, Row
from dovetail_gateway.samples.usage import Ledger, spent

if TYPE_CHECKING:
    from dovetail_gateway.samples.store import SampleStore

log = get_logger("dovetail.gateway.samples")
T = TypeVar("T")

_MOST_MARKS: Final = 20_000
# Of jobs that have ended, where there is no database.
_MOST_ENDED: Final = 500
# How much of a running job's curve a crash may lose. Its points get longer with its age, so there is no hurry.
_CURVE_SECONDS: Final = 600
# A start that is seen so late counts in the step in which it is seen.
_LATE_SECONDS: Final = 120
# Of batches that the database did not take: an hour of them.
_MOST_PENDING: Final = 120
_TIDY_SECONDS: Final = 3600
# Curves between two turns of the event loop: some 3 ms.
_AT_ONCE: Final = 200


@dataclass(slots=True, kw_only=True)
class _Live:
    """The curve of a job whose object is there. Mutable."""

    namespace: str
    name: str
    curve: Curve
    kept_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCurve:
    """The curve of a job, and the job's UID."""

    uid: str
    curve: Curve


class Sampler:
    """What is kept of the cluster's past; without a store, as long as the process lives."""

    def __init__(
        self, cache: ClusterCache, *, store: "SampleStore | None", keep_days: int, now: Callable[[], datetime]
    ) -> None:
        self.devices = Rings(DEVICE)
        self.namespaces = Rings(NAMESPACE)
        # A project of each namespace is a subject of its own, as namespace/project, up to `MOST_PROJECTS`.
        self.projects = Rings(NAMESPACE)
        self.places: dict[str, Place] = {}
        self.ledger = Ledger()
        self._cache = cache
        self._store = store
        self._keep_days = keep_days
        self._now = now
        self._marks: dict[tuple[str, str, int], Mark] = {}
        # The version of each job whose marks are known, by UID.
        self._marked: dict[str, str] = {}
        self._curves: dict[str, _Live] = {}
        # The last one of each name, where there is no database.
        self._ended: OrderedDict[tuple[str, str], JobCurve] = OrderedDict()
        # What was held at the last sample, and when that was.
        self._held: Sequence[Holding] = ()
        self._at: datetime | None = None
        self._pending: deque[Batch] = deque(maxlen=_MOST_PENDING)
        self._tidied: datetime | None = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="samples")

    @property
    def since(self) -> datetime | None:
        """The earliest sample; None before the first one."""
        first = self.devices.first
        return None if first is None else datetime.fromtimestamp(first, UTC)

    async def run(self) -> None:
        """Sample at each step of the clock."""
        await self._cache.complete()
        await self._restore()
        try:
            while True:
                await self.sample()
                await asyncio.sleep(STEP_SECONDS - self._now().timestamp() % STEP_SECONDS)
        finally:
            self.close()

    async def sample(self) -> None:
        """Take one sample, and write it."""
        now = self._now()
        nodes = [(use, list(self._cache.pods_on(use.name))) for use in self._cache.node_uses()]
        jobs = list(self._cache.jobs.values())
        # In a thread: reading 8,000 devices takes a while, and the objects never change.
        reading = await self.in_thread(lambda: readings.read(nodes, jobs=jobs))
        self._pending.append(await self.take(reading, now=now))
        await self._write()

    async def take(self, reading: Reading, *, now: datetime) -> Batch:
        """Keep a reading in memory. Returns what it adds to the database."""
        at = int(now.timestamp())
        marks = self._new_marks(reading.jobs.values())
        counts = self._counts(reading, marks=marks)
        held = readings.by_group(reading.holdings)
        uuids = self._own_devices(reading, at=at)
        there = [row for row, uuid in enumerate(reading.uuids) if uuid in uuids]
        rows: dict[Kind, Sequence[Row]] = {
            "device": self.devices.put(
                at, subjects=[reading.uuids[row] for row in there], values=reading.devices[there]
            ),
            "namespace": _put_groups(self.namespaces, at=at, held=held, counts=counts, subject=lambda group: group[0]),
            "project": _put_groups(
                self.projects,
                at=at,
                held=held,
                counts=counts,
                subject=self._own_projects({*held, *chain.from_iterable(counts)}, at=at),
            ),
        }
        places = {uuid: reading.places[uuid] for uuid in uuids if self.places.get(uuid) != reading.places[uuid]}
        self.places.update(places)
        curves = await self._put_curves(reading, at=at)
        self._put_usage(reading, now=now)
        return Batch(rows=rows, places=places, curves=curves, marks=marks, usage=self.ledger.take_changed())

    def _own_devices(self, reading: Reading, *, at: int) -> Collection[str]:
        def node_of(uuid: str) -> str:
            place = reading.places.get(uuid) or self.places.get(uuid)
            return "" if place is None else place.node

        return admitted(reading.places, rings=self.devices, owner=node_of, most=MOST_DEVICES, at=at)

    def _own_projects(self, groups: Iterable[Group], *, at: int) -> Callable[[Group], str]:
        """Returns the subject of a group: that of its project, or the one of all further projects of its namespace."""
        subjects = {subject for group in groups if (subject := _project_subject(group))}
        own = admitted(
            subjects, rings=self.projects, owner=lambda subject: subject.partition("/")[0], most=MOST_PROJECTS, at=at
        )

        def subject_of(group: Group) -> str:
            subject = _project_subject(group)
            return subject if subject in own or not subject else f"{group[0]}/{OTHERS}"

        return subject_of

    async def curve(self, namespace: str, *, name: str, uid: str | None) -> JobCurve | None:
        """The curve of a job, by the UID of its object if it is there; None if it never held a device.

        Without a UID, that of the last job of this name which held one.
        """
        if (live := self._live(namespace, name=name, uid=uid)) is not None:
            return live
        ended = self._ended.get((namespace, name))
        if ended is not None and uid in {None, ended.uid}:
            return ended
        store = self._store
        if store is None:
            return None
        try:
            kept = await self.in_thread(lambda: store.curve(namespace, name=name, uid=uid))
        except SamplesError as error:
            log.warning("the curve of a job cannot be read", namespace=namespace, job=name, error=str(error))
            return None
        return None if kept is None else JobCurve(uid=kept.uid, curve=kept.curve)

    def _live(self, namespace: str, *, name: str, uid: str | None) -> JobCurve | None:
        if uid is not None:
            return JobCurve(uid=uid, curve=self._curves[uid].curve) if uid in self._curves else None
        # Until the sample after its deletion.
        found = [
            JobCurve(uid=each, curve=live.curve)
            for each, live in self._curves.items()
            if (live.namespace, live.name) == (namespace, name)
        ]
        return max(found, key=lambda each: each.curve.start, default=None)

    def marks(self, *, since: int, until: int, concerns: Callable[[Mark], bool]) -> list[Mark]:
        """The marks of the jobs that it `concerns` between two times, in their order."""
        found = [each for each in self._marks.values() if since <= each.at < until and concerns(each)]
        return sorted(found, key=lambda each: each.at)

    def close(self) -> None:
        """Write what a restart would lose, and close the database."""
        self._threads.shutdown()
        if self._store is None:
            return
        curves = [self._kept(uid, live=live) for uid, live in self._curves.items()]
        try:
            for batch in (*self._pending, Batch(curves=curves)):
                self._store.write(batch)
        except SamplesError as error:
            log.warning("the last samples are not in the database", error=str(error))
        self._store.close()

    async def _restore(self) -> None:
        """Take what the database has. If it does not answer, begin with nothing: samples of now are worth more."""
        store = self._store
        if store is None:
            return
        there = [each.metadata.uid for each in self._cache.jobs.values() if not is_finished(each)]
        try:
            await self.in_thread(partial(self.take_over, store, there=there))
        except SamplesError as error:
            log.warning("no earlier samples", error=str(error))

    def take_over(self, store: "SampleStore", *, there: Sequence[str]) -> None:
        """Take what another process kept; `there` are the UIDs of jobs that have not ended. Raises `SamplesError`."""
        now = self._now()
        store.open()
        at = int(now.timestamp())
        kinds: dict[Kind, Rings] = {"device": self.devices, "namespace": self.namespaces, "project": self.projects}
        for kind, rings in kinds.items():
            for row in store.rows(kind):
                try:
                    rings.restore(row)
                except ValueError as error:
                    log.warning("samples cannot be read and are left out", kind=kind, at=row.at, error=str(error))
            rings.restored()
        self.places.update(store.places())
        self._remember(store.marks(since=at - TIERS[-1].span, most=_MOST_MARKS))
        self.ledger.restore(store.usage())
        for kept in store.curves(there):
            self._curves[kept.uid] = _Live(namespace=kept.namespace, name=kept.name, curve=kept.curve, kept_at=at)
        if self.devices.last >= 0:
            self._at = datetime.fromtimestamp(self.devices.last, UTC)

    async def _write(self) -> None:
        store = self._store
        if store is None:
            self._pending.clear()
            return
        try:
            while self._pending:
                batch = self._pending[0]
                await self.in_thread(lambda batch=batch: store.write(batch))  # type: ignore[misc]
                self._pending.popleft()
            if self._tidied is None or self._now() - self._tidied >= timedelta(seconds=_TIDY_SECONDS):
                self._tidied = now = self._now()
                self.ledger.forget(before=(now - timedelta(days=self._keep_days)).date())
                await self.in_thread(lambda: store.forget(now=now, keep_days=self._keep_days))
        except SamplesError as error:
            log.warning("samples wait for the database", batches=len(self._pending), error=str(error))
            # It may be another database by now, without our tables.
            try:
                await self.in_thread(store.open)
            except SamplesError as again:
                log.debug("the database cannot be opened", error=str(again))

    def _counts(self, reading: Reading, *, marks: Iterable[Mark]) -> Sequence[Mapping[Group, float]]:
        """The last columns of NAMESPACE.

        Those that started are the jobs that did so for the first time since the last sample.
        """
        starts: dict[Group, float] = defaultdict(float)
        waits: dict[Group, float] = defaultdict(float)
        since = inf if self._at is None else self._at.timestamp() - _LATE_SECONDS
        for mark in marks:
            job = reading.jobs[mark.uid]
            if mark.row.kind != "Started" or mark.at < since or job.status.attempts:
                continue
            group = readings.group_of(job)
            starts[group] += 1
            waits[group] += max(0.0, mark.at - moment(job.metadata.creation_timestamp).timestamp())
        return reading.waiting, reading.running, starts, waits

    async def _put_curves(self, reading: Reading, *, at: int) -> list[KeptCurve]:
        """Add to the curves of jobs that hold devices. Returns those that are due to be written."""
        for count, (uid, holdings) in enumerate(readings.by_job(reading.holdings).items()):
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if uid not in self._curves:
                meta = reading.jobs[uid].metadata
                # Until its first writing: jobs that started together are written together anyway.
                live = _Live(namespace=meta.namespace, name=meta.name, curve=Curve(at), kept_at=at)
                self._curves[uid] = live
            self._curves[uid].curve.add(at, values=readings.held(holdings))
        due = list[KeptCurve]()
        for count, (uid, live) in enumerate(list(self._curves.items())):
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)
            job = reading.jobs.get(uid)
            ended = job is None or is_finished(job)
            if ended or at - live.kept_at >= _CURVE_SECONDS:
                live.kept_at = at
                due.append(self._kept(uid, live=live))
            if ended:
                del self._curves[uid]
                self._keep_ended(uid, live=live)
        return due

    def _keep_ended(self, uid: str, *, live: _Live) -> None:
        if self._store is None:
            self._ended[live.namespace, live.name] = JobCurve(uid=uid, curve=live.curve)
            if len(self._ended) > _MOST_ENDED:
                self._ended.popitem(last=False)

    @staticmethod
    def _kept(uid: str, *, live: _Live) -> KeptCurve:
        return KeptCurve(
            uid=uid, namespace=live.namespace, name=live.name, until=live.curve.end, data=live.curve.encode()
        )

    def _put_usage(self, reading: Reading, *, now: datetime) -> None:
        """Count the GPU time since the last sample: of what is held, and of jobs that ended since then."""
        before, self._at = self._at, now
        gone, self._held = self._held, reading.holdings
        if before is None:
            return
        ended = _ended(gone, reading=reading, unknown=before + (now - before) / 2)
        self.ledger.add(spent([*reading.holdings, *ended], since=before, until=now))

    def _new_marks(self, jobs: Iterable[GPUJob]) -> list[Mark]:
        found, marked = list[Mark](), dict[str, str]()
        for job in jobs:
            uid, version = job.metadata.uid, job.metadata.resource_version
            marked[uid] = version
            if self._marked.get(uid) != version:
                found += (mark for mark in marks_of(job) if mark.key not in self._marks)
        self._marked = marked
        self._remember(found)
        return found

    def _remember(self, marks: Iterable[Mark]) -> None:
        self._marks.update((mark.key, mark) for mark in marks)
        if len(self._marks) > _MOST_MARKS + _MOST_MARKS // 8:
            self._marks = {mark.key: mark for mark in latest(self._marks.values(), most=_MOST_MARKS)}

    async def in_thread(self, act: Callable[[], T]) -> T:
        """What the call returns, computed next to the event loop: samples may be read there, and not changed."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, act)


def _ended(held: Iterable[Holding], *, reading: Reading, unknown: datetime) -> Iterator[Holding]:
    """What pods held that hold nothing any more, until the end of their job, or until `unknown` without one."""
    # By UID: of a StatefulSet, the next pod of a name may hold something already.
    there = {each.pod for each in reading.holdings}
    for each in held:
        if each.pod in there:
            continue
        job = reading.jobs.get(each.job)
        end = None if job is None else job.status.completion_time
        yield replace(each, until=unknown if end is None else moment(end))


def _project_subject(group: Group) -> str:
    namespace, project = group
    return f"{namespace}/{project}" if project else ""


def _put_groups(
    rings: Rings,
    *,
    at: int,
    held: Mapping[Group, Sequence[Holding]],
    counts: Sequence[Mapping[Group, float]],
    subject: Callable[[Group], str],
) -> Sequence[Row]:
    """Put what the groups of each subject hold and count together; those of the subject "" are left out."""
    holdings: dict[str, list[Holding]] = defaultdict(list)
    numbers: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(counts))
    for group, own in held.items():
        holdings[subject(group)] += own
    for position, by_group in enumerate(counts):
        for group, count in by_group.items():
            numbers[subject(group)][position] += count
    subjects = sorted({*holdings, *numbers} - {""})
    values = np.empty((len(subjects), len(NAMESPACE)), np.float32)
    for row, each in enumerate(subjects):
        values[row, : len(HELD)] = readings.held(holdings.get(each, ()))
        values[row, len(HELD) :] = numbers[each]
    return rings.put(at, subjects=subjects, values=values)
