"""The running jobs that may move, in columns: where each part is, and what its restart loses."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dovetail.fragmentation.capacity import Bools, Floats, Ints
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape

# What a restart takes besides the lost work: the image is there, but the process loads its data and its checkpoint.
RESTART_SECONDS: Final = 60.0
_FIRST_ROWS: Final = 256


class Residents:
    """One row for each part of a job, such as a worker, on nodes with up to `width` devices.

    - `node`, `share_milli`, `gpus`, `shape` [R]: where a part is, and what it holds; the node of an unused row is -1
    - `host` [R, 2]: its CPU milli and memory MiB
    - `devices` [R, width]: the devices that it holds
    - `milli`, `started`, `saved_every` [R]: of its whole job; seconds, and infinite where nothing is saved
    """

    def __init__(self, *, width: int) -> None:
        self.shapes: list[Shape] = []
        self._codes: dict[Shape, int] = {}
        self._keys: list[str] = [""] * _FIRST_ROWS
        self._rows: dict[str, list[int]] = {}
        self._parts: dict[str, tuple[Choice, ...]] = {}
        self._unused = list(range(_FIRST_ROWS))[::-1]
        self.node: Ints = np.full(_FIRST_ROWS, -1)
        self.share_milli: Ints = np.zeros(_FIRST_ROWS, dtype=np.int64)
        self.gpus: Ints = np.zeros(_FIRST_ROWS, dtype=np.int64)
        self.shape: Ints = np.zeros(_FIRST_ROWS, dtype=np.int64)
        self.host: Ints = np.zeros((_FIRST_ROWS, 2), dtype=np.int64)
        self.devices: Bools = np.zeros((_FIRST_ROWS, width), dtype=np.bool_)
        self.milli: Floats = np.zeros(_FIRST_ROWS)
        self.started: Floats = np.zeros(_FIRST_ROWS)
        self.saved_every: Floats = np.zeros(_FIRST_ROWS)

    def __len__(self) -> int:
        return len(self._parts)

    def parts(self, key: str) -> tuple[Choice, ...]:
        """Where the parts of a job are."""
        return self._parts[key]

    def key(self, row: int) -> str:
        """The job of a row."""
        return self._keys[row]

    def add(self, key: str, *, parts: Sequence[Choice], started: float, saved_every: float = float("inf")) -> None:
        """Add a job that runs since `started`, in seconds, and saves its work every so many seconds."""
        self._parts[key] = tuple(parts)
        rows = self._rows[key] = [self._unused_row() for _ in parts]
        for row, part in zip(rows, parts, strict=True):
            shape = part.shape
            self._keys[row] = key
            self.node[row], self.share_milli[row], self.gpus[row] = part.node, shape.share_milli, shape.gpus
            self.shape[row] = self._code(shape)
            self.host[row] = shape.cpu_milli, shape.memory_mib
            self.devices[row] = False
            self.devices[row, list(part.devices)] = True
        self.milli[rows] = sum(part.shape.gpu_milli for part in parts)
        self.started[rows], self.saved_every[rows] = started, saved_every

    def remove(self, key: str) -> None:
        """Remove a job."""
        rows = self._rows.pop(key)
        del self._parts[key]
        self.node[rows] = -1
        self._unused += rows

    def hide(self, key: str) -> None:
        """Leave a job out, until `show`."""
        self.node[self._rows[key]] = -1

    def show(self, key: str) -> None:
        """Undo `hide`."""
        self.node[self._rows[key]] = [part.node for part in self._parts[key]]

    def on(self, node: int) -> list[int]:
        """The rows of the parts on a node, ascending."""
        found: list[int] = (self.node == node).nonzero()[0].tolist()
        return found

    def lost_seconds(self, *, now: float) -> Floats:
        """The device-seconds that a restart of each row's job loses at most, [R]: unsaved work, and the restart."""
        return self._lost(slice(None), now=now)

    def lost_of(self, key: str, *, now: float) -> float:
        """The same for one job."""
        return float(self._lost(self._rows[key][:1], now=now)[0])

    def age_of(self, key: str, *, now: float) -> float:
        """How long a job has run, in seconds."""
        return max(0.0, now - float(self.started[self._rows[key][0]]))

    def _lost(self, rows: Any, *, now: float) -> Floats:
        lost: Floats = np.minimum(np.maximum(now - self.started[rows], 0.0), self.saved_every[rows])
        lost += RESTART_SECONDS
        lost *= self.milli[rows] / WHOLE_MILLI
        return lost

    def _code(self, shape: Shape) -> int:
        if shape not in self._codes:
            self._codes[shape] = len(self.shapes)
            self.shapes.append(shape)
        return self._codes[shape]

    def _unused_row(self) -> int:
        if not self._unused:
            self._grow()
        return self._unused.pop()

    def _grow(self) -> None:
        size = len(self.node)
        for name in ("node", "share_milli", "gpus", "shape", "host", "devices", "milli", "started", "saved_every"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
        self.node[size:] = -1
        self._keys += [""] * size
        self._unused = list(range(size, 2 * size))[::-1]
