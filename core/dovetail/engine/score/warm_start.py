"""What the pods that are here teach a fragmentation term, before any more of them arrive. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.score.live_fragmentation import Fragments, FragmentSettings

# Pods that are counted at a time.
_AT_A_TIME: Final = 50


def count_those_here(fragments: Fragments, asks: Iterable[tuple[str, Ask | None]]) -> Iterator[int]:
    """Count the pods that are here, by UID, each as an arrival; who asks nothing does not count. In small steps: what
    is given is how many were counted so far."""
    counted = 0
    for seen, (uid, ask) in enumerate(asks, start=1):
        if ask is not None:
            fragments.arrived(ask, key=uid)
            counted += 1
        if seen % _AT_A_TIME == 0:
            yield counted
    yield counted


def learned_here(
    ledger: Ledger, *, policy: FragmentationPolicy, asks: Iterable[tuple[str, Ask | None]]
) -> tuple[Fragments, int]:
    """A term that has learned from the pods that are here, worked out at once, and how many they were.

    Nothing is replayed for it: where the tuner is to choose, PH as it is set stands for its choice.
    """
    settings = FragmentSettings(policy="ph" if policy == "tuned" else policy)
    fragments = Fragments(ledger, settings=settings)
    fragments.follow()
    counted = 0
    for counted in count_those_here(fragments, asks):  # noqa: B007 - the last count is what is told
        while fragments.work():
            pass
        fragments.follow()
    return fragments, counted
