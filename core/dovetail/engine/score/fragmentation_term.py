"""The fragmentation term of the score: what a placement leaves for later jobs. Higher is better.

`FragmentationTerm` is the interface, `BestFit` its plain form, which looks at one node alone. The priced forms are in
`live_fragmentation`.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any, Final, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from dovetail.engine.filter.device_choice import FreeDevices, best_fit_values
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.filter.single_node import SingleNode
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Floats, Ints, count_devices
from dovetail.gpu.request import WHOLE_MILLI, GPURequest

# Initial number of rows.
FIRST_ROWS: Final = 64
# A large node of 2026; amounts are relative to it.
LARGE_CPU_MILLI: Final = 128_000
LARGE_GPU_MILLI: Final = 8_000
Array = TypeVar("Array", bound=npt.NDArray[Any])


class CachedTerm(Protocol):
    """The term of one ask for each row of the ledger, cached between requests."""

    @property
    def size_bytes(self) -> int:
        """Memory in use, in bytes."""
        ...

    def store(self, rows: Ints, *, judged: Judgement) -> None:
        """Store a judgement of these `rows` [n] of the ledger."""
        ...

    def store_nodes(self, rows: Ints, *, judged: Sequence[SingleNode]) -> None:
        """Store judgements of these few `rows` [n] of the ledger, one by one."""
        ...

    def renew(self) -> None:
        """Recompute everything for the current generation."""
        ...

    def values(self, rows: Ints) -> Floats:
        """The term of these `rows` [n], [n]; any number for rows that do not fit or were not stored."""
        ...


class FragmentationTerm(Protocol):
    """A fragmentation term. Cached terms of another `generation` are stale."""

    @property
    def generation(self) -> int:
        """Changes when every cached term becomes stale."""
        ...

    def follow(self) -> None:
        """Apply the changes of the ledger."""
        ...

    def of_profile(self, profile: str) -> "FragmentationTerm":
        """The term of requests for MIG instances of a profile, over the ledger of that profile."""
        ...

    def keep(self, ask: Ask) -> CachedTerm:
        """An empty cache for the term of an ask."""
        ...

    def alone(self, judged: Judgement, *, key: str) -> Floats:
        """The term of nodes that fit, [n], without the claim `key`, which `judged` leaves out too."""
        ...

    def device_values(self, free: FreeDevices, *, key: str) -> Sequence[float]:
        """How good each free device of a node is, without the claim `key`; one value for each of `free.slots`."""
        ...


class BestFit:
    """Prefers the node with the least left over, a device in use to an empty one, and the tightest device."""

    generation = 0

    def follow(self) -> None:
        """Does nothing: best fit keeps no state."""

    def of_profile(self, profile: str) -> "BestFit":  # noqa: ARG002 - the same for GPUs and instances
        """This term: it keeps no state."""
        return self

    def keep(self, ask: Ask) -> CachedTerm:  # noqa: ARG002 - the same for every ask
        """One value for each row."""
        return _Column()

    def alone(self, judged: Judgement, *, key: str) -> Floats:  # noqa: ARG002 - the judgement leaves the claim out
        """The term of nodes that fit, 0 to 1, [n]."""
        return compactness(judged)

    def device_values(self, free: FreeDevices, *, key: str) -> Sequence[float]:  # noqa: ARG002
        """The highest value for the fullest device; for Spread, for the emptiest."""
        return best_fit_values(free)


class _Column:
    def __init__(self) -> None:
        self._values: Floats = np.zeros(FIRST_ROWS)

    @property
    def size_bytes(self) -> int:
        return self._values.nbytes

    def store(self, rows: Ints, *, judged: Judgement) -> None:
        self._values = grown(self._values, rows=rows)
        self._values[rows] = compactness(judged)

    def store_nodes(self, rows: Ints, *, judged: Sequence[SingleNode]) -> None:
        self._values = grown(self._values, rows=rows)
        self._values[rows] = [compactness_of_node(one) for one in judged]

    def renew(self) -> None:
        """Does nothing: there is one generation."""

    def values(self, rows: Ints) -> Floats:
        # A row that never fit may be beyond the last one.
        return self._values.take(rows, mode="clip")


def grown(column: Array, *, rows: Ints) -> Array:
    """The column [size, ...] with room for these `rows` [n]; at least twice as long if it was too short."""
    size = int(rows.max(initial=-1)) + 1
    if size <= len(column):
        return column
    longer = np.zeros((max(size, 2 * len(column)), *column.shape[1:]), dtype=column.dtype)
    longer[: len(column)] = column
    return cast("Array", longer)


def compactness(judged: Judgement) -> Floats:
    """How little a placement leaves on a node, and how much of the rest stays in one piece, 0 to 1, [n]."""
    gpu = judged.ask.gpu
    return 1 - _left_over(judged) if gpu is None else 1 - (_left_over(judged) + _pieces(judged, gpu=gpu)) / 2


def _left_over(judged: Judgement) -> Floats:
    """Free CPU and devices after the placement, with equal weights, relative to a large node: 0 to 1, [n].

    Rounded up to hundredths, so that nodes that hardly differ fill up one after the other.
    """
    columns, gpu = judged.columns, judged.ask.gpu
    cpu = (columns.cpu_free - judged.ask.cpu_milli) / LARGE_CPU_MILLI
    devices = np.where(columns.present, columns.share_left, 0).sum(axis=1) - (gpu.count * gpu.share_milli if gpu else 0)
    left = np.ceil((cpu + devices / LARGE_GPU_MILLI) / 2 * 100) / 100
    return np.asarray(left, dtype=np.float64).clip(0, 1)


def _pieces(judged: Judgement, *, gpu: GPURequest) -> Floats:
    """How much of the node's idle capacity the placement leaves in pieces, 0 to 1, [n].

    For a share: what is left on its device; breaking an empty device costs most. For whole devices: how many free
    ones remain, so that the node with the fewest comes first (best fit).
    """
    columns = judged.columns
    free = judged.free_devices
    width = max(1, free.shape[1])
    whole_left = count_devices(free & (columns.tenants == 0))
    if gpu.whole:
        return np.asarray((whole_left - gpu.count) / width, dtype=np.float64).clip(0, 1)
    left_after = np.where(free, columns.share_left - gpu.share_milli, WHOLE_MILLI)
    started = np.where(columns.tenants > 0, left_after, WHOLE_MILLI).min(axis=1, initial=WHOLE_MILLI)
    # A device in use beats an empty one; among empty ones the node with the fewest comes first.
    untouched = 0.5 + whole_left / (2 * width)
    breaks = whole_left > 0 if judged.ask.policy == "Spread" else started == WHOLE_MILLI
    return np.where(breaks, untouched, started / (2 * WHOLE_MILLI)).clip(0, 1)


def compactness_of_node(judged: SingleNode) -> float:
    """The same number for one node."""
    node, gpu = judged.node, judged.ask.gpu
    share = sum(left for left, present in zip(node.share_left, node.present, strict=True) if present)
    cpu = (node.cpu_free - judged.ask.cpu_milli) / LARGE_CPU_MILLI
    devices = (share - (gpu.count * gpu.share_milli if gpu else 0)) / LARGE_GPU_MILLI
    left_over = min(1.0, max(0.0, ceil((cpu + devices) / 2 * 100) / 100))
    return 1 - left_over if gpu is None else 1 - (left_over + _pieces_of_node(judged, gpu=gpu)) / 2


def _pieces_of_node(judged: SingleNode, *, gpu: GPURequest) -> float:
    node, width = judged.node, max(1, len(judged.node.present))
    whole_left = sum(not node.tenants[slot] for slot in judged.slots)
    if gpu.whole:
        return min(1.0, max(0.0, (whole_left - gpu.count) / width))
    started = min(
        (node.share_left[slot] - gpu.share_milli for slot in judged.slots if node.tenants[slot]), default=WHOLE_MILLI
    )
    breaks = whole_left > 0 if judged.ask.policy == "Spread" else started >= WHOLE_MILLI
    pieces = 0.5 + whole_left / (2 * width) if breaks else started / (2 * WHOLE_MILLI)
    return min(1.0, max(0.0, pieces))
