"""Refused pods, and which of them would fit now. Pure: the clock is an argument.

kube-scheduler retries a refused pod when an object that it watches changes. It does not watch much of what makes room:
a hold that expires, a device that recovers or is uncordoned, a foreign process that exits. It may also see the deletion
of a bound pod before the extender does, and then retries too early. So the extender remembers each refusal with the
nodes of the request, and a pod is due for a wake-up once it fits on one of them.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.engine.filter.fit import Judgement
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask

# Refused pods that are remembered; beyond that the oldest refusal is dropped. 5,000 nodes cost 625 bytes a pod.
REMEMBERED: Final = 10_000
# Bound on one check, in nodes judged for a request. The remaining requests are first in the next check.
NODES_AT_A_TIME: Final = 2000
_ASK_IN_NODES: Final = 200
# Between two wake-ups, each of which wakes all pods.
PAUSE_SECONDS: Final = 1.0
# A woken pod that kube-scheduler does not retry waits for something else, or the wake-up was lost. The next wake-up for
# it follows after 2 s, 4 s, and so on up to this.
LONGEST_SECONDS: Final = 60.0

Rows = npt.NDArray[np.intp]


@dataclass(slots=True)
class _Refused:
    kind: tuple[Ask, str]
    # One bit for each row of the ledger, packed: the nodes of kube-scheduler's request.
    asked: npt.NDArray[np.uint8]
    wakes: int = 0
    wake_at: float = field(default=float("-inf"))


@dataclass(slots=True)
class _Kind:
    """The refused pods of one request and hold.

    `seen` is the last change of the ledger that was checked, and `fitting` the rows of the nodes that fit.
    """

    seen: int
    pods: dict[str, _Refused] = field(default_factory=dict)
    fitting: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.intp))

    def owed(self, now: float) -> Iterator[_Refused]:
        """The pods that are due for a wake-up at `now`."""
        if len(self.fitting):
            yield from (
                pod for pod in self.pods.values() if pod.wake_at <= now and _any_of(self.fitting, asked=pod.asked)
            )


class Waiting:
    """The refused pods by UID."""

    def __init__(self, *, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._pods: dict[str, _Refused] = {}
        self._kinds: dict[tuple[Ask, str], _Kind] = {}
        self._turns: deque[tuple[Ask, str]] = deque()
        self._next_at = float("-inf")

    def __len__(self) -> int:
        return len(self._pods)

    def refused(self, uid: str, *, ask: Ask, nodes: Sequence[str], key: str = "") -> None:
        """Remember that the pod fits on none of `nodes` now; a hold under `key` is the pod's own."""
        self.forget(uid)
        rows = self._ledger.rows(nodes)
        asked = np.zeros(self._ledger.size, dtype=np.bool_)
        asked[rows[rows >= 0]] = True
        kind = ask, key
        if kind not in self._kinds:
            self._kinds[kind] = _Kind(self._ledger.changes)
            self._turns.append(kind)
        self._pods[uid] = self._kinds[kind].pods[uid] = _Refused(kind, np.packbits(asked))
        if len(self._pods) > REMEMBERED:
            self.forget(next(iter(self._pods)))

    def forget(self, uid: str) -> None:
        """Forget a pod that fits, is bound or is deleted."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        kind = self._kinds[pod.kind]
        del kind.pods[uid]
        if not kind.pods:
            del self._kinds[pod.kind]
            self._turns.remove(pod.kind)

    def wake_due(self) -> bool:
        """Whether a wake-up is due: at most one in `PAUSE_SECONDS`, and only while a pod would fit."""
        self._take_notice()
        now = self._clock()
        if now < self._next_at:
            return False
        return any(self._owes(kind, ask=ask, key=key, now=now) for (ask, key), kind in self._kinds.items())

    def woken(self) -> None:
        """Record that a wake-up was sent, which counts for every pod that was due."""
        now = self._clock()
        self._next_at = now + PAUSE_SECONDS
        for kind in self._kinds.values():
            for pod in kind.owed(now):
                pod.wakes += 1
                pod.wake_at = now + min(LONGEST_SECONDS, 2.0**pod.wakes)

    def failed(self) -> None:
        """Record that a wake-up failed; the next attempt follows after `PAUSE_SECONDS`."""
        self._next_at = self._clock() + PAUSE_SECONDS

    def _take_notice(self) -> None:
        """Find the nodes that changed since the last check and fit a refused request now."""
        left = NODES_AT_A_TIME
        for _ in range(len(self._turns)):
            if left <= 0:
                return
            ask, key = self._turns[0]
            self._turns.rotate(-1)
            kind = self._kinds[ask, key]
            if kind.seen == self._ledger.changes:
                continue
            touched = np.fromiter(self._ledger.touched_since(kind.seen), dtype=np.intp)
            kind.seen = self._ledger.changes
            left -= max(_ASK_IN_NODES, len(touched))
            kind.fitting = np.union1d(kind.fitting, self._fitting(ask, rows=touched, key=key))

    def _owes(self, kind: _Kind, *, ask: Ask, key: str, now: float) -> bool:
        """Whether one of these pods is due, after checking that the nodes still fit."""
        if not any(True for _ in kind.owed(now)):
            return False
        kind.fitting = self._fitting(ask, rows=kind.fitting, key=key)
        return any(True for _ in kind.owed(now))

    def _fitting(self, ask: Ask, *, rows: Rows, key: str) -> Rows:
        names = [self._ledger.name(row) for row in rows.tolist()]
        return rows[Judgement(self._ledger, ask=ask, nodes=names, key=key).fits]


def _any_of(rows: Rows, *, asked: npt.NDArray[np.uint8]) -> bool:
    rows = rows[rows < 8 * len(asked)]
    return bool((asked[rows >> 3] >> (7 - (rows & 7)) & 1).any())
