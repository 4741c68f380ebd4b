"""v3: what devices, namespaces and jobs used over time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from dovetail.answers.use.series import DevicesThen, MarkRow, NodeThen, Series, SeriesRow, Source, Subject, Values
from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import Sentence
from dovetail.formats.timestamps import moment, timestamp
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.samples.marks import Mark
from dovetail_gateway.samples.rings import STEP_SECONDS, Grid, grid, tiers_at
from dovetail_gateway.samples.sampler import Sampler
from dovetail_gateway.samples.series import between, of_holdings, of_nodes
from dovetail_gateway.samples.sources import DeviceCurves, Group, NoSamplesError, RingCurves, SourceError
from dovetail_gateway.v3.times import check_time
from dovetail_gateway.v3.types.series import MomentQuery, SeriesQuery

_HOUR: Final = 3600
# A job starts before its devices are first sampled.
_LATE: Final = 120
_MOST_HOLDERS: Final = 50
_MOST_MARKS: Final = 200
_RARE: Final = frozenset({"Moved", "Preempted"})
_GROUPS: Final[Mapping[Subject, Group]] = {"Cluster": "Cluster", "Model": "Model", "Node": "Node", "Device": "Device"}
_NAMED: Final = frozenset({"Node", "Device", "Job"})


class TimeSeries:
    """The handlers of `/api/v3/series` and `/api/v3/devices/then`."""

    def __init__(
        self,
        cache: ClusterCache,
        *,
        sampler: Sampler,
        prometheus: DeviceCurves | None,
        now: Callable[[], datetime],
    ) -> None:
        """`prometheus` is asked for the curves of devices first."""
        self._cache = cache
        self._sampler = sampler
        self._rings = RingCurves(sampler)
        self._prometheus = prometheus
        self._now = now

    async def get_series(self, call: Call[Nothing, SeriesQuery, Any]) -> Answer:
        """The curves of a subject. Sums over devices are for all readers, those of jobs for who may list them."""
        wanted = call.query
        since, until = self._times(wanted)
        if wanted.of in _NAMED and not wanted.name:
            raise _invalid(says.SERIES_NEEDS_NAME(of=wanted.of, subject=wanted.of.lower()))
        if wanted.of == "Job":
            return Answer(value=await self._job(wanted, since=since, until=until, sees=call.sees))
        begin = until - _HOUR if since is None else since
        times = grid(since=begin, until=until, now=int(self._now().timestamp()))
        if wanted.of in {"Namespace", "Project"}:
            found = _Found(rows=self._holders(wanted, times=times, sees=call.sees))
        else:
            found = await self._devices(wanted, of=_GROUPS[wanted.of], times=times)
        if wanted.of == "Cluster":
            found = replace(found, rows=self._with_queue(found.rows, times=times, sees=call.sees))
        marks = self._marks(since=times.start, until=until, concerns=self._concerns(wanted, sees=call.sees))
        return Answer(value=self._answer(times.start, step=times.step, found=found, marks=marks))

    async def get_devices_then(self, call: Call[Nothing, MomentQuery, Any]) -> Answer:
        """What all devices did at one time, by the gateway's own samples."""
        check_time("at", text=call.query.at)
        now, asked = int(self._now().timestamp()), int(moment(call.query.at).timestamp())
        if asked > now:
            raise _invalid(says.AFTER_NOW(at=call.query.at, now=timestamp(self._now())))
        rings, kept = self._sampler.devices, self._sampler.since
        # The sample of the step that has just begun may not have been taken yet.
        at = min(asked, rings.last) if asked - rings.last <= STEP_SECONDS else asked
        places = dict(self._sampler.places)
        there = [uuid for uuid in rings.subjects if uuid in places]

        def read() -> tuple[Grid, list[NodeThen]]:
            """The finest step of that time that has a sample; a coarse one spans a pause of the gateway."""
            steps = tiers_at(at, now=now)
            for step in steps:
                if nodes := of_nodes(rings.read(step, subjects=there), subjects=there, places=places):
                    return step, nodes
            return steps[0], []

        step, nodes = await self._sampler.in_thread(read)
        found = DevicesThen(
            since=timestamp(datetime.fromtimestamp(step.start, UTC)),
            step_seconds=step.step,
            kept_since=None if kept is None else timestamp(kept),
            nodes=nodes,
        )
        return Answer(value=found)

    def _times(self, wanted: SeriesQuery) -> tuple[int | None, int]:
        """The beginning, if one is asked for, and the end. Raises `RequestFailedError`."""
        check_time("since", text=wanted.since)
        check_time("until", text=wanted.until)
        now = int(self._now().timestamp())
        until = now + 1 if wanted.until is None else min(now + 1, int(moment(wanted.until).timestamp()))
        since = None if wanted.since is None else int(moment(wanted.since).timestamp())
        if wanted.since is not None and since is not None and since >= until:
            end = "now" if wanted.until is None else wanted.until
            raise _invalid(says.NOT_BEFORE(since=wanted.since, until=end))
        # The sample of the step that has just begun may not have been taken yet.
        sampled = self._sampler.devices.last + STEP_SECONDS
        return since, sampled if sampled < until <= sampled + STEP_SECONDS else until

    async def _devices(self, wanted: SeriesQuery, *, of: Group, times: Grid) -> "_Found":
        """The curves of devices from Prometheus if there is one and it answers, otherwise from this gateway.

        Raises `RequestFailedError`.
        """
        problem = ""
        if self._prometheus is not None:
            try:
                rows = await self._prometheus.rows(of, name=wanted.name, times=times)
                return _Found(rows=rows, source="Prometheus")
            except SourceError as error:
                problem = str(error)
            except NoSamplesError as error:
                # A node that has just come has samples here first.
                problem = str(error)
        try:
            return _Found(rows=await self._rings.rows(of, name=wanted.name, times=times), problem=problem)
        except NoSamplesError as error:
            raise RequestFailedError(404, reason="NotFound", sentence=error.sentence) from error

    def _with_queue(self, rows: Sequence[SeriesRow], *, times: Grid, sees: Visibility) -> list[SeriesRow]:
        """The cluster's curves with the queue of the jobs that the caller may list."""
        rings = self._sampler.namespaces
        seen = [each for each in rings.subjects if sees.sees(each)]
        jobs = of_holdings("", samples=rings.read(times, subjects=seen))
        queue = {name: getattr(jobs, name) for name in ("waiting", "running", "starts", "mean_wait_seconds")}
        return [msgspec.structs.replace(row, **queue) for row in rows]

    def _holders(self, wanted: SeriesQuery, *, times: Grid, sees: Visibility) -> list[SeriesRow]:
        """One item for each namespace that the caller may list, or each project there, those that hold most first."""
        rings = self._sampler.namespaces if wanted.of == "Namespace" else self._sampler.projects
        groups: dict[str, list[str]] = {}
        for subject in rings.subjects:
            namespace, _, project = subject.partition("/")
            name = project or namespace
            if sees.sees(namespace) and wanted.name in {None, name}:
                groups.setdefault(name, []).append(subject)
        if wanted.name is not None and not groups:
            no_samples = says.NO_SAMPLES_OF_NAMESPACE if wanted.of == "Namespace" else says.NO_SAMPLES_OF_PROJECT
            raise RequestFailedError(404, reason="NotFound", sentence=no_samples(name=wanted.name))
        rows = [of_holdings(name, samples=rings.read(times, subjects=own)) for name, own in groups.items()]
        return sorted(rows, key=lambda row: (-_total(row.promised), row.name))[:_MOST_HOLDERS]

    async def _job(self, wanted: SeriesQuery, *, since: int | None, until: int, sees: Visibility) -> Series:
        """The curves of a job, also of one that has ended: by default from its start to its end."""
        namespace, name = wanted.namespace, wanted.name or ""
        if namespace is None:
            raise _invalid(says.SERIES_NEEDS_NAMESPACE())
        sentence = says.NO_SAMPLES_OF_JOB(job=name, namespace=namespace)
        missing = RequestFailedError(404, reason="NotFound", sentence=sentence)
        if not sees.sees(namespace):
            raise missing
        job = self._cache.jobs.get(f"{namespace}/{name}")
        found = await self._sampler.curve(namespace, name=name, uid=None if job is None else job.metadata.uid)
        if found is None:
            raise missing
        whole = found.curve.samples()
        samples = between(whole, since=whole.start if since is None else since, until=until)
        marks = self._marks(
            since=min(samples.start, whole.start) - _LATE,
            until=until,
            concerns=lambda mark: mark.uid == found.uid,
        )
        row = of_holdings(name, samples=samples, namespace=namespace)
        return self._answer(samples.start, step=samples.step, found=_Found(rows=[row]), marks=marks)

    def _concerns(self, wanted: SeriesQuery, *, sees: Visibility) -> Callable[[Mark], bool]:
        """Whether a mark is one of the subject's jobs, and the caller may list that job.

        Of what has thousands of jobs, starts and ends are too many.
        """
        if wanted.of == "Namespace":
            own = wanted.name
            return lambda mark: (
                mark.row.kind in _RARE and sees.sees(mark.row.namespace) and own in {None, mark.row.namespace}
            )
        if wanted.of == "Project":
            # A mark does not say of which project its job was.
            return lambda _mark: False
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

    def _answer(self, start: int, *, step: int, found: "_Found", marks: Sequence[MarkRow]) -> Series:
        kept = datetime.fromtimestamp(start, UTC) if found.source == "Prometheus" else self._sampler.since
        return Series(
            since=timestamp(datetime.fromtimestamp(start, UTC)),
            step_seconds=step,
            kept_since=None if kept is None else timestamp(kept),
            items=list(found.rows),
            marks=list(marks[-_MOST_MARKS:]),
            marks_left_out=max(0, len(marks) - _MOST_MARKS),
            source=found.source,
            source_problem=found.problem,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Curves, where they come from, and why they do not come from Prometheus."""

    rows: Sequence[SeriesRow]
    source: Source = "Dovetail"
    problem: str = ""


def _total(values: Values) -> float:
    return sum(each or 0.0 for each in values or ())


def _invalid(sentence: Sentence) -> RequestFailedError:
    return RequestFailedError(422, reason="Invalid", sentence=sentence)
