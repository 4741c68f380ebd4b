"""Judgements that are kept: for each shape of ask, which nodes fit and how well, brought up to date node by node.

kube-scheduler asks about thousands of nodes for each pod, most pods are of a few shapes, and between two of them few
nodes change. So a shape is judged once, and after that only on the nodes that the log of the ledger names. What
is answered equals what `screen` and `rank` would say; a test holds the two together.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.engine.claims import Ask
from dovetail.engine.fit import NODE_CAUSES, Judgement
from dovetail.engine.ledger import NOTHING_READ, Floats, Ints, Ledger
from dovetail.engine.refusals import Refusal
from dovetail.engine.score import DEFAULT_WEIGHTS, Terms, Weights, combine, terms

Rows = npt.NDArray[np.intp]

# Shapes that are kept; the one that was not asked for the longest goes first. 5,000 nodes cost about 0.2 MB a shape.
KEPT: Final = 256
_TERMS: Final = ("calm", "memory", "cpu", "tidy")


class _Shape:
    """What is known for one ask, by row."""

    def __init__(self) -> None:
        self.position = NOTHING_READ
        self.cause: Ints = np.zeros(64, dtype=np.int64)
        self.terms: dict[str, Floats] = {name: np.zeros(64) for name in _TERMS}

    def refresh(self, ledger: Ledger, ask: Ask) -> None:
        """Judge anew the rows that changed since the last time."""
        if self.position == ledger.changes:
            return
        rows = sorted(ledger.touched_since(self.position))
        self._grow(ledger.size)
        self.store(rows, Judgement(ledger, ask, nodes=[ledger.name(row) for row in rows], key=""))
        self.position = ledger.changes

    def store(self, rows: Sequence[int], judged: Judgement) -> None:
        """Take over a judgement of these rows."""
        self.cause[rows] = judged.first_cause
        parts = terms(judged)
        for name in _TERMS:
            self.terms[name][rows] = getattr(parts, name)

    def _grow(self, size: int) -> None:
        if size > len(self.cause):
            room = max(size, 2 * len(self.cause)) - len(self.cause)
            self.cause = np.concatenate([self.cause, np.zeros(room, dtype=np.int64)])
            self.terms = {name: np.concatenate([column, np.zeros(room)]) for name, column in self.terms.items()}


class Shapes:
    """Answers about many nodes at once, out of what is kept for each shape."""

    def __init__(self, ledger: Ledger, *, weights: Weights = DEFAULT_WEIGHTS) -> None:
        self._ledger = ledger
        self._weights = weights
        self._kept: OrderedDict[Ask, _Shape] = OrderedDict()

    def best(self, ask: Ask, *, nodes: Sequence[str], key: str, limit: int | None = None) -> list[str]:
        """The nodes of `nodes` that fit: all of them in the order asked, or with `limit` at most that many, best first.

        A claim that stands under `key` is not counted. Empty when none fits.
        """
        cause, parts = self._columns(ask, nodes=nodes, key=key)
        found = np.flatnonzero(cause < 0)
        if limit is not None and len(found) > limit:
            scores = combine(_select(parts, found), policy=ask.policy, weights=self._weights)
            found = found[np.argsort(-scores, kind="stable")[:limit]]
        return [nodes[at] for at in found.tolist()]

    def scores(self, ask: Ask, *, nodes: Sequence[str], key: str) -> list[float]:
        """How well each of `nodes` would do, 0 to 1, in the order asked. They are taken to fit."""
        _, parts = self._columns(ask, nodes=nodes, key=key)
        return list(combine(parts, policy=ask.policy, weights=self._weights).tolist())

    def refusals(self, ask: Ask, *, nodes: Sequence[str], key: str) -> dict[str, Refusal]:
        """Why each of the nodes that do not fit does not, in the words that all nodes of a cause share."""
        cause, _ = self._columns(ask, nodes=nodes, key=key)
        judged = Judgement(self._ledger, ask, nodes=(), key="")
        shared = [judged.outline(at, node="") for at in range(int(cause.max(initial=-1)) + 1)]
        return {
            name: shared[at] if at >= NODE_CAUSES else judged.outline(at, node=name)
            for name, at in zip(nodes, cause.tolist(), strict=True)
            if at >= 0
        }

    def _columns(self, ask: Ask, *, nodes: Sequence[str], key: str) -> tuple[Ints, Terms]:
        """The first cause of each node, -1 where it fits, and the terms of its score."""
        shape = self._shape(ask)
        rows = self._ledger.rows(nodes)
        # Whatever row -1 reads, a node that was never seen has the first cause.
        cause = np.where(rows < 0, 0, shape.cause[rows])
        parts = {name: column[rows] for name, column in shape.terms.items()}
        own = self._ledger.claim(key)
        at = np.flatnonzero(rows == self._ledger.rows([own.node])[0]) if own is not None else ()
        if own is not None and len(at):
            # The pod's own claim does not stand in its way: its node is judged as if it were not there.
            judged = Judgement(self._ledger, ask, nodes=[own.node], key=key)
            cause[at] = judged.first_cause
            alone = terms(judged)
            for name in _TERMS:
                parts[name][at] = getattr(alone, name)
        return cause, Terms(**parts)

    def _shape(self, ask: Ask) -> _Shape:
        shape = self._kept.pop(ask, None) or _Shape()
        self._kept[ask] = shape
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        shape.refresh(self._ledger, ask)
        return shape


def _select(parts: Terms, rows: Rows) -> Terms:
    return Terms(**{name: getattr(parts, name)[rows] for name in _TERMS})
