"""Where the curves of devices come from: the rings of this gateway, or another source with the same method."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import msgspec

from dovetail.answers.use.series import SeriesRow
from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import SaidError
from dovetail_gateway.samples.readings import Place
from dovetail_gateway.samples.rings import Grid
from dovetail_gateway.samples.sampler import Sampler
from dovetail_gateway.samples.series import by_place, of_devices

# What has devices.
Group = Literal["Cluster", "Model", "Node", "Device"]
# The fields of a row that have a value for each step.
_CURVES: Final = tuple(name for name in SeriesRow.__struct_fields__ if name not in {"namespace", "name"})
# Of sums over devices, which are the same for all who ask.
MOST_KEPT: Final = 64


class NoSamplesError(SaidError):
    """A node or a model of which there are no samples."""


class SourceError(Exception):
    """The source does not answer, in a sentence that names it."""


class DeviceCurves(Protocol):
    """A source of the curves of devices."""

    async def rows(self, of: Group, *, name: str | None, times: Grid) -> list[SeriesRow]:
        """The curves of the cluster, of all models or one, of a node, or of each device of a node.

        Raises `NoSamplesError` and `SourceError`.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    """The curves of devices at the times of a grid, as of the sample at `last`.

    `revision` is that of the rings: samples of another process change the past.
    """

    row: SeriesRow
    times: Grid
    last: int
    uuids: Sequence[str]
    places: Sequence[Place]
    revision: int

    def has(self, times: Grid, *, last: int) -> bool:
        """Whether all values of these times are here, where the last sample is that at `last`."""
        is_within = self.times.start <= times.start and times.end <= self.times.end
        return is_within and (self.last == last or self.settled(times) == times.end)

    def settled(self, times: Grid) -> int:
        """Until when these times have their values here for good, at least the start of `times`."""
        if times.start < self.times.start:
            return times.start
        # The step of the last sample goes on.
        return min(times.end, max(times.start, min(self.last // times.step * times.step, self.times.end)))

    def between(self, start: int, *, end: int) -> SeriesRow:
        """The values of these steps."""
        begin, stop = ((each - self.times.start) // self.times.step for each in (start, end))
        return _each_value(self.row, of=lambda values: values[begin:stop])


class RingCurves:
    """The curves from the rings of this gateway."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._kept: OrderedDict[tuple[Any, ...], _Curve] = OrderedDict()

    async def rows(self, of: Group, *, name: str | None, times: Grid) -> list[SeriesRow]:
        """The curves of the subject. Raises `NoSamplesError`."""
        return [
            await self._sum(group, key=(of, name, group, times.tier), uuids=uuids, times=times)
            for group, uuids in self._groups(of, name=name)
        ]

    def _groups(self, of: Group, *, name: str | None) -> list[tuple[str, list[str]]]:
        """Each item's name, and its devices by UUID."""
        places, there = self._sampler.places, self._sampler.devices.subjects
        if of == "Cluster":
            return [("", [uuid for uuid in there if uuid in places])]
        key: Literal["model", "node"] = "model" if of == "Model" else "node"
        groups = by_place(places, subjects=there, key=key)
        if name is None:
            return sorted(groups.items())
        if name not in groups:
            no_samples = says.NO_SAMPLES_OF_MODEL if key == "model" else says.NO_SAMPLES_OF_NODE
            raise NoSamplesError(no_samples(name=name))
        uuids = groups[name]
        if of != "Device":
            return [(name, uuids)]
        return [(str(places[uuid].index), [uuid]) for uuid in sorted(uuids, key=lambda uuid: places[uuid].index)]

    async def _sum(self, group: str, *, key: tuple[Any, ...], uuids: Sequence[str], times: Grid) -> SeriesRow:
        """The sum over these devices. Only steps that are new, or that go on, are read from the rings."""
        rings, last = self._sampler.devices, self._sampler.devices.last
        places = [self._sampler.places[uuid] for uuid in uuids]
        kept = self._kept.get(key)
        if kept is not None and (kept.revision, kept.uuids, kept.places) != (rings.revision, uuids, places):
            kept = None
        if kept is not None and kept.has(times, last=last):
            return kept.between(times.start, end=times.end)
        settled = times.start if kept is None else kept.settled(times)
        rest, revision = times.since(settled), rings.revision
        # A month of 8,000 devices takes 0.2 s.
        row = await self._sampler.in_thread(
            lambda: of_devices(group, samples=rings.read(rest, subjects=uuids), places=places)
        )
        if kept is not None and settled > times.start:
            row = _joined(kept.between(times.start, end=settled), later=row)
        self._kept[key] = _Curve(row=row, times=times, last=last, uuids=uuids, places=places, revision=revision)
        self._kept.move_to_end(key)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return row


def _each_value(row: SeriesRow, *, of: Callable[[Sequence[float | None]], Sequence[float | None]]) -> SeriesRow:
    found = {name: of(values) for name in _CURVES if (values := getattr(row, name)) is not None}
    return msgspec.structs.replace(row, **found)


def _joined(sooner: SeriesRow, *, later: SeriesRow) -> SeriesRow:
    found = {
        name: [*before, *after]
        for name in _CURVES
        if (before := getattr(sooner, name)) is not None and (after := getattr(later, name)) is not None
    }
    return msgspec.structs.replace(later, **found)
