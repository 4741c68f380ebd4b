"""Samples of many subjects by time: the last hour in fine steps, the past in coarser ones. Pure.

Each step of time has one place, so a sample that is taken or read twice is there once, also if two gateways wrote it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail_gateway.samples.columns import Column, Floats

_FIRST_CAPACITY: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Steps of time of one length, of which the last `count` are kept."""

    seconds: int
    count: int

    @property
    def span(self) -> int:
        """How many seconds it reaches back."""
        return self.seconds * self.count


# An hour, a day, a week and a month.
TIERS: Final = (
    Tier(seconds=30, count=120),
    Tier(seconds=300, count=288),
    Tier(seconds=1800, count=336),
    Tier(seconds=7200, count=372),
)
STEP_SECONDS: Final = TIERS[0].seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The samples of one step of time: the subjects that have any, and their columns one after the other."""

    tier: int
    at: int
    subjects: tuple[str, ...]
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Samples at `start`, `start + step`, …: each column as values [times, subjects]; NaN where none was taken."""

    start: int
    step: int
    values: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The times of an answer: `count` steps of a tier, from `start` on."""

    tier: int
    start: int
    count: int

    @property
    def step(self) -> int:
        """The seconds of a step."""
        return TIERS[self.tier].seconds

    @property
    def end(self) -> int:
        """The end of the last step."""
        return self.start + self.count * self.step

    def since(self, start: int) -> "Grid":
        """The steps from that one on."""
        return Grid(tier=self.tier, start=start, count=(self.end - start) // self.step)


def grid(*, since: int, until: int, now: int) -> Grid:
    """The finest steps that reach back to `since`, at least one and at most as many as are kept."""
    # A clock that is behind this one asks for a little more than an hour.
    reach = (each for each, kept in enumerate(TIERS) if now - since <= kept.span + kept.span // 20)
    tier = next(reach, len(TIERS) - 1)
    seconds, count = TIERS[tier].seconds, TIERS[tier].count
    end = -(-until // seconds) * seconds
    # Without a step, Prometheus would refuse the query: who asks since this moment gets the last step before it.
    start = min(max(since // seconds * seconds, end - seconds * count), end - seconds)
    return Grid(tier=tier, start=start, count=(end - start) // seconds)


def tiers_at(at: int, *, now: int) -> list[Grid]:
    """The one step around a time in each tier that reaches back to it, the finest first."""
    first = grid(since=at, until=at + 1, now=now).tier
    return [
        Grid(tier=tier, start=at // TIERS[tier].seconds * TIERS[tier].seconds, count=1)
        for tier in range(first, len(TIERS))
    ]


class Rings:
    """The samples of the subjects of one kind. Mutable."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        # When each slot's subject was last sampled.
        self._seen = np.zeros(0, np.int64)
        self._times = [np.full(tier.count, -1, np.int64) for tier in TIERS]
        self._kept = [{each.name: np.empty((tier.count, 0), each.dtype) for each in columns} for tier in TIERS]
        self._last = -1
        # Counts rows of other processes: unlike samples of now, they change the past.
        self.revision = 0

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, subject: str) -> bool:
        return subject in self._slots

    @property
    def subjects(self) -> list[str]:
        """The subjects of which samples are kept."""
        return list(self._slots)

    @property
    def last(self) -> int:
        """The step of the latest sample; -1 before the first one."""
        return self._last

    @property
    def first(self) -> int | None:
        """The earliest step of time that has a sample; None without any."""
        found = [int(times[times >= 0].min()) for times in self._times if (times >= 0).any()]
        return min(found, default=None)

    @property
    def bytes(self) -> int:
        """The memory of the samples."""
        return sum(each.nbytes for kept in self._kept for each in kept.values())

    def put(self, at: int, *, subjects: Sequence[str], values: Floats) -> list[Row]:
        """Put the samples of the step of time around `at`: values [subjects, columns].

        Returns the rows that are complete: that of the step, and those of coarser steps that ended before it.
        """
        step = at // STEP_SECONDS * STEP_SECONDS
        complete = self._complete(step)
        slots = self._slots_of(subjects, at=step)
        for position, column in enumerate(self.columns):
            row = np.full(len(self._seen), np.nan, np.float32)
            row[slots] = values[:, position]
            self._kept[0][column.name][self._place(0, step)] = column.encode(row)
        self._times[0][self._place(0, step)] = step
        self._last = max(self._last, step)
        self._fold(step)
        return [*complete, self.row(0, at=step)]

    def row(self, tier: int, *, at: int) -> Row:
        """The samples of a step of time that is kept."""
        place = self._place(tier, at)
        subjects, slots = list(self._slots), np.fromiter(self._slots.values(), np.int64, len(self._slots))
        kept = {name: values[place, slots] for name, values in self._kept[tier].items()}
        there = np.zeros(len(slots), bool)
        for column in self.columns:
            there |= ~np.isnan(column.decode(kept[column.name]))
        data = b"".join(kept[column.name][there].tobytes() for column in self.columns)
        return Row(tier=tier, at=at, subjects=tuple(subjects[each] for each in np.flatnonzero(there)), data=data)

    def restore(self, row: Row) -> None:
        """Put a row that was kept elsewhere. Raises `ValueError` for one of other columns."""
        if len(row.data) != len(row.subjects) * sum(column.dtype.itemsize for column in self.columns):
            raise ValueError(f"{len(row.data)} bytes are no samples of {len(row.subjects)} subjects")
        self.revision += 1
        slots, place, offset = self._slots_of(row.subjects, at=row.at), self._place(row.tier, row.at), 0
        for column in self.columns:
            found = np.frombuffer(row.data, column.dtype, len(row.subjects), offset)
            offset += found.nbytes
            kept = self._kept[row.tier][column.name]
            kept[place] = column.nothing
            kept[place, slots] = found
        self._times[row.tier][place] = row.at
        if row.tier == 0:
            self._last = max(self._last, row.at)

    def restored(self) -> None:
        """Compute the coarser steps that were not complete from the finer ones, after the last `restore`."""
        self.revision += 1
        if self._last >= 0:
            self._fold(self._last)

    def read(self, grid: Grid, *, subjects: Sequence[str]) -> Samples:
        """The samples of these subjects at the times of the grid."""
        seconds, count = TIERS[grid.tier].seconds, TIERS[grid.tier].count
        times = np.arange(grid.start, grid.start + grid.count * seconds, seconds)
        places = times // seconds % count
        there = self._times[grid.tier][places] == times
        slots = np.array([self._slots.get(each, -1) for each in subjects], np.int64)
        known = slots >= 0
        values = {}
        for column in self.columns:
            found = np.full((len(times), len(slots)), np.nan, np.float32)
            kept = self._kept[grid.tier][column.name]
            found[np.ix_(there, known)] = column.decode(kept[np.ix_(places[there], slots[known])])
            values[column.name] = found
        return Samples(start=grid.start, step=seconds, values=values)

    def _complete(self, step: int) -> list[Row]:
        """The rows of coarser steps that ended with the samples before `step`."""
        if self._last < 0:
            return []
        ended = [
            (tier, self._last // kept.seconds * kept.seconds)
            for tier, kept in enumerate(TIERS)
            if tier and step // kept.seconds > self._last // kept.seconds
        ]
        return [self.row(tier, at=at) for tier, at in ended]

    def _fold(self, step: int) -> None:
        """Compute the coarser steps around `step`, complete or not, each from those of the tier before it."""
        for tier in range(1, len(TIERS)):
            fine, coarse = TIERS[tier - 1], TIERS[tier]
            at = step // coarse.seconds * coarse.seconds
            times = np.arange(at, at + coarse.seconds, fine.seconds)
            places = times // fine.seconds % fine.count
            places = places[self._times[tier - 1][places] == times]
            if not len(places):
                continue
            place = self._place(tier, at)
            for column in self.columns:
                values = column.decode(self._kept[tier - 1][column.name][places])
                self._kept[tier][column.name][place] = column.encode(column.folded(values))
            self._times[tier][place] = at

    @staticmethod
    def _place(tier: int, at: int) -> int:
        return at // TIERS[tier].seconds % TIERS[tier].count

    def _slots_of(self, subjects: Sequence[str], *, at: int) -> npt.NDArray[np.int64]:
        """The slots of these subjects; a new one gets a free slot, or that of a subject that has no samples left."""
        unknown = [each for each in subjects if each not in self._slots]
        # One that comes back after longer than a month keeps its slot: it is not among those to forget.
        known = [slot for each in subjects if (slot := self._slots.get(each)) is not None]
        self._seen[known] = np.maximum(self._seen[known], at)
        if len(unknown) > len(self._free):
            self.forget(before=at - TIERS[-1].span)
        if len(unknown) > len(self._free):
            self._grow(len(self._slots) + len(unknown))
        for each in unknown:
            self._slots[each] = self._free.pop()
        slots = np.fromiter((self._slots[each] for each in subjects), np.int64, len(subjects))
        self._seen[slots] = np.maximum(self._seen[slots], at)
        return slots

    def forget(self, *, before: int) -> None:
        """Drop the subjects whose latest sample is older."""
        for subject, slot in [(each, slot) for each, slot in self._slots.items() if self._seen[slot] < before]:
            del self._slots[subject]
            self._free.append(slot)
            self._seen[slot] = 0
            for kept in self._kept:
                for column in self.columns:
                    kept[column.name][:, slot] = column.nothing

    def _grow(self, least: int) -> None:
        before = len(self._seen)
        capacity = max(_FIRST_CAPACITY, least + least // 8)
        self._seen = np.concatenate([self._seen, np.zeros(capacity - before, np.int64)])
        for tier, kept in enumerate(self._kept):
            for column in self.columns:
                grown: npt.NDArray[Any] = np.full((TIERS[tier].count, capacity), column.nothing, column.dtype)
                grown[:, :before] = kept[column.name]
                kept[column.name] = grown
        self._free += range(capacity - 1, before - 1, -1)
