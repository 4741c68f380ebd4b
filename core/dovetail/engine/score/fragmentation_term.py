"""The fragmentation term of the score: what a placement leaves to those that come later. Higher is tidier.

`Tidy` is what the engine knows of it, `BestFit` its plain form, which knows nothing but the node. The priced forms are
in `fragments`.
"""

from typing import Any, Final, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from dovetail.engine.filter.device_choice import best_fit_values
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Floats, Ints
from dovetail.gpu.request import WHOLE_MILLI, GPURequest

# Rows that there is room for at first: a node that was never seen reads the last one.
FIRST_ROWS: Final = 64
# A large node of today, which amounts are measured by.
LARGE_CPU_MILLI: Final = 128_000
LARGE_GPU_MILLI: Final = 8_000
Array = TypeVar("Array", bound=npt.NDArray[Any])


class Kept(Protocol):
    """The term of one ask by row of the ledger, kept from one look to the next."""

    @property
    def size_bytes(self) -> int:
        """Memory that is taken."""
        ...

    def store(self, rows: Ints, judged: Judgement) -> None:
        """Take over a judgement of these rows."""
        ...

    def renew(self) -> None:
        """Make what is kept that of the present generation."""
        ...

    def values(self, rows: Ints) -> Floats:
        """The term of these rows, which fit and were judged; of others it means nothing."""
        ...


class Tidy(Protocol):
    """A fragmentation term. What was kept under another `generation` is to be renewed."""

    @property
    def generation(self) -> int:
        """Changes when all that is kept has to be renewed."""
        ...

    def follow(self) -> None:
        """Come up to date with the ledger."""
        ...

    def keep(self, ask: Ask) -> Kept:
        """A place to keep the term of an ask, with nothing in it yet."""
        ...

    def alone(self, judged: Judgement, *, key: str) -> Floats:
        """The term of nodes that fit, [n], as if the claim `key` did not stand: what `judged` left out."""
        ...

    def device_values(self, judged: Judgement, row: int, *, key: str) -> Floats:
        """How good each device of a node is, [d]; of those that are not free it means nothing."""
        ...


class BestFit:
    """The node with the least left over, a started device before a whole one, and the device that fits tightest."""

    generation = 0

    def follow(self) -> None:
        """Nothing: it has no memory."""

    def keep(self, ask: Ask) -> Kept:  # noqa: ARG002 - all asks are kept alike
        """A column of values."""
        return _Column()

    def alone(self, judged: Judgement, *, key: str) -> Floats:  # noqa: ARG002 - the judgement left the claim out
        """0 to 1."""
        return tidiness(judged)

    def device_values(self, judged: Judgement, row: int, *, key: str) -> Floats:  # noqa: ARG002
        """The fullest first; the emptiest for Spread."""
        return best_fit_values(judged, row)


class _Column:
    def __init__(self) -> None:
        self._values: Floats = np.zeros(FIRST_ROWS)

    @property
    def size_bytes(self) -> int:
        return self._values.nbytes

    def store(self, rows: Ints, judged: Judgement) -> None:
        self._values = grown(self._values, rows=rows)
        self._values[rows] = tidiness(judged)

    def renew(self) -> None:
        """Nothing: there is one generation."""

    def values(self, rows: Ints) -> Floats:
        return self._values[rows]


def grown(column: Array, *, rows: Ints) -> Array:
    """The column with room for these rows, at least doubled where it is too short."""
    size = int(rows.max(initial=-1)) + 1
    if size <= len(column):
        return column
    longer = np.zeros((max(size, 2 * len(column)), *column.shape[1:]), dtype=column.dtype)
    longer[: len(column)] = column
    return cast("Array", longer)


def tidiness(judged: Judgement) -> Floats:
    """How little is left over on a node, and how much of that in one piece, 0 to 1, [n]."""
    gpu = judged.ask.gpu
    return 1 - _left_over(judged) if gpu is None else 1 - (_left_over(judged) + _pieces(judged, gpu)) / 2


def _left_over(judged: Judgement) -> Floats:
    """Free CPU and devices after the placement, half the weight each, against a large node: 0 to 1. In hundredths, so
    that nodes that differ by a hair are filled one after the other."""
    columns, gpu = judged.columns, judged.ask.gpu
    cpu = (columns.cpu_free - judged.ask.cpu_milli) / LARGE_CPU_MILLI
    devices = np.where(columns.present, columns.share_left, 0).sum(axis=1) - (gpu.total_milli if gpu else 0)
    left = np.ceil((cpu + devices / LARGE_GPU_MILLI) / 2 * 100) / 100
    return np.asarray(left, dtype=np.float64).clip(0, 1)


def _pieces(judged: Judgement, gpu: GPURequest) -> Floats:
    """What the placement costs the future, 0 to 1: how much of the node's idle capacity it leaves in pieces.

    For a share: what is left on the device that it would get, and a whole device that it would break counts most. For
    whole devices: the free ones that remain, so that the node with the fewest goes first (best fit).
    """
    columns = judged.columns
    free = judged.free_devices
    width = max(1, free.shape[1])
    whole_left = (free & (columns.tenants == 0)).sum(axis=1)
    if gpu.whole:
        return np.asarray((whole_left - gpu.count) / width, dtype=np.float64).clip(0, 1)
    left_after = np.where(free, columns.share_left - gpu.share_milli, WHOLE_MILLI)
    started = np.where(columns.tenants > 0, left_after, WHOLE_MILLI).min(axis=1, initial=WHOLE_MILLI)
    # A started device beats any untouched one; among untouched ones the node with the fewest goes first.
    untouched = 0.5 + whole_left / (2 * width)
    breaks = whole_left > 0 if judged.ask.policy == "Spread" else started == WHOLE_MILLI
    return np.where(breaks, untouched, started / (2 * WHOLE_MILLI)).clip(0, 1)
