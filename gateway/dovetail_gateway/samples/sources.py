"""Where the curves of devices come from: the rings of this gateway, or another source with the same method."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

from dovetail.answers.use.series import SeriesRow
from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import SaidError
from dovetail_gateway.samples.rings import Grid
from dovetail_gateway.samples.sampler import Sampler
from dovetail_gateway.samples.series import by_place, of_devices

# What has devices.
Group = Literal["Cluster", "Model", "Node", "Device"]
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


class RingCurves:
    """The curves from the rings of this gateway."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._kept: OrderedDict[tuple[Any, ...], SeriesRow] = OrderedDict()

    async def rows(self, of: Group, *, name: str | None, times: Grid) -> list[SeriesRow]:
        """The curves of the subject. Raises `NoSamplesError`."""
        return [await self._sum((of, name, group, times), uuids=uuids) for group, uuids in self._groups(of, name=name)]

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

    async def _sum(self, key: tuple[Group, str | None, str, Grid], *, uuids: Sequence[str]) -> SeriesRow:
        rings = self._sampler.devices
        *_, group, times = key
        if (kept := self._kept.get((*key, rings.last))) is None:
            places = [self._sampler.places[uuid] for uuid in uuids]
            # A month of 8,000 devices takes 0.2 s.
            kept = self._kept[*key, rings.last] = await self._sampler.in_thread(
                lambda: of_devices(group, samples=rings.read(times, subjects=uuids), places=places)
            )
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return kept
