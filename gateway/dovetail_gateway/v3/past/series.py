"""v3: what devices, namespaces and jobs used over time."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from dovetail.answers.use.series import MarkRow, Series, SeriesRow, Values
from dovetail.formats.timestamps import moment, timestamp
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.samples.marks import Mark
from dovetail_gateway.samples.rings import STEP_SECONDS, Grid, grid
from dovetail_gateway.samples.sampler import Sampler
from dovetail_gateway.samples.series import between, by_place, of_devices, of_holdings
from dovetail_gateway.v3.times import check_time
from dovetail_gateway.v3.types.series import SeriesQuery

_HOUR: Final = 3600
# A job starts before its devices are first sampled.
_LATE: Final = 120
_MOST_NAMESPACES: Final = 50
_MOST_MARKS: Final = 200
# Of sums over devices, which are the same for all who ask.
_MOST_KEPT: Final = 64
_RARE: Final = frozenset({"Moved", "Preempted"})
_NAMED: Final = frozenset({"Node", "Device", "Job"})


class TimeSeries:
    """The handler of `/api/v3/series`."""

    def __init__(self, cache: ClusterCache, *, sampler: Sampler, now: Callable[[], datetime]) -> None:
        self._cache = cache
        self._sampler = sampler
        self._now = now
        self._sums: OrderedDict[tuple[Any, ...], SeriesRow] = OrderedDict()

    async def get_series(self, call: Call[Nothing, SeriesQuery, Any]) -> Answer:
        """The curves of a subject. Sums over devices are for all readers, those of jobs for who may list them."""
        wanted = call.query
        since, until = self._times(wanted)
        if wanted.of in _NAMED and not wanted.name:
            raise _invalid(f"name is missing: of={wanted.of} is asked of one {wanted.of.lower()}")
        if wanted.of == "Job":
            return Answer(value=await self._job(wanted, since=since, until=until, sees=call.sees))
        begin = until - _HOUR if since is None else since
        times = grid(since=begin, until=until, now=int(self._now().timestamp()))
        rows = self._namespaces(wanted, times=times, sees=call.sees)
        if wanted.of != "Namespace":
            rows = await self._devices(wanted, times=times, sees=call.sees)
        marks = self._marks(since=times.start, until=until, concerns=self._concerns(wanted, sees=call.sees))
        return Answer(value=self._answer(times.start, step=times.step, items=rows, marks=marks))

    def _times(self, wanted: SeriesQuery) -> tuple[int | None, int]:
        """The beginning, if one is asked for, and the end. Raises `RequestFailedError`."""
        check_time("since", text=wanted.since)
        check_time("until", text=wanted.until)
        now = int(self._now().timestamp())
        until = now + 1 if wanted.until is None else min(now + 1, int(moment(wanted.until).timestamp()))
        since = None if wanted.since is None else int(moment(wanted.since).timestamp())
        if since is not None and since >= until:
            end = "now" if wanted.until is None else wanted.until
            raise _invalid(f'since "{wanted.since}": must be before until, which is {end}')
        # The sample of the step that has just begun may not have been taken yet.
        sampled = self._sampler.devices.last + STEP_SECONDS
        return since, sampled if sampled < until <= sampled + STEP_SECONDS else until

    async def _devices(self, wanted: SeriesQuery, *, times: Grid, sees: Visibility) -> list[SeriesRow]:
        """The curves of devices, node, models or cluster; those of the cluster with the queue of the caller's jobs."""
        groups = self._groups(wanted)
        rows = [await self._sum(wanted, name=name, uuids=uuids, times=times) for name, uuids in groups]
        if wanted.of != "Cluster":
            return rows
        rings = self._sampler.namespaces
        seen = [each for each in rings.subjects if sees.sees(each)]
        jobs = of_holdings("", samples=rings.read(times, subjects=seen))
        queue = {name: getattr(jobs, name) for name in ("waiting", "running", "starts", "mean_wait_seconds")}
        return [msgspec.structs.replace(row, **queue) for row in rows]

    def _groups(self, wanted: SeriesQuery) -> list[tuple[str, list[str]]]:
        """Each item's name, and its devices by UUID. Raises `RequestFailedError`."""
        places, there = self._sampler.places, self._sampler.devices.subjects
        if wanted.of == "Cluster":
            return [("", [uuid for uuid in there if uuid in places])]
        key: Literal["model", "node"] = "model" if wanted.of == "Model" else "node"
        groups = by_place(places, subjects=there, key=key)
        if wanted.name is None:
            return sorted(groups.items())
        if wanted.name not in groups:
            raise RequestFailedError(404, reason="NotFound", message=f"there are no samples of the {key} {wanted.name}")
        uuids = groups[wanted.name]
        if wanted.of != "Device":
            return [(wanted.name, uuids)]
        return [(str(places[uuid].index), [uuid]) for uuid in sorted(uuids, key=lambda uuid: places[uuid].index)]

    async def _sum(self, wanted: SeriesQuery, *, name: str, uuids: Sequence[str], times: Grid) -> SeriesRow:
        rings = self._sampler.devices
        key = (wanted.of, wanted.name, name, times, rings.last)
        if (kept := self._sums.get(key)) is None:
            places = [self._sampler.places[uuid] for uuid in uuids]
            # A month of 8,000 devices takes 0.2 s.
            kept = self._sums[key] = await self._sampler.in_thread(
                lambda: of_devices(name, samples=rings.read(times, subjects=uuids), places=places)
            )
            if len(self._sums) > _MOST_KEPT:
                self._sums.popitem(last=False)
        return kept

    def _namespaces(self, wanted: SeriesQuery, *, times: Grid, sees: Visibility) -> list[SeriesRow]:
        """One item for each namespace that the caller may list, those that hold most first."""
        if wanted.of != "Namespace":
            return []
        rings = self._sampler.namespaces
        seen = [each for each in rings.subjects if sees.sees(each) and wanted.name in {None, each}]
        if wanted.name is not None and not seen:
            message = f"there are no samples of the namespace {wanted.name}"
            raise RequestFailedError(404, reason="NotFound", message=message)
        rows = [of_holdings(each, samples=rings.read(times, subjects=[each])) for each in seen]
        return sorted(rows, key=lambda row: (-_total(row.promised), row.name))[:_MOST_NAMESPACES]

    async def _job(self, wanted: SeriesQuery, *, since: int | None, until: int, sees: Visibility) -> Series:
        """The curves of a job, also of one that has ended: by default from its start to its end."""
        namespace, name = wanted.namespace, wanted.name or ""
        if namespace is None:
            raise _invalid("namespace is missing: of=Job is asked of one job, so add namespace=NAMESPACE")
        message = f"there are no samples of a job {name} in namespace {namespace} that you may list"
        missing = RequestFailedError(404, reason="NotFound", message=message)
        if not sees.sees(namespace):
            raise missing
        job = self._cache.jobs.get(f"{namespace}/{name}")
        curve = await self._sampler.curve(namespace, name=name, uid=None if job is None else job.metadata.uid)
        if curve is None:
            raise missing
        whole = curve.samples()
        samples = between(whole, since=whole.start if since is None else since, until=until)
        marks = self._marks(
            since=min(samples.start, curve.start) - _LATE,
            until=until,
            concerns=lambda mark: (mark.row.namespace, mark.row.job) == (namespace, name),
        )
        row = of_holdings(name, samples=samples, namespace=namespace)
        return self._answer(samples.start, step=samples.step, items=[row], marks=marks)

    def _concerns(self, wanted: SeriesQuery, *, sees: Visibility) -> Callable[[Mark], bool]:
        """Whether a mark is one of the subject's jobs, and the caller may list that job.

        Of what has thousands of jobs, starts and ends are too many.
        """
        if wanted.of == "Namespace":
            own = wanted.name
            return lambda mark: (
                mark.row.kind in _RARE and sees.sees(mark.row.namespace) and own in {None, mark.row.namespace}
            )
        if wanted.of == "Cluster":
            return lambda mark: mark.row.kind in _RARE and sees.sees(mark.row.namespace)
        if wanted.of == "Model":
            places = self._sampler.places.values()
            nodes = {each.node for each in places if wanted.name in {None, each.model}}
            return lambda mark: (
                mark.row.kind in _RARE and sees.sees(mark.row.namespace) and not nodes.isdisjoint(mark.row.nodes)
            )
        nodes = {wanted.name or ""}
        return lambda mark: sees.sees(mark.row.namespace) and not nodes.isdisjoint(mark.row.nodes)

    def _marks(self, *, since: int, until: int, concerns: Callable[[Mark], bool]) -> list[MarkRow]:
        return [each.row for each in self._sampler.marks(since=since, until=until, concerns=concerns)]

    def _answer(self, start: int, *, step: int, items: Sequence[SeriesRow], marks: Sequence[MarkRow]) -> Series:
        kept = self._sampler.since
        return Series(
            since=timestamp(datetime.fromtimestamp(start, UTC)),
            step_seconds=step,
            kept_since=None if kept is None else timestamp(kept),
            items=list(items),
            marks=list(marks[-_MOST_MARKS:]),
            marks_left_out=max(0, len(marks) - _MOST_MARKS),
        )


def _total(values: Values) -> float:
    return sum(each or 0.0 for each in values or ())


def _invalid(message: str) -> RequestFailedError:
    return RequestFailedError(422, reason="Invalid", message=message)
