"""The fragmentation term that belongs to a ledger and to its copies: plans on either are judged by the same prices.

A scheduling cycle plans on copies of the ledger, and of these copies for reservations and preemption. Each copy gets
the term of its original, with the capacity that it has itself. The term of a copy is made when a plan first needs it,
because most copies are thrown away unused.
"""

from typing import cast
from weakref import proxy

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fragmentation_term import BestFit, FragmentationTerm
from dovetail.engine.score.live_fragmentation import LiveFragmentation
from dovetail.engine.score.priced_term import PricedTerm


def price_by(term: LiveFragmentation, *, ledger: Ledger) -> None:
    """Judge plans on `ledger` and on its later copies by this term over it."""
    ledger.prices = _Original(term)


def term_of(ledger: Ledger) -> FragmentationTerm:
    """The term by which plans on the ledger are judged: best fit where nothing is priced."""
    prices = ledger.prices
    term = prices.term(ledger) if isinstance(prices, _Original | _Copied) else None
    return BestFit() if term is None else term


class _Original:
    """The prices of a ledger that has its own term."""

    def __init__(self, term: LiveFragmentation) -> None:
        self._term = term

    def term(self, ledger: Ledger) -> PricedTerm | None:  # noqa: ARG002 - as `_Copied.term`
        return None if self._term.is_best_fit else self._term

    def of_copy(self, *, original: Ledger) -> "_Copied":
        return _Copied(self, original=original)


class _Copied:
    """The prices of a copy of `original`, made now."""

    def __init__(self, prices: "_Original | _Copied", *, original: Ledger) -> None:
        self._prices = prices
        self._original = original
        self._position = original.changes
        self._term: PricedTerm | None = None

    def term(self, ledger: Ledger) -> PricedTerm | None:
        if self._term is None:
            original = self._prices.term(self._original)
            if original is not None:
                changed = {*self._original.touched_since(self._position), *ledger.touched_since(0)}
                # A ledger has its prices, and these must not keep it in memory.
                self._term = original.over(cast("Ledger", proxy(ledger)), changed=changed)
        return self._term

    def of_copy(self, *, original: Ledger) -> "_Copied":
        return _Copied(self, original=original)
