"""The ledger's columns: their names, shapes and codes. Values only."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.api.gpujob import Mode
from dovetail.engine.model.node_row import NodeRow

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NO_MODE: Final = 0
MODE_CODES: Final[dict[Mode, int]] = {"Exclusive": 1, "Fractional": 2, "TimeShared": 3}
# The most that one byte counts.
_BYTE: Final = 255


def count_devices(devices: Bools) -> Ints:
    """How many of the devices [n, d] of each node are true, [n]."""
    if devices.shape[1] > _BYTE:
        return devices.sum(axis=1)
    # `sum` converts each Boolean of such short rows by itself, and takes four times as long.
    return np.einsum("ij->i", devices.view(np.uint8)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A copy of the ledger's columns for some nodes. Node columns have shape [n], device columns [n, d].

    Where `unmeasured`, promises alone count: no memory is foreign, what is promised of a device is its `utilization`,
    and `cpu_load` is 0; elsewhere both are smoothed, 0 to 1. `guard` is the smallest part of the memory that a tenant
    of the device lets promise; 1 where there is none. Of what movable tenants of a `movable` device are promised only
    the largest counts in `promised`: that is `aside`.
    """

    known: Bools
    managed: Bools
    blocked: Bools
    node_cordoned: Bools
    cpu_milli: Ints
    cpu_free: Ints
    cpu_load: Floats
    memory_mib: Ints
    memory_free: Ints
    pods: Ints
    pods_free: Ints
    resource: Ints
    offered: Ints
    present: Bools
    healthy: Bools
    cordoned: Bools
    movable: Bools
    index: Ints
    model: Ints
    vendor: Ints
    total: Ints
    foreign: Ints
    utilization: Floats
    unmeasured: Bools
    guard: Floats
    training: Ints
    training_limit: Ints
    inference: Ints
    inference_limit: Ints
    share_left: Ints
    promised: Ints
    aside: Ints
    tenants: Ints
    mode: Ints
    held: Ints


_NODE_BOOLS: Final = ("known", "managed", "blocked", "node_cordoned", "unmeasured")
_NODE_INTS: Final = ("cpu_milli", "cpu_free", "memory_mib", "memory_free", "pods", "pods_free", "resource", "offered")
_NODE_FLOATS: Final = ("cpu_load",)
_DEVICE_BOOLS: Final = ("present", "healthy", "cordoned", "movable")
_DEVICE_INTS: Final = (
    "index", "model", "vendor", "total", "foreign", "share_left", "promised", "tenants", "mode", "held",
    "training", "training_limit", "inference", "inference_limit", "aside",
)  # fmt: skip
_DEVICE_FLOATS: Final = ("utilization", "guard")
_KINDS: Final = (_NODE_BOOLS, _NODE_INTS, _NODE_FLOATS, _DEVICE_BOOLS, _DEVICE_INTS, _DEVICE_FLOATS)
OF_DEVICES: Final = (*_DEVICE_BOOLS, *_DEVICE_INTS, *_DEVICE_FLOATS)


class Table:
    """The columns of all nodes by name. Those of one kind lie in one block, row by row, so that a few nodes are read in
    all of them at once."""

    def __init__(self, *, rows: int, devices: int) -> None:
        self._blocks: tuple[npt.NDArray[Any], ...] = (
            np.zeros((rows, len(_NODE_BOOLS)), dtype=np.bool_),
            np.zeros((rows, len(_NODE_INTS)), dtype=np.int64),
            np.zeros((rows, len(_NODE_FLOATS)), dtype=np.float64),
            np.zeros((rows, len(_DEVICE_BOOLS), devices), dtype=np.bool_),
            np.zeros((rows, len(_DEVICE_INTS), devices), dtype=np.int64),
            np.zeros((rows, len(_DEVICE_FLOATS), devices), dtype=np.float64),
        )
        self._columns = _by_name(self._blocks)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """One column, to read and to write: [rows] of a node column, [rows, devices] of a device column."""
        return self._columns[name]

    def at(self, rows: npt.NDArray[np.intp]) -> dict[str, npt.NDArray[Any]]:
        """A copy of these `rows` [n] of each column: [n] of a node column, [n, devices] of a device column.

        The row -1 has only 0.
        """
        taken = tuple(block.take(rows, axis=0) for block in self._blocks)
        if len(rows) and rows.min() < 0:
            for block in taken:
                block[rows < 0] = 0
        return _by_name(taken)

    def row(self, at: int) -> NodeRow:
        """One row in plain numbers."""
        return NodeRow(*chain.from_iterable(block[at].tolist() for block in self._blocks))

    def grown(self, *, rows: int, devices: int) -> "Table":
        """The same with room for so many rows and devices; what is new is 0."""
        larger = Table(rows=rows, devices=devices)
        for new, old in zip(larger._blocks, self._blocks, strict=True):
            new[tuple(slice(0, size) for size in old.shape)] = old
        return larger

    def digest(self, *, without: Sequence[str]) -> bytes:
        """A digest of all columns but those, which tells whether something has changed."""
        found = blake2b(digest_size=16)
        for names, block in zip(_KINDS, self._blocks, strict=True):
            kept = [at for at, name in enumerate(names) if name not in without]
            found.update((block if len(kept) == len(names) else block[:, kept]).tobytes())
        return found.digest()

    def copy(self) -> "Table":
        """An independent copy."""
        other: Table = copy(self)
        other._blocks = tuple(block.copy() for block in self._blocks)
        other._columns = _by_name(other._blocks)
        return other


def _by_name(blocks: tuple[npt.NDArray[Any], ...]) -> dict[str, npt.NDArray[Any]]:
    return {name: block[:, at] for names, block in zip(_KINDS, blocks, strict=True) for at, name in enumerate(names)}
