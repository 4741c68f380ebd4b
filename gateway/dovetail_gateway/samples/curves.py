"""The samples of one job, from its start to its end: as many points for a year as for an hour. Pure."""

import struct
from typing import Final, Self

import numpy as np

from dovetail_gateway.samples.columns import HELD, Floats
from dovetail_gateway.samples.rings import STEP_SECONDS, Samples

MOST_POINTS: Final = 240
_FIRST_POINTS: Final = 16
# The format, the start and the step.
_HEAD: Final = struct.Struct("<iqi")
_FORMAT: Final = 2
_COLUMNS: Final = len(HELD)
# A sample may lack memory and power, so each has a count of its own. All other columns have that of `promised`.
_COUNTED: Final = [at for at, column in enumerate(HELD) if column.name in {"promised", "memory_used", "power"}]
_COUNTS: Final = len(_COUNTED)
_COUNT_OF: Final = [_COUNTED.index(at) if at in _COUNTED else 0 for at in range(_COLUMNS)]
_MOST_SAMPLES: Final = np.iinfo(np.uint16).max


class Curve:
    """The mean of the samples of each step. When the points are used up, two steps become one. Mutable."""

    def __init__(self, start: int, *, step: int = STEP_SECONDS) -> None:
        self.start = start // STEP_SECONDS * STEP_SECONDS
        self.step = step
        self._values = np.full((_FIRST_POINTS, _COLUMNS), np.nan, np.float32)
        # How many samples each point has.
        self._counts = np.zeros((_FIRST_POINTS, _COUNTS), np.uint16)
        self._length = 0

    @property
    def end(self) -> int:
        """The end of its last step."""
        return self.start + self._length * self.step

    def add(self, at: int, *, values: Floats) -> None:
        """Add a sample: one value for each column of `columns.HELD`. One before the start is left out."""
        if at < self.start:
            return
        while (at - self.start) // self.step >= MOST_POINTS:
            self._halve()
        point = (at - self.start) // self.step
        self._make_room(point + 1)
        counts, before = self._counts[point].astype(np.uint32), self._values[point]
        known = ~np.isnan(values)
        mean = np.where(np.isnan(before), values, before + (values - before) / (counts[_COUNT_OF] + 1))
        # The hottest device of the job, as in the samples of namespaces.
        hottest = [position for position, column in enumerate(HELD) if column.fold == "max"]
        mean[hottest] = np.fmax(before[hottest], values[hottest])
        self._values[point] = np.where(known, mean, before)
        self._counts[point] = np.minimum(counts + known[_COUNTED], _MOST_SAMPLES)

    def samples(self) -> Samples:
        """Its points as samples of one subject."""
        values = self._values[: self._length]
        found = {column.name: values[:, [position]] for position, column in enumerate(HELD)}
        return Samples(start=self.start, step=self.step, values=found)

    def encode(self) -> bytes:
        """Its points in bytes."""
        kept, counts = self._values[: self._length], self._counts[: self._length]
        head = _HEAD.pack(_FORMAT, self.start, self.step)
        return head + counts.astype("<u2").tobytes() + kept.astype("<f4").tobytes()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The curve of these bytes. Raises `ValueError` for other bytes."""
        point = 2 * _COUNTS + 4 * _COLUMNS
        length, rest = divmod(len(data) - _HEAD.size, point)
        if len(data) < _HEAD.size or rest or length > MOST_POINTS:
            raise ValueError(f"{len(data)} bytes are no curve")
        form, start, step = _HEAD.unpack_from(data)
        if form != _FORMAT:
            raise ValueError(f"{len(data)} bytes are no curve of format {_FORMAT}")
        found = cls(start, step=step)
        found._make_room(length)
        counts = np.frombuffer(data, "<u2", length * _COUNTS, _HEAD.size)
        found._counts[:length] = counts.reshape(length, _COUNTS)
        values = np.frombuffer(data, "<f4", length * _COLUMNS, _HEAD.size + 2 * _COUNTS * length)
        found._values[:length] = values.reshape(length, _COLUMNS)
        return found

    def _make_room(self, length: int) -> None:
        self._length = max(self._length, length)
        room = len(self._counts)
        if self._length <= room:
            return
        size = min(MOST_POINTS, max(self._length, 2 * room))
        values = np.full((size, _COLUMNS), np.nan, np.float32)
        counts = np.zeros((size, _COUNTS), np.uint16)
        values[:room], counts[:room] = self._values, self._counts
        self._values, self._counts = values, counts

    def _halve(self) -> None:
        """Join each two steps to one."""
        values = np.full((MOST_POINTS, _COLUMNS), np.nan, np.float32)
        counts = np.zeros((MOST_POINTS, _COUNTS), np.uint16)
        values[: len(self._values)], counts[: len(self._counts)] = self._values, self._counts
        pairs, weights = values.reshape(-1, 2, _COLUMNS), counts.reshape(-1, 2, _COUNTS)
        for position, column in enumerate(HELD):
            figures = pairs[:, :, position]
            if column.fold == "max":
                joined = np.fmax(figures[:, 0], figures[:, 1])
            else:
                known = np.where(np.isnan(figures), 0, weights[:, :, _COUNT_OF[position]])
                total = known.sum(axis=1)
                mean = (np.nan_to_num(figures) * known).sum(axis=1) / np.maximum(total, 1)
                joined = np.where(total > 0, mean, np.nan)
            values[: len(pairs), position] = joined
        values[len(pairs) :] = np.nan
        counts[: len(pairs)] = np.minimum(weights.sum(axis=1, dtype=np.uint32), _MOST_SAMPLES)
        counts[len(pairs) :] = 0
        self._values, self._counts = values, counts
        self._length = -(-self._length // 2)
        self.step *= 2
