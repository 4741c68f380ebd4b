"""Cache of judgements: which nodes fit each distinct ask and how well, updated node by node.

kube-scheduler asks about thousands of nodes for each pod, most pods have one of a few shapes, and few nodes change
between two pods. So each ask is judged once on all nodes, and after that only on the nodes that the ledger's log
names. The answers equal those of `screen` and `rank`; a test compares them.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.engine.filter import single_node
from dovetail.engine.filter.device_choice import FreeDevices
from dovetail.engine.filter.fit import Fit, Judgement, check
from dovetail.engine.filter.single_node import SingleNode
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.node_table import NOTHING_READ
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.columns import Bools, Floats, Ints
from dovetail.engine.model.refusals import Refusal
from dovetail.engine.score.fragmentation_term import CachedTerm, FragmentationTerm
from dovetail.engine.score.live_fragmentation import term_of
from dovetail.engine.score.score import Terms, combine, terms, terms_of_node, warmed

Rows = npt.NDArray[np.intp]
Prices = Callable[[], FragmentationTerm]

# Cached asks; the least recently used one is evicted. 5,000 nodes cost about 0.2 MB for each ask, and 2 MB where
# headroom is priced for a hundred classes.
MAX_ASKS: Final = 256
MAX_BYTES: Final = 128 << 20
# Caches of profiles; requests of users name them, so that there may be many.
_MAX_PROFILES: Final = 32
# Up to so many changed nodes are judged one by one: a node takes a fifth of what arrays take for any few.
FEW_NODES: Final = 8
_TERMS: Final = ("utilization", "memory", "cpu", "stake")
# In place of a cause: the node fits; or it does not, and the cause has not been computed.
_FITS: Final = -1
_NOT_ASKED: Final = -2


def wants_large_cards(ask: Ask) -> bool:
    """Whether the request is large: several whole devices for one worker."""
    return ask.gpu is not None and ask.gpu.whole and ask.gpu.count > 1


def card_gb(judged: Judgement) -> Ints:
    """The nominal size in GB of the largest device of each node, [n]; 0 for a node without devices."""
    columns = judged.columns
    codes = np.where(columns.present, columns.model, -1)
    # The last entry is that of the code -1.
    sizes = np.zeros(int(codes.max(initial=-1)) + 2, dtype=np.int64)
    for code in np.unique(codes[codes >= 0]).tolist():
        sizes[code] = judged.ledger.nominal_gb(code)
    return np.asarray(sizes[codes].max(axis=1, initial=0), dtype=np.int64)


def card_gb_of_node(judged: SingleNode) -> int:
    """The same number for one node."""
    models = {model for model, present in zip(judged.node.model, judged.node.present, strict=True) if present}
    return max((judged.ledger.nominal_gb(code) for code in models), default=0)


class _Shape:
    """The cached judgement of one ask, by row of the ledger.

    Prices are asked for only once a node fits: a full cluster needs none.
    """

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.position = NOTHING_READ
        self._generation = 0
        self.cause: Ints = np.zeros(64, dtype=np.int64)
        self.terms: dict[str, Floats] = {name: np.zeros(64) for name in _TERMS}
        # Of a large request; 0 for others.
        self.card_gb: Ints = np.zeros(64, dtype=np.int64)
        # None as long as no node has ever fit.
        self._fragmentation: CachedTerm | None = None

    @property
    def size_bytes(self) -> int:
        fragmentation = 0 if self._fragmentation is None else self._fragmentation.size_bytes
        return (2 + len(_TERMS)) * self.cause.nbytes + fragmentation

    def refresh(self, ledger: Ledger, *, prices: Prices) -> None:
        """Judge the rows that changed since the last call. `prices` gives the fragmentation term, up to date."""
        if self._fragmentation is not None and self._generation != (generation := prices().generation):
            self._fragmentation.renew()
            self._generation = generation
        if self.position == ledger.changes:
            return
        touched = sorted(ledger.touched_since(self.position))
        self._grow(ledger.size)
        if 0 < len(touched) <= FEW_NODES and single_node.covers(self.ask):
            self._judge_one_by_one(touched, ledger=ledger, prices=prices)
        else:
            self._judge_at_once(np.array(touched, dtype=np.int64), ledger=ledger, prices=prices)
        self.position = ledger.changes

    def _judge_one_by_one(self, rows: Sequence[int], *, ledger: Ledger, prices: Prices) -> None:
        judged = [single_node.judge(ledger, ask=self.ask, node=ledger.name(row)) for row in rows]
        for row, one in zip(rows, judged, strict=True):
            self.cause[row] = _FITS if one.fits else _NOT_ASKED
            for name, value in zip(_TERMS, terms_of_node(one), strict=True):
                self.terms[name][row] = value
            if wants_large_cards(self.ask):
                self.card_gb[row] = card_gb_of_node(one)
        if (fragmentation := self._priced(any(one.fits for one in judged), prices=prices)) is not None:
            fragmentation.store_nodes(np.array(rows, dtype=np.int64), judged=judged)

    def _judge_at_once(self, rows: Ints, *, ledger: Ledger, prices: Prices) -> None:
        judged = Judgement(ledger, ask=self.ask, nodes=ledger.names(rows.tolist()), key="")
        self.cause[rows] = np.where(judged.fits, _FITS, _NOT_ASKED)
        some = bool(judged.fits.any())
        if (fragmentation := self._priced(some, prices=prices)) is not None:
            fragmentation.store(rows, judged=judged)
        if not some:
            # Terms are of nodes that fit. A full cluster has none, for most of the shapes that wait.
            return
        parts = terms(judged, fragmentation=np.zeros(len(rows)))
        for name in _TERMS:
            self.terms[name][rows] = getattr(parts, name)
        if wants_large_cards(self.ask):
            self.card_gb[rows] = card_gb(judged)

    def _priced(self, some_fit: bool, *, prices: Prices) -> CachedTerm | None:
        """The cached term; None before the first judgement in which some nodes fit."""
        if self._fragmentation is None and some_fit:
            term = prices()
            self._generation, self._fragmentation = term.generation, term.keep(self.ask)
        return self._fragmentation

    def fragmentation(self, rows: Rows) -> Floats:
        """The term of each of `rows`, [n]; of those that do not fit, any number."""
        return np.zeros(len(rows)) if self._fragmentation is None else self._fragmentation.values(rows)

    def causes(self, ledger: Ledger, *, rows: Rows) -> Ints:
        """Why the ask does not fit on each of `rows`, as `Judgement.first_cause`."""
        unknown = np.unique(rows[(rows >= 0) & (self.cause[rows] == _NOT_ASKED)])
        if unknown.size:
            judged = Judgement(ledger, ask=self.ask, nodes=ledger.names(unknown.tolist()), key="")
            self.cause[unknown] = judged.first_cause
        return self.cause[rows]

    def _grow(self, size: int) -> None:
        if size > len(self.cause):
            room = max(size, 2 * len(self.cause)) - len(self.cause)
            self.cause = np.concatenate([self.cause, np.zeros(room, dtype=np.int64)])
            self.card_gb = np.concatenate([self.card_gb, np.zeros(room, dtype=np.int64)])
            self.terms = {name: np.concatenate([column, np.zeros(room)]) for name, column in self.terms.items()}


class FitCache:
    """Answers about many nodes at once from the cached judgements.

    `term` is the fragmentation term; by default that of the ledger's prices.
    """

    def __init__(self, ledger: Ledger, *, term: FragmentationTerm | None = None, max_bytes: int = MAX_BYTES) -> None:
        self._ledger = ledger
        self._given_term = term
        self._max_bytes = max_bytes
        self._cached: OrderedDict[Ask, _Shape] = OrderedDict()
        # By profile: its ledger, the term there, and the cache that is of both.
        self._of_profiles: dict[str, tuple[Ledger, FragmentationTerm, FitCache]] = {}

    def check(self, ask: Ask, *, node: str, key: str) -> Fit | Refusal:
        """As `fit.check`, with the devices that the fragmentation term prefers. Not cached."""
        if (seen := self._seen_by(ask)) is not self:
            return seen.check(ask, node=node, key=key)

        def values(free: FreeDevices) -> Sequence[float]:
            return self._term.device_values(free, key=key)

        return check(self._ledger, ask=ask, node=node, key=key, device_values=values)

    def best(
        self, ask: Ask, *, nodes: Sequence[str], key: str, limit: int | None = None, within: float = math.inf
    ) -> list[str]:
        """The nodes that fit. Without `limit` all of them, in the order of `nodes`.

        With `limit` at most that many, best first, and none whose score (0 to 1) is more than `within` below the best.
        Of nodes with equal scores, a large request gets those with the largest cards first, and then the first ones of
        the ledger, whatever the order of `nodes` is: FGD rests on it that ties always go to the same nodes. The claim
        `key` itself does not count.
        """
        if (seen := self._seen_by(ask)) is not self:
            return seen.best(ask, nodes=nodes, key=key, limit=limit, within=within)
        shape = self._shape(ask)
        fits, parts = self._columns(shape, nodes=nodes, key=key)
        found = np.flatnonzero(fits)
        if limit is not None and len(found) > 1:
            scores = combine(_select(parts, rows=found), policy=ask.policy, weights=ask.weights)
            scores = warmed(scores, ask=ask, nodes=[nodes[at] for at in found.tolist()] if ask.warm else ())
            near = np.flatnonzero(scores >= scores.max() - within)
            near, rows = _by_row(near, rows=self._ledger.rows(nodes)[found[near]])
            cards = shape.card_gb[rows]
            found = found[near[_first_of_best(scores[near], then=cards, count=min(limit, len(near)))]]
        return [nodes[at] for at in found.tolist()]

    def scores(self, ask: Ask, *, nodes: Sequence[str], key: str) -> list[float]:
        """The score of each of `nodes`, 0 to 1, in their order. The caller makes sure that they fit."""
        if (seen := self._seen_by(ask)) is not self:
            return seen.scores(ask, nodes=nodes, key=key)
        _, parts = self._columns(self._shape(ask), nodes=nodes, key=key)
        scores = combine(parts, policy=ask.policy, weights=ask.weights)
        return list(warmed(scores, ask=ask, nodes=nodes).tolist())

    def values(self, ask: Ask, *, nodes: Sequence[str]) -> Floats:
        """The fragmentation term of each of `nodes`, in their order, [n]; higher is better, 0 where it does not fit."""
        if (seen := self._seen_by(ask)) is not self:
            return seen.values(ask, nodes=nodes)
        fits, parts = self._columns(self._shape(ask), nodes=nodes, key="")
        return np.where(fits, parts.fragmentation, 0.0)

    def refusals(self, ask: Ask, *, nodes: Sequence[str], key: str) -> dict[str, Refusal]:
        """Why each node that does not fit is excluded, in the words that all nodes with this cause share."""
        if (seen := self._seen_by(ask)) is not self:
            return seen.refusals(ask, nodes=nodes, key=key)
        rows = self._ledger.rows(nodes)
        # Row -1 is an unknown node, which has the first cause.
        cause = np.where(rows < 0, 0, self._shape(ask).causes(self._ledger, rows=rows))
        at, judged = self._own(ask, rows=rows, key=key)
        if judged is not None:
            cause[at] = judged.first_cause
        words = Judgement(self._ledger, ask=ask, nodes=(), key="")
        shared = [words.outline(at, node="") for at in range(int(cause.max(initial=-1)) + 1)]
        return {
            name: words.outline(at, node=name) if words.is_nodes_own(at) else shared[at]
            for name, at in zip(nodes, cause.tolist(), strict=True)
            if at >= 0
        }

    @cached_property
    def _term(self) -> FragmentationTerm:
        return self._given_term or term_of(self._ledger)

    def _prices(self) -> FragmentationTerm:
        """The fragmentation term, up to date."""
        self._term.follow()
        return self._term

    def _seen_by(self, ask: Ask) -> "FitCache":
        """This cache for an ask for GPUs; that of the instances' ledger for one for MIG instances."""
        ledger = self._ledger.of_profile(ask.profile)
        if ledger is self._ledger:
            return self
        term, known = self._term.of_profile(ask.profile), self._of_profiles.get(ask.profile)
        if known is None or known[0] is not ledger or known[1] is not term:
            cache = FitCache(ledger, term=term, max_bytes=self._max_bytes)
            known = self._of_profiles[ask.profile] = ledger, term, cache
            if len(self._of_profiles) > _MAX_PROFILES:
                self._of_profiles.pop(next(iter(self._of_profiles)))
        return known[2]

    def _columns(self, shape: _Shape, *, nodes: Sequence[str], key: str) -> tuple[Bools, Terms]:
        """Which nodes fit, and the terms of their scores."""
        rows = self._ledger.rows(nodes)
        fits = (rows >= 0) & (shape.cause[rows] == _FITS)
        parts = {name: column[rows] for name, column in shape.terms.items()}
        parts["fragmentation"] = shape.fragmentation(rows)
        at, judged = self._own(shape.ask, rows=rows, key=key)
        if judged is not None:
            fits[at] = judged.fits
            alone = terms(judged, fragmentation=self._term.alone(judged, key=key))
            for name, part in parts.items():
                part[at] = getattr(alone, name)
        return fits, Terms(**parts)

    def _own(self, ask: Ask, *, rows: Rows, key: str) -> tuple[Rows, Judgement | None]:
        """The position of the node of the claim `key` in `rows`, and that node judged without the claim."""
        own = self._ledger.claim(key)
        at = np.flatnonzero(rows == self._ledger.rows([own.node])[0]) if own is not None else np.zeros(0, dtype=np.intp)
        if own is None or not len(at):
            return at, None
        return at, Judgement(self._ledger, ask=ask, nodes=[own.node], key=key)

    def _shape(self, ask: Ask) -> _Shape:
        ask = ask.alone
        shape = self._cached.pop(ask, None)
        is_new = shape is None
        shape = shape or _Shape(ask)
        shape.refresh(self._ledger, prices=self._prices)
        if is_new:
            self._make_room(shape.size_bytes)
        self._cached[ask] = shape
        return shape

    def _make_room(self, size_bytes: int) -> None:
        taken = size_bytes + sum(shape.size_bytes for shape in self._cached.values())
        while self._cached and (len(self._cached) >= MAX_ASKS or taken > self._max_bytes):
            taken -= self._cached.popitem(last=False)[1].size_bytes


