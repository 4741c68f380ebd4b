"""Room that is kept free for jobs that wait, from pods that belong to no plan. Pure.

The first job of the queue that does not fit reserves its earliest start, and the operator tells in its status what of
that room is free now. Its own queue lets nobody take it who would delay that start; pods that are in no queue have to
be kept off as well. What is planned makes the reserved room smaller, since the operator has reckoned with both.
"""

from typing import Final

from dovetail.api.gpujob import ReservedRoom
from dovetail.engine.claims import Ask
from dovetail.engine.fit import Fit
from dovetail.engine.ledger import Ledger
from dovetail.engine.shapes import Shapes
from dovetail.logs import get_logger
from dovetail.requests import RequestError, parse

log = get_logger(__name__)

_FOR_EVER: Final = float("inf")


class Reserved:
    """What is reserved, by node and by the UID of the job that waits."""

    def __init__(self, *, ledger: Ledger, shapes: Shapes) -> None:
        self._ledger = ledger
        self._shapes = shapes
        self._rooms: dict[str, ReservedRoom] = {}
        self._asks: dict[str, dict[str, Ask]] = {}

    def job_changed(self, uid: str, room: ReservedRoom | None) -> None:
        """The job waits for this room, or for none any more."""
        known = self._rooms.get(uid)
        if room is None and known is None:
            return
        if room is not None and known is not None and room.kept == known.kept:
            return
        nodes = [each.name for each in known.kept] if known is not None else []
        for node in nodes:
            self.make_way(node)
            for key in [key for key in self._asks.get(node, {}) if key.startswith(f"{uid}/")]:
                del self._asks[node][key]
        self._rooms.pop(uid, None)
        if room is not None:
            self._rooms[uid] = room
            nodes += self._note(uid, room)
        for node in nodes:
            self.refill(node)

    def make_way(self, node: str) -> None:
        """Hold nothing on the node, until `refill`."""
        for key in self._asks.get(node, {}):
            self._ledger.release(key)

    def refill(self, node: str) -> None:
        """Hold what is reserved on the node as far as there is room."""
        for key, ask in self._asks.get(node, {}).items():
            if self._ledger.claim(key) is None:
                found = self._shapes.check(ask, node=node, key=key)
                if isinstance(found, Fit):
                    self._ledger.commit(found.claim, hold_until=_FOR_EVER)

    def review(self) -> None:
        """Hold what was not to be had before; to be called every second or so."""
        for node in self._asks:
            self.refill(node)

    @property
    def holding(self) -> int:
        """How many holds there are."""
        return sum(self._ledger.is_hold(key) for asks in self._asks.values() for key in asks)

    def _note(self, uid: str, room: ReservedRoom) -> list[str]:
        for each in room.kept:
            asks = self._asks.setdefault(each.name, {})
            for at, text in enumerate(each.keeps):
                try:
                    ask = Ask(gpu=parse(text), mode=room.mode, resource=room.resource)
                except RequestError as error:
                    log.warning("a reservation cannot be read", job_uid=uid, error=str(error))
                    continue
                asks[f"{uid}/kept/{each.name}/{at}"] = ask
        return [each.name for each in room.kept]
