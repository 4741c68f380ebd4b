"""Reserved room, held against pods that belong to no plan. Pure.

A waiting job reserves its earliest start, and the operator writes to the job's status which part of that room is free
now. It writes the room of advance reservations to the status of their GPUQuota. The operator's queue backfills only
jobs that do not delay the start; this module keeps out the pods that are in no queue. Plans take precedence over
reserved room, because the operator has already counted both.

Room that a pod leaves on a reserved node may be what the job waits for. It is kept too, until the operator has run its
next scheduling cycle.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dovetail.api.gpujob import ReservedRoom
from dovetail.engine.filter.fit import Fit
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.request import RequestError, parse
from dovetail.jobs.plan import kept_texts
from dovetail.logs import get_logger

log = get_logger(__name__)

_FOR_EVER: Final = float("inf")
# The operator runs a scheduling cycle within a second, and then publishes what it keeps, or a plan. The rest is margin.
_LOOKED_AT_SECONDS: Final = 5.0


class Reserved:
    """The reserved room, by node and by the UID of the waiting job."""

    def __init__(self, *, ledger: Ledger, fit_cache: FitCache, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._fit_cache = fit_cache
        self._clock = clock
        self._rooms: dict[str, ReservedRoom] = {}
        self._asks: dict[str, dict[str, Ask]] = {}
        # When a hold over room that a pod left expires, by key, in seconds of the clock.
        self._until: dict[str, float] = {}

    def job_changed(self, uid: str, *, room: ReservedRoom | None) -> None:
        """Set the room that the job has reserved; None removes it."""
        known = self._rooms.get(uid)
        if room is None and known is None:
            return
        if room is not None and known is not None and msgspec.structs.replace(room, time=known.time) == known:
            return
        nodes = [] if known is None else _nodes_of(known)
        for node in nodes:
            self._drop([key for key in self._asks.get(node, {}) if key.startswith(f"{uid}/")], node=node)
        self._rooms.pop(uid, None)
        if room is not None:
            self._rooms[uid] = room
            self._note(uid, room=room)
            nodes += _nodes_of(room)
        for node in nodes:
            self.refill(node)

    def left(self, pod_uid: str, *, node: str, claim: Callable[[], Claim]) -> None:
        """Keep the room that a pod has left on the node, for a few seconds, if the node is reserved."""
        for uid, room in self._rooms.items():
            if any(each.name == node for each in room.nodes):
                due = self._clock() + _LOOKED_AT_SECONDS
                for at, text in enumerate(kept_texts([claim()])):
                    key = f"{uid}/left/{pod_uid}/{at}"
                    self._asks.setdefault(node, {})[key] = _ask(text, room=room)
                    self._until[key] = due
                self.refill(node)

    def release(self, node: str) -> None:
        """Release all reserved room on the node, until `refill`."""
        for key in self._asks.get(node, {}):
            self._ledger.release(key)

    def refill(self, node: str) -> None:
        """Hold the reserved room on the node, as far as it is free."""
        for key, ask in self._asks.get(node, {}).items():
            if self._ledger.claim(key) is None:
                found = self._fit_cache.check(ask, node=node, key=key)
                if isinstance(found, Fit):
                    self._ledger.commit(found.claim, hold_until=_FOR_EVER)

    def review(self) -> None:
        """Drop expired holds and create the missing ones; call this about every second."""
        now = self._clock()
        for node in list(self._asks):
            self._drop([key for key in self._asks[node] if self._until.get(key, _FOR_EVER) <= now], node=node)
            self.refill(node)

    @property
    def holding(self) -> int:
        """The number of holds."""
        return sum(self._ledger.is_hold(key) for asks in self._asks.values() for key in asks)

    def _note(self, uid: str, *, room: ReservedRoom) -> None:
        for each in room.kept:
            for at, text in enumerate(each.keeps):
                try:
                    ask = _ask(text, room=room)
                except RequestError as error:
                    log.warning("a reservation cannot be read", job_uid=uid, error=str(error))
                    continue
                self._asks.setdefault(each.name, {})[f"{uid}/kept/{each.name}/{at}"] = ask

    def _drop(self, keys: Iterable[str], *, node: str) -> None:
        asks = self._asks.get(node, {})
        for key in keys:
            self._ledger.release(key)
            self._until.pop(key, None)
            del asks[key]
        if not asks:
            self._asks.pop(node, None)


def _nodes_of(room: ReservedRoom) -> list[str]:
    return list(dict.fromkeys([*(each.name for each in room.nodes), *(each.name for each in room.kept)]))


def _ask(text: str, *, room: ReservedRoom) -> Ask:
    return Ask(gpu=parse(text), mode=room.mode, resource=room.resource)