def _first_of_best(scores: Floats, *, then: Ints, count: int) -> Rows:
    """Positions of the `count` highest scores, best first. Sorts only these few.

    Equal scores go by `then`, the highest first, and keep their order where that is equal too.
    """
    if count == len(scores):
        return np.lexsort((-then, -scores))
    least = -np.partition(-scores, count - 1)[count - 1]
    above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    first = above[np.lexsort((-then[above], -scores[above]))]
    return np.concatenate([first, equal[np.argsort(-then[equal], kind="stable")][: count - len(above)]])


def _by_row(positions: Rows, *, rows: Rows) -> tuple[Rows, Rows]:
    """Positions and their rows of the ledger, both [n], by row."""
    if (rows[1:] > rows[:-1]).all():
        return positions, rows
    order = np.argsort(rows)
    return positions[order], rows[order]


def _select(parts: Terms, *, rows: Rows) -> Terms:
    return Terms(
        utilization=parts.utilization[rows],
        memory=parts.memory[rows],
        cpu=parts.cpu[rows],
        stake=parts.stake[rows],
        fragmentation=parts.fragmentation[rows],
    )


def best_claim(ledger: Ledger, *, ask: Ask, nodes: Sequence[str], key: str, fit_cache: FitCache) -> Claim | None:
    """The claim `key` of one worker on the best of `nodes`; None where it fits on none."""
    assert ledger.claim(key) is None, "a plan's keys are its own"
    for node in fit_cache.best(ask, nodes=nodes, key=key, limit=1):
        found = fit_cache.check(ask, node=node, key=key)
        assert isinstance(found, Fit), "a node that fits has devices"
        return found.claim
    return None
