"""Judgements that are kept: for each shape of ask, which nodes fit and how well, brought up to date node by node.

kube-scheduler asks about thousands of nodes for each pod, most pods are of a few shapes, and between two of them few
nodes change. So a shape is judged once, and after that only on the nodes that the log of the ledger names. What
is answered equals what `screen` and `rank` would say; a test holds the two together.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.engine.filter.fit import NODE_CAUSES, Fit, Judgement, check
from dovetail.engine.ledger.ledger import NOTHING_READ, Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Bools, Floats, Ints
from dovetail.engine.model.refusals import Refusal
from dovetail.engine.score.fragmentation_term import BestFit, Tidy
from dovetail.engine.score.score import Terms, combine, terms

Rows = npt.NDArray[np.intp]

# Shapes that are kept; the one that was not asked for the longest goes first. 5,000 nodes cost about 0.2 MB a shape,
# and 2 MB where headroom is priced for a hundred classes.
KEPT: Final = 256
KEPT_BYTES: Final = 128 << 20
MANY_NODES: Final = 256
_TERMS: Final = ("calm", "memory", "cpu")
# In place of a cause: the node fits, or does not and nobody has asked yet why.
_FITS: Final = -1
_NOT_ASKED: Final = -2


class _Shape:
    """What is known for one ask, by row."""

    def __init__(self, ask: Ask, *, tidy: Tidy) -> None:
        self.ask = ask
        self.position = NOTHING_READ
        self.generation = tidy.generation
        self.cause: Ints = np.zeros(64, dtype=np.int64)
        self.terms: dict[str, Floats] = {name: np.zeros(64) for name in _TERMS}
        self.tidy = tidy.keep(ask)

    @property
    def size_bytes(self) -> int:
        return (1 + len(_TERMS)) * self.cause.nbytes + self.tidy.size_bytes

    def refresh(self, ledger: Ledger, *, tidy: Tidy) -> None:
        """Judge anew the rows that changed since the last time."""
        if self.generation != tidy.generation:
            self.tidy.renew()
            self.generation = tidy.generation
        if self.position == ledger.changes:
            return
        rows = np.array(sorted(ledger.touched_since(self.position)), dtype=np.int64)
        self._grow(ledger.size)
        judged = Judgement(ledger, self.ask, nodes=[ledger.name(row) for row in rows.tolist()], key="")
        self.cause[rows] = np.where(judged.fits, _FITS, _NOT_ASKED)
        self.tidy.store(rows, judged)
        parts = terms(judged, tidy=np.zeros(len(rows)))
        for name in _TERMS:
            self.terms[name][rows] = getattr(parts, name)
        self.position = ledger.changes

    def causes(self, ledger: Ledger, rows: Rows) -> Ints:
        """Why the ask does not fit on each of `rows`, as `Judgement.first_cause` has it."""
        unknown = np.unique(rows[(rows >= 0) & (self.cause[rows] == _NOT_ASKED)])
        if unknown.size:
            judged = Judgement(ledger, self.ask, nodes=[ledger.name(row) for row in unknown.tolist()], key="")
            self.cause[unknown] = judged.first_cause
        return self.cause[rows]

    def _grow(self, size: int) -> None:
        if size > len(self.cause):
            room = max(size, 2 * len(self.cause)) - len(self.cause)
            self.cause = np.concatenate([self.cause, np.zeros(room, dtype=np.int64)])
            self.terms = {name: np.concatenate([column, np.zeros(room)]) for name, column in self.terms.items()}


class Shapes:
    """Answers about many nodes at once, out of what is kept for each shape. `tidy` is the fragmentation term."""

    def __init__(self, ledger: Ledger, *, tidy: Tidy | None = None) -> None:
        self._ledger = ledger
        self._tidy = tidy or BestFit()
        self._kept: OrderedDict[Ask, _Shape] = OrderedDict()
        self._last_rows: tuple[list[str], Rows] = ([], np.zeros(0, dtype=np.intp))

    def check(self, ask: Ask, *, node: str, key: str) -> Fit | Refusal:
        """As `fit.check`, with the devices that the fragmentation term prefers."""

        def values(judged: Judgement, row: int) -> Floats:
            return self._tidy.device_values(judged, row, key=key)

        return check(self._ledger, ask, node=node, key=key, device_values=values)

    def best(
        self, ask: Ask, *, nodes: Sequence[str], key: str, limit: int | None = None, within: float = math.inf
    ) -> list[str]:
        """The nodes of `nodes` that fit: all of them in the order asked, or with `limit` at most that many, best first,
        and none whose score (0 to 1) is more than `within` below the best.

        A claim that stands under `key` is not counted. Empty when none fits.
        """
        fits, parts = self._columns(ask, nodes=nodes, key=key)
        found = np.flatnonzero(fits)
        if limit is not None and len(found) > 1:
            scores = combine(_select(parts, found), policy=ask.policy, weights=self._ledger.weights)
            near = np.flatnonzero(scores >= scores.max() - within)
            found = found[near[_first_of_best(scores[near], count=min(limit, len(near)))]]
        return [nodes[at] for at in found.tolist()]

    def scores(self, ask: Ask, *, nodes: Sequence[str], key: str) -> list[float]:
        """How well each of `nodes` would do, 0 to 1, in the order asked. They are taken to fit."""
        _, parts = self._columns(ask, nodes=nodes, key=key)
        return list(combine(parts, policy=ask.policy, weights=self._ledger.weights).tolist())

    def refusals(self, ask: Ask, *, nodes: Sequence[str], key: str) -> dict[str, Refusal]:
        """Why each of the nodes that do not fit does not, in the words that all nodes of a cause share."""
        rows = self._rows(nodes)
        # Whatever row -1 reads, a node that was never seen has the first cause.
        cause = np.where(rows < 0, 0, self._shape(ask).causes(self._ledger, rows))
        at, judged = self._own(ask, rows=rows, key=key)
        if judged is not None:
            cause[at] = judged.first_cause
        words = Judgement(self._ledger, ask, nodes=(), key="")
        shared = [words.outline(at, node="") for at in range(int(cause.max(initial=-1)) + 1)]
        return {
            name: shared[at] if at >= NODE_CAUSES else words.outline(at, node=name)
            for name, at in zip(nodes, cause.tolist(), strict=True)
            if at >= 0
        }

    def _columns(self, ask: Ask, *, nodes: Sequence[str], key: str) -> tuple[Bools, Terms]:
        """Which nodes fit, and the terms of their scores."""
        shape = self._shape(ask)
        rows = self._rows(nodes)
        fits = (rows >= 0) & (shape.cause[rows] == _FITS)
        parts = {name: column[rows] for name, column in shape.terms.items()}
        parts["tidy"] = shape.tidy.values(rows)
        at, judged = self._own(ask, rows=rows, key=key)
        if judged is not None:
            fits[at] = judged.fits
            alone = terms(judged, tidy=self._tidy.alone(judged, key=key))
            for name, part in parts.items():
                part[at] = getattr(alone, name)
        return fits, Terms(**parts)

    def _own(self, ask: Ask, *, rows: Rows, key: str) -> tuple[Rows, Judgement | None]:
        """Where the claim `key` stands among `rows`, and its node judged as if it did not: it is not in its own way."""
        own = self._ledger.claim(key)
        at = np.flatnonzero(rows == self._ledger.rows([own.node])[0]) if own is not None else np.zeros(0, dtype=np.intp)
        if own is None or not len(at):
            return at, None
        return at, Judgement(self._ledger, ask, nodes=[own.node], key=key)

    def _shape(self, ask: Ask) -> _Shape:
        self._tidy.follow()
        shape = self._kept.pop(ask, None)
        if shape is None:
            shape = _Shape(ask, tidy=self._tidy)
            shape.refresh(self._ledger, tidy=self._tidy)
            self._make_room(shape.size_bytes)
        self._kept[ask] = shape
        shape.refresh(self._ledger, tidy=self._tidy)
        return shape

    def _make_room(self, size_bytes: int) -> None:
        taken = size_bytes + sum(shape.size_bytes for shape in self._kept.values())
        while self._kept and (len(self._kept) >= KEPT or taken > KEPT_BYTES):
            taken -= self._kept.popitem(last=False)[1].size_bytes

    def _rows(self, nodes: Sequence[str]) -> Rows:
        """The rows of nodes. kube-scheduler asks about the same ones again and again, and comparing costs less than
        looking each up; names that were not known may be by now."""
        if len(nodes) < MANY_NODES:
            return self._ledger.rows(nodes)
        asked, rows = self._last_rows
        if asked != nodes or (rows < 0).any():
            rows = self._ledger.rows(nodes)
            self._last_rows = (list(nodes), rows)
        return rows


def _first_of_best(scores: Floats, *, count: int) -> Rows:
    """Positions of the `count` highest, the best first, and of equals the first: a stable sort of a few only."""
    if count == len(scores):
        return np.argsort(-scores, kind="stable")
    least = -np.partition(-scores, count - 1)[count - 1]
    above = np.flatnonzero(scores > least)
    equal = np.flatnonzero(scores == least)[: count - len(above)]
    return np.concatenate([above[np.argsort(-scores[above], kind="stable")], equal])


def _select(parts: Terms, rows: Rows) -> Terms:
    return Terms(calm=parts.calm[rows], memory=parts.memory[rows], cpu=parts.cpu[rows], tidy=parts.tidy[rows])
