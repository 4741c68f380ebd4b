"""The priced fragmentation term of one ask, cached for each row of the ledger while prices change.

The `static` part and the headroom `loss` of a row change only with its node; `score` adds them at the current prices.
So a request costs the rows that changed since the last request of this ask, and a multiplication when prices change.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from dovetail.engine.filter.device_choice import FreeDevices
from dovetail.engine.filter.feasibility import Feasibility
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.filter.single_node import SingleNode
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Bools, Floats, Ints
from dovetail.engine.score.fragmentation_term import FIRST_ROWS, grown
from dovetail.fragmentation.appraisal import Appraisal
from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.headroom import Counts
from dovetail.fragmentation.placement_delta import Taking
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape
from dovetail.fragmentation.policy import MANY_ROWS

Millis = npt.NDArray[np.int16]
# Scores that agree in so many digits are equal (single precision has no more); the first node wins.
_DIGITS: Final = 5
# Up to so many rows, plain numbers are faster than arrays.
FEW_ROWS: Final = 8
_NOT_FREE: Final = WHOLE_MILLI + 1
# A set of up to this many devices fits into an integer together with the number of the node class.
_BITS: Final = 32


class Source(Protocol):
    """Where the current prices and capacity are."""

    @property
    def appraisal(self) -> Appraisal:
        """The current appraisal of placements."""
        ...

    @property
    def columns(self) -> Columns:
        """The free capacity that the appraisal is of."""
        ...


class PricedRows:
    """The term of one ask by row, with its inputs: where the ask fits, on which devices, and how much it takes."""

    def __init__(self, source: Source, *, ask: Ask) -> None:
        self._source = source
        self._ask = ask
        self._fits: Bools = np.zeros(FIRST_ROWS, dtype=np.bool_)
        self._free: Bools = np.zeros((FIRST_ROWS, 0), dtype=np.bool_)
        self._taken: Millis = np.zeros((FIRST_ROWS, 0), dtype=np.int16)
        self._make_columns(rows=FIRST_ROWS)

    @property
    def size_bytes(self) -> int:
        """Memory in use, in bytes."""
        columns = (self._fits, self._free, self._taken, self._static, self._score, self._loss)
        return sum(column.nbytes for column in columns)

    def store(self, rows: Ints, *, judged: Judgement) -> None:
        """Store a judgement of these `rows` [n] of the ledger."""
        if not judged.fits.any():
            # Only nodes that fit have a term.
            self._grow(rows, width=0)
            self._fits[rows] = False
            return
        self._store(rows, fits=judged.fits, free=_free(judged), taken=_taken(judged))

    def store_nodes(self, rows: Ints, *, judged: Sequence[SingleNode]) -> None:
        """Store judgements of these few `rows` [n] of the ledger, one by one."""
        free = np.zeros((len(judged), len(judged[0].node.present)), dtype=np.bool_)
        taken = np.full(free.shape, WHOLE_MILLI, dtype=np.int16)
        for at, one in enumerate(judged):
            free[at, one.slots] = True
            if self._ask.gpu is not None and self._ask.mode == "Fractional":
                memory = zip(one.allowed_mib, one.node.total, strict=True)
                taken[at] = [_milli_of(self._ask, allowed_mib=most, total_mib=total) for most, total in memory]
        self._store(rows, fits=np.array([one.fits for one in judged]), free=free, taken=taken)

    def _store(self, rows: Ints, *, fits: Bools, free: Bools, taken: Millis) -> None:
        self._grow(rows, width=free.shape[1])
        self._fits[rows] = fits
        self._free[rows] = free
        self._taken[rows] = taken
        self._appraise(rows)

    def renew(self) -> None:
        """Recompute all rows with the current appraisal."""
        self._make_columns(rows=len(self._fits))
        self._appraise(np.arange(len(self._fits)))

    def _make_columns(self, *, rows: int) -> None:
        appraisal = self._source.appraisal
        self._epoch = appraisal.epoch
        self._static: Counts = np.zeros(rows, dtype=np.float32)
        self._score: Counts = np.zeros(rows, dtype=np.float32)
        self._loss: Counts = np.zeros((rows, len(appraisal.price)), dtype=np.float32)

    def _grow(self, rows: Ints, *, width: int) -> None:
        if int(rows.max(initial=-1)) < len(self._fits) and width <= self._free.shape[1]:
            return
        for name in ("_fits", "_free", "_taken", "_static", "_score", "_loss"):
            setattr(self, name, grown(getattr(self, name), rows=rows))
        more = ((0, 0), (0, width - self._free.shape[1]))
        if more[1][1] > 0:
            self._free, self._taken = np.pad(self._free, more), np.pad(self._taken, more)

    def _appraise(self, rows: Ints) -> None:
        rows = rows[self._fits[rows]]
        if not rows.size:
            return
        free = self._free[rows]
        some, kind = _alike(self._source.columns, rows=rows, free=free, ask=self._ask)
        static, loss = _terms(
            self._source, ask=self._ask, rows=rows[some], free=free[some], taken=self._taken[rows[some]]
        )
        self._static[rows] = static[kind]
        self._loss[rows] = loss[kind]
        if self._epoch == self._source.appraisal.epoch:
            self._score[rows] = _score(self._source, static=static, loss=loss)[kind]

    def values(self, rows: Ints) -> Floats:
        """The term of these `rows` [n], in GPUs (for FGD: its score), [n]."""
        appraisal = self._source.appraisal
        if self._epoch != appraisal.epoch:
            self._epoch = appraisal.epoch
            self._score = _score(self._source, static=self._static, loss=self._loss)
        # A row that never fit may be beyond the last one.
        return self._score.take(rows, mode="clip").astype(np.float64)


def _score(source: Source, *, static: Counts, loss: Counts) -> Counts:
    # Always in single precision, cached or not: equal nodes must have equal scores.
    return (loss @ source.appraisal.price + static).round(_DIGITS)


def value_of(source: Source, *, judged: Judgement, rows: Ints) -> Floats:
    """The term of nodes that are not cached, [n]; 0 where the ask does not fit."""
    value = np.zeros(len(rows))
    fits = np.flatnonzero(judged.fits)
    if fits.size:
        free, taken = _free(judged)[fits], _taken(judged)[fits]
        static, loss = _terms(source, ask=judged.ask, rows=rows[fits], free=free, taken=taken)
        value[fits] = _score(source, static=static, loss=loss)
    return value


def device_values(source: Source, *, free: FreeDevices, row: int) -> list[float]:
    """The value of a share on each of the free devices of the node in ledger row `row`."""
    left = source.columns.left[row].tolist()
    kinds = [
        (left[slot], _milli_of(free.ask, allowed_mib=free.allowed_mib[slot], total_mib=free.total_mib[slot]))
        for slot in free.slots
    ]
    # Equal devices have equal values: appraise one of each kind, and none where there is nothing to choose.
    distinct = list(dict.fromkeys(kinds))
    if len(distinct) == 1:
        return [0.0] * len(kinds)
    before, taken = np.array(distinct, dtype=np.int64).T[:, :, np.newaxis]
    taking = _taking(free.ask, rows=np.full(len(distinct), row), before=before, taken=taken)
    value = dict(zip(distinct, source.appraisal.static(taking).tolist(), strict=True))
    return [value[kind] for kind in kinds]


def _milli_of(ask: Ask, *, allowed_mib: int, total_mib: int) -> int:
    """Milli that a fractional ask takes of one device: by share or by memory, whichever is more."""
    gpu = ask.gpu
    assert gpu is not None, "only for an ask with a GPU request"
    asked = gpu.memory_on(total_mib)
    if asked is None:
        return gpu.share_milli
    return min(WHOLE_MILLI, max(gpu.share_milli, -(-asked * WHOLE_MILLI // max(1, allowed_mib))))


def shape_of(ask: Ask, *, memory_mib: int) -> Shape:
    """The pod class of an ask. A memory request counts as its part of a device with `memory_mib`, the average."""
    gpu = ask.gpu
    if gpu is None:
        return Shape(cpu_milli=ask.cpu_milli, memory_mib=ask.memory_mib)
    share = gpu.share_milli if ask.mode == "Fractional" else WHOLE_MILLI
    if ask.mode == "Fractional" and memory_mib > 0 and (asked := gpu.memory_on(memory_mib)) is not None:
        share = max(share, min(WHOLE_MILLI, asked * WHOLE_MILLI // memory_mib))
    return Shape(
        cpu_milli=ask.cpu_milli,
        memory_mib=ask.memory_mib,
        gpus=_count(ask),
        share_milli=share,
        models=gpu.models,
    )


def _terms(source: Source, *, ask: Ask, rows: Ints, free: Bools, taken: Millis) -> tuple[Counts, Counts]:
    """Both parts of the term (static [n], loss [n, k]) for nodes that fit, by free devices and what the ask takes."""
    appraisal = source.appraisal
    left = source.columns.left[rows][:, : free.shape[1]]
    each = np.arange(len(rows))[:, np.newaxis]
    if ask.mode == "Fractional" and _count(ask) == 1 and ask.policy != "Spread":
        slots, static = _best_devices(appraisal, ask=ask, rows=rows, left=left, free=free, taken=taken)
        taking = _taking(ask, rows=rows, before=left[each, slots], taken=taken[each, slots])
    else:
        slots = _simple_devices(ask, left=left, free=free)
        taking = _taking(ask, rows=rows, before=left[each, slots], taken=taken[each, slots])
        static = appraisal.static(taking)
    return static.astype(np.float32), appraisal.loss(taking)


def _best_devices(
    appraisal: Appraisal, *, ask: Ask, rows: Ints, left: Ints, free: Bools, taken: Millis
) -> tuple[Ints, Floats]:
    """The most valuable device of each node for a share, [n, 1], and its value, [n]; equal ones are appraised once."""
    at, device = _distinct_devices(left, free=free)
    taking = _taking(ask, rows=rows[at], before=left[at, device][:, np.newaxis], taken=taken[at, device][:, np.newaxis])
    found = appraisal.static(taking)
    if len(found) == len(rows):
        # The usual case: one kind of device on each node.
        return device[:, np.newaxis], found
    value = np.full(left.shape, -np.inf)
    value[at, device] = found
    return value.argmax(axis=1)[:, np.newaxis], value.max(axis=1)


def _distinct_devices(left: Ints, *, free: Bools) -> tuple[Ints, Ints]:
    """The first free device of each amount left, node by node: positions of nodes and devices, both [m]."""
    if len(left) <= FEW_ROWS:
        found = [
            (at, slot)
            for at, (one, open_) in enumerate(zip(left.tolist(), free.tolist(), strict=True))
            for slot in {one[slot]: slot for slot in range(len(one) - 1, -1, -1) if open_[slot]}.values()
        ]
        at, device = np.array(sorted(found), dtype=np.int64).T
        return at, device
    earlier = np.tri(left.shape[1], k=-1, dtype=np.bool_)
    same = (left[:, :, np.newaxis] == left[:, np.newaxis, :]) & free[:, np.newaxis, :] & earlier
    at, device = np.nonzero(free & ~same.any(axis=2))
    return at, device


def _simple_devices(ask: Ask, *, left: Ints, free: Bools) -> Ints:
    """As many free devices as requested, [n, k]: the fullest, for Spread the emptiest."""
    order = left if ask.policy != "Spread" else WHOLE_MILLI - left
    return np.argsort(np.where(free, order, _NOT_FREE), axis=1, kind="stable")[:, : _count(ask)]


def _count(ask: Ask) -> int:
    """How many devices the pod takes."""
    return 0 if ask.gpu is None else ask.gpu.count + sum(each.count for each in ask.more)


def _free(judged: Feasibility) -> Bools:
    """Devices that the pod could take, [n, d]."""
    return np.zeros_like(judged.columns.present) if judged.ask.gpu is None else judged.free_devices


def _taken(judged: Feasibility) -> Millis:
    """Milli that the ask takes of each device, [n, d]: by share or by memory, whichever is more."""
    ask, gpu = judged.ask, judged.ask.gpu
    shape = judged.columns.total.shape
    if gpu is None or ask.mode != "Fractional":
        return np.full(shape, WHOLE_MILLI, dtype=np.int16)
    if judged.asked_mib is None:
        return np.full(shape, gpu.share_milli, dtype=np.int16)
    by_memory = -(-judged.asked_mib * WHOLE_MILLI // np.maximum(1, judged.allowed_mib))
    return np.clip(by_memory, gpu.share_milli, WHOLE_MILLI).astype(np.int16)


def _taking(ask: Ask, *, rows: Ints, before: Ints, taken: Ints | Millis) -> Taking:
    return Taking(
        rows=rows,
        before=before,
        after=np.maximum(0, before - taken),
        cpu_milli=ask.cpu_milli,
        memory_mib=ask.memory_mib,
        whole=ask.mode != "Fractional" or (ask.gpu is not None and ask.gpu.whole),
    )


def _alike(columns: Columns, *, rows: Ints, free: Bools, ask: Ask) -> tuple[Ints | slice, Ints | slice]:
    """Positions of representative rows, and for each row the index of its representative.

    Nodes with equal free capacity and the same free devices are appraised once.
    """
    if len(rows) < MANY_ROWS or ask.mode == "TimeShared" or free.shape[1] > _BITS:
        return slice(None), slice(None)
    names = (columns.kinds.of[rows] << _BITS) | (free << np.arange(free.shape[1])).sum(axis=1)
    _, first, kind = np.unique(names, return_index=True, return_inverse=True)
    return first, kind
