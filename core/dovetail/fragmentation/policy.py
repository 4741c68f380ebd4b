"""The protocol of policies, and the cache that all scored policies share.

A new policy is one small file with a `Scorer`: it scores nodes for a shape, and chooses the device of a share there.
`ScoredPolicy` keeps the scores of all nodes for each shape, rescores only nodes touched since, and takes the best. Ties
go to the first node in the static order.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from dovetail.fragmentation.cache import Kept
from dovetail.fragmentation.capacity import Bools, Columns, Floats, Ints, choice_of, needs
from dovetail.fragmentation.pod_shapes import Choice, Shape

# From this number of rows on, grouping equal rows costs less than scoring them all.
MANY_ROWS: Final = 64


class Policy(Protocol):
    """Chooses the place of a pod. A policy reads its columns and never changes them."""

    def choose(self, shape: Shape) -> Choice | None:
        """The place for a pod that arrives now, or None when it fits nowhere."""
        ...


class Scorer(Protocol):
    """Scores nodes for a shape."""

    def score(self, columns: Columns, *, shape: Shape, rows: Ints) -> tuple[Floats, Ints | None]:
        """The score of each of `rows` [n], which all fit; higher is better.

        For a share also its device, [n].
        """
        ...


@dataclass(slots=True)
class _Scores:
    """What is known for one shape, valid up to a change of the columns."""

    needs: Ints
    allowed: Bools | None
    score: Floats
    device: Ints
    seen: int = -1


class ScoredPolicy:
    """Takes the node with the highest score."""

    def __init__(self, columns: Columns, *, scorer: Scorer) -> None:
        self._columns = columns
        self._scorer = scorer
        self._known: Kept[_Scores] = Kept()

    def choose(self, shape: Shape) -> Choice | None:
        """The best node, the first of equals, or None when the shape fits nowhere."""
        known = self._known.get(shape)
        if known is None:
            known = self._unknown(shape)
            self._known.store(shape, value=known, size_bytes=known.score.nbytes + known.device.nbytes)
        if known.seen != self._columns.changes:
            self._update(shape, known=known)
        node = int(known.score.argmax())
        if known.score[node] == -np.inf:
            return None
        return choice_of(self._columns, shape=shape, node=node, device=int(known.device[node]))

    def _unknown(self, shape: Shape) -> _Scores:
        count = len(self._columns)
        return _Scores(
            needs=needs(shape),
            allowed=self._columns.allowed(shape) if shape.models else None,
            score=np.full(count, -np.inf),
            device=np.zeros(count, dtype=np.int64),
        )

    def _update(self, shape: Shape, *, known: _Scores) -> None:
        columns = self._columns
        rows = np.arange(len(columns)) if known.seen < 0 else columns.touched_since(known.seen)
        known.seen = columns.changes
        fits = fitting(columns, rows=rows, needs=known.needs, allowed=known.allowed)
        known.score[rows] = -np.inf
        rows = rows[fits]
        if rows.size:
            some, kind = representatives(columns, rows=rows)
            score, device = self._scorer.score(columns, shape=shape, rows=some)
            known.score[rows] = score[kind]
            if device is not None:
                known.device[rows] = device[kind]


def representatives(columns: Columns, *, rows: Ints) -> tuple[Ints, Ints | slice]:
    """The rows to score for all of `rows` [n], [k], and for each of `rows` the position of its score, [n].

    Many rows have few kinds. The positions are a full slice if each row is scored itself.
    """
    if rows.size < MANY_ROWS:
        return rows, slice(None)
    return columns.alike(rows)


def fitting(columns: Columns, *, rows: Ints, needs: Ints, allowed: Bools | None) -> Bools:
    """Which of `rows` have the room of `needs` [4] and an allowed model, [n]."""
    enough: Bools = columns.spare.take(rows, axis=0) >= needs
    fits: Bools = np.logical_and.reduce(enough, axis=1)
    if allowed is not None:
        fits &= allowed.take(rows)
    return fits


def distinct_devices(columns: Columns, *, shape: Shape, rows: Ints) -> tuple[Ints, Ints]:
    """The devices of `rows` that a share fits on, the first one of each residual of a node.

    Returns pairs of positions in `rows` [n] and devices, two arrays [pairs], by node and then by device.
    """
    fits = columns.left.take(rows, axis=0) >= shape.share_milli
    fits &= columns.distinct.take(rows, axis=0)
    at, device = fits.nonzero()
    return at, device


def best_device(value: Floats, *, at: Ints, device: Ints, count: int, width: int) -> tuple[Floats, Ints]:
    """The highest value of each of `count` nodes and its device, the first of equals, [count]."""
    dense = np.full((count, width), -np.inf)
    dense[at, device] = value
    best = dense.argmax(axis=1)
    return dense[np.arange(count), best], best
