"""Gives a fragmentation term what was learned elsewhere, or what the pods show that already run. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.score.live_fragmentation import FragmentationSettings, LiveFragmentation
from dovetail.engine.score.mix_record import MixRecord

# Pods that are counted at a time.
_AT_A_TIME: Final = 50


def count_pods(fragments: LiveFragmentation, *, asks: Iterable[tuple[str, Ask | None]]) -> Iterator[int]:
    """Count each existing pod, by UID, as an arrival; pods without a request do not count.

    Yields the number counted so far, every few pods, so that the caller can do other work.
    """
    counted = 0
    for seen, (uid, ask) in enumerate(asks, start=1):
        if ask is not None:
            fragments.arrived(ask, key=uid)
            counted += 1
        if seen % _AT_A_TIME == 0:
            yield counted
    yield counted


def learned_at_once(
    ledger: Ledger, *, policy: FragmentationPolicy, asks: Iterable[tuple[str, Ask | None]]
) -> tuple[LiveFragmentation, int]:
    """A term that has learned from these requests, calculated at once; and how many requests there were."""
    fragments = _empty(ledger, policy=policy)
    counted = 0
    for counted in count_pods(fragments, asks=asks):  # noqa: B007 - the last count is the result
        while fragments.work():
            pass
        fragments.follow()
    return fragments, counted


def restored_at_once(ledger: Ledger, *, policy: FragmentationPolicy, record: MixRecord) -> LiveFragmentation:
    """The term that was in use where the record was made, calculated at once."""
    fragments = _empty(ledger, policy=policy)
    fragments.adopt(record)
    return fragments


def _empty(ledger: Ledger, *, policy: FragmentationPolicy) -> LiveFragmentation:
    fragments = LiveFragmentation(ledger, settings=FragmentationSettings(policy=policy))
    fragments.follow()
    return fragments
