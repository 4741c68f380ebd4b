"""The ledger's columns: their names, shapes and codes. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.api.gpujob import Mode

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NO_MODE: Final = 0
MODE_CODES: Final[dict[Mode, int]] = {"Exclusive": 1, "Fractional": 2, "TimeShared": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A copy of the ledger's columns for some nodes. Node columns have shape [n], device columns [n, d].

    Where `unmeasured`, promises alone count: no memory is foreign, and what is promised of a device is its
    `utilization`. Elsewhere that is smoothed, and `utilization_now` is as last reported. `guard` is the smallest part
    of the memory that a tenant of the device lets promise; 1 where there is none. Of what movable tenants of a
    `movable` device are promised only the largest counts in `promised`: that is `aside`.
    """

    known: Bools
    managed: Bools
    blocked: Bools
    node_cordoned: Bools
    cpu_milli: Ints
    cpu_free: Ints
    memory_mib: Ints
    memory_free: Ints
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
    utilization_now: Floats
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
_NODE_INTS: Final = ("cpu_milli", "cpu_free", "memory_mib", "memory_free", "resource", "offered")
_DEVICE_BOOLS: Final = ("present", "healthy", "cordoned", "movable")
_DEVICE_INTS: Final = (
    "index", "model", "vendor", "total", "foreign", "share_left", "promised", "tenants", "mode", "held",
    "training", "training_limit", "inference", "inference_limit", "aside",
)  # fmt: skip
_DEVICE_FLOATS: Final = ("utilization", "utilization_now", "guard")
OF_DEVICES: Final = (*_DEVICE_BOOLS, *_DEVICE_INTS, *_DEVICE_FLOATS)


def grown(columns: Mapping[str, npt.NDArray[Any]], *, rows: int, devices: int) -> dict[str, npt.NDArray[Any]]:
    """The columns with room for so many rows and devices; what is new is 0."""
    shapes: dict[str, tuple[tuple[int, ...], type]] = {
        **dict.fromkeys(_NODE_BOOLS, ((rows,), np.bool_)),
        **dict.fromkeys(_NODE_INTS, ((rows,), np.int64)),
        **dict.fromkeys(_DEVICE_BOOLS, ((rows, devices), np.bool_)),
        **dict.fromkeys(_DEVICE_INTS, ((rows, devices), np.int64)),
        **dict.fromkeys(_DEVICE_FLOATS, ((rows, devices), np.float64)),
    }
    larger: dict[str, npt.NDArray[Any]] = {
        name: np.zeros(shape, dtype=dtype) for name, (shape, dtype) in shapes.items()
    }
    for name, column in columns.items():
        larger[name][tuple(slice(0, size) for size in column.shape)] = column
    return larger
