"""The ledger's free capacity as the fragmentation mathematics sees it: per node CPU, memory, and milli of each device.

A device's milli are what is left of its share, or of its memory where that is tighter. A device that can take no more
pods of any kind, or only such as take turns, has none left; nor has one of a node that takes no pods.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from dovetail.engine import columns as engine_columns
from dovetail.engine.columns import MODE_CODES, NO_MODE, Ints
from dovetail.engine.fit import FOREIGN_LIMIT
from dovetail.engine.ledger import NOTHING_READ, Ledger
from dovetail.fragmentation.columns import Columns, Room
from dovetail.requests import WHOLE_MILLI

# Rows beyond those that there are, so that a node that comes is no reason to begin anew.
_SPARE_ROWS: Final = 64
_LONGEST_LOG: Final = 1 << 20


class Mirror:
    """Columns that follow a ledger, row by row. `generation` counts how often they had to be made anew."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._position = NOTHING_READ
        self.generation = 0
        self._rooms: dict[int, Room] = {}
        self.columns = _blank(rows=0, width=1, models=())

    def follow(self) -> None:
        """Take over what changed in the ledger since the last time."""
        ledger = self._ledger
        if self._position == ledger.changes:
            return
        rows = sorted(ledger.touched_since(self._position))
        names = [ledger.name(row) for row in rows]
        rooms = _rooms(ledger, ledger.columns(names))
        if not self._has_place(rooms):
            self._begin_anew(rooms)
            rows, rooms = list(range(ledger.size)), _rooms(ledger, ledger.columns(self._names()))
        for row, room in zip(rows, rooms, strict=True):
            if self._rooms.get(row) != room:
                self._rooms[row] = room
                self.columns.become(row, room)
        self._position = ledger.changes

    @contextmanager
    def without(self, key: str) -> Iterator[None]:
        """The columns as if the claim `key` did not stand, for as long as this lasts."""
        claim = self._ledger.claim(key)
        if claim is None:
            yield
            return
        row = int(self._ledger.rows([claim.node])[0])
        with_it, without_it = (
            _rooms(self._ledger, self._ledger.columns([claim.node], without=without))[0] for without in ("", key)
        )
        self.columns.become(row, without_it)
        try:
            yield
        finally:
            self.columns.become(row, with_it)

    def _names(self) -> list[str]:
        return [self._ledger.name(row) for row in range(self._ledger.size)]

    def _has_place(self, rooms: Sequence[Room]) -> bool:
        columns = self.columns
        width = columns.left.shape[1]
        return (
            self._ledger.size <= len(columns)
            and columns.changes < _LONGEST_LOG
            and all(room.model in columns.model_names and len(room.left) <= width for room in rooms)
        )

    def _begin_anew(self, rooms: Sequence[Room]) -> None:
        size = self._ledger.size
        models = {*self.columns.model_names, *(room.model for room in rooms)}
        width = max([self.columns.left.shape[1], *(len(room.left) for room in rooms)])
        self.columns = _blank(rows=size + max(_SPARE_ROWS, size // 8), width=width, models=tuple(sorted(models)))
        self._rooms.clear()
        self.generation += 1


def _blank(*, rows: int, width: int, models: Sequence[str]) -> Columns:
    zeros = [0] * rows
    return Columns(
        cpu_milli=zeros, memory_mib=zeros, gpus=zeros, models=[""] * rows, width=width, more_models=("", *models)
    )


def _rooms(ledger: Ledger, columns: engine_columns.Columns) -> list[Room]:
    """What each node of these columns has free and in all."""
    takes = columns.known & ~columns.blocked & ~columns.node_cordoned
    usable = columns.present & columns.healthy & ~columns.cordoned & takes[:, np.newaxis]
    left = np.where(usable, left_milli(columns, guard_fraction=ledger.limits.guard_fraction), 0)
    host = np.stack([columns.cpu_free, columns.memory_free, columns.cpu_milli, columns.memory_mib])
    free_cpu, free_memory, cpu, memory = np.where(takes, host, 0).clip(min=0).tolist()
    first = np.where(columns.present[:, 0], columns.model[:, 0], -1)
    names = ledger.model_names()
    return [
        Room(
            model=names[code] if code >= 0 else "",
            cpu_milli=free_cpu[at],
            memory_mib=free_memory[at],
            left=tuple(each),
            gpus=gpus,
            cpu_capacity_milli=cpu[at],
            memory_capacity_mib=memory[at],
        )
        for at, (code, each, gpus) in enumerate(
            zip(first.tolist(), left.tolist(), usable.sum(axis=1).tolist(), strict=True)
        )
    ]


def left_milli(columns: engine_columns.Columns, *, guard_fraction: float) -> Ints:
    """Milli left of each device, by share or by memory, whichever is tighter, [n, d]."""
    usable = np.floor(columns.total * np.minimum(columns.guard, guard_fraction)).astype(np.int64)
    free_mib = np.maximum(0, usable - columns.promised - columns.foreign)
    untouched = (columns.mode == NO_MODE) & (columns.foreign <= columns.total * FOREIGN_LIMIT)
    by_share = columns.share_left
    tight = ~untouched & (free_mib < usable * by_share // WHOLE_MILLI)
    by_memory = np.where(tight, free_mib * WHOLE_MILLI // np.maximum(1, usable), by_share)
    closed = (columns.mode == MODE_CODES["Exclusive"]) | (columns.mode == MODE_CODES["TimeShared"])
    return np.where(closed, 0, by_memory).clip(0, WHOLE_MILLI)
