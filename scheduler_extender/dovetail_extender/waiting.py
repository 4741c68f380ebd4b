"""Pods that were refused and wait, and which of them would fit by now. Pure: the clock is an argument.

kube-scheduler asks again about a refused pod when something changes that it watches. Much of what makes room it does
not watch: a hold that ends, a device that is well again or no longer cordoned, a stranger's process that went. And of a
bound pod that goes it may hear before we do, and then refuses the waiting pod once more for nothing. So each refusal is
remembered with the nodes that were asked about; a pod is owed a wake-up once one of these nodes fits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.engine.claims import Ask
from dovetail.engine.ledger import Ledger
from dovetail.engine.shapes import Shapes

# Refused pods that are remembered, by the latest; 5,000 nodes cost 625 bytes a pod.
REMEMBERED: Final = 10_000
# Between wake-ups for all.
PAUSE_SECONDS: Final = 1.0
# A pod that was woken and is not asked about waits for something else, or the wake-up was lost: again after 2 s, 4 s …
LONGEST_SECONDS: Final = 60.0

Rows = npt.NDArray[np.intp]


@dataclass(slots=True)
class _Refused:
    ask: Ask
    # Bits by row of the ledger: the nodes that kube-scheduler asked about.
    asked: npt.NDArray[np.uint8]
    wakes: int = 0
    wake_at: float = field(default=float("-inf"))


class Waiting:
    """The refused pods by UID."""

    def __init__(self, *, ledger: Ledger, shapes: Shapes, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._shapes = shapes
        self._clock = clock
        self._pods: dict[str, _Refused] = {}
        self._by_ask: dict[Ask, dict[str, _Refused]] = {}
        self._owed: dict[str, _Refused] = {}
        self._seen = ledger.changes
        self._next_at = float("-inf")

    def __len__(self) -> int:
        return len(self._pods)

    def refused(self, uid: str, *, ask: Ask, nodes: Sequence[str]) -> None:
        """The pod fits on none of `nodes` as the ledger is now."""
        self.forget(uid)
        rows = self._ledger.rows(nodes)
        asked = np.zeros(self._ledger.size, dtype=np.bool_)
        asked[rows[rows >= 0]] = True
        self._pods[uid] = self._by_ask.setdefault(ask, {})[uid] = _Refused(ask, np.packbits(asked))
        if len(self._pods) > REMEMBERED:
            self.forget(next(iter(self._pods)))

    def forget(self, uid: str) -> None:
        """The pod waits no longer, or is gone."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self._owed.pop(uid, None)
        of_its_kind = self._by_ask[pod.ask]
        del of_its_kind[uid]
        if not of_its_kind:
            del self._by_ask[pod.ask]

    def wake_due(self) -> bool:
        """Whether a wake-up is due now: at most one a second, and only while one of the pods would fit."""
        self._take_notice()
        now = self._clock()
        if now < self._next_at:
            return False
        for uid, pod in list(self._owed.items()):
            if pod.wake_at > now:
                continue
            if self._fits(pod):
                return True
            del self._owed[uid]
        return False

    def woken(self) -> None:
        """A wake-up was sent: it is one for all pods that were owed one."""
        now = self._clock()
        self._next_at = now + PAUSE_SECONDS
        for pod in self._owed.values():
            if pod.wake_at <= now:
                pod.wakes += 1
                pod.wake_at = now + min(LONGEST_SECONDS, 2.0**pod.wakes)

    def failed(self) -> None:
        """A wake-up could not be sent: not again at once."""
        self._next_at = self._clock() + PAUSE_SECONDS

    def _take_notice(self) -> None:
        """Find the pods for which one of the nodes that changed since the last time fits now."""
        position = self._ledger.changes
        if position == self._seen:
            return
        touched = np.fromiter(self._ledger.touched_since(self._seen), dtype=np.intp)
        self._seen = position
        for ask, pods in self._by_ask.items():
            fitting = self._fitting(ask, rows=touched)
            if len(fitting):
                self._owed |= {uid: pod for uid, pod in pods.items() if _any_of(fitting, asked=pod.asked)}

    def _fits(self, pod: _Refused) -> bool:
        asked = np.flatnonzero(np.unpackbits(pod.asked))
        return len(self._fitting(pod.ask, rows=asked)) > 0

    def _fitting(self, ask: Ask, *, rows: Rows) -> Rows:
        names = [self._ledger.name(row) for row in rows.tolist()]
        return self._ledger.rows(self._shapes.best(ask, nodes=names, key=""))


def _any_of(rows: Rows, *, asked: npt.NDArray[np.uint8]) -> bool:
    rows = rows[rows < 8 * len(asked)]
    return bool((asked[rows >> 3] >> (7 - (rows & 7)) & 1).any())
