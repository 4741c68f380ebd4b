"""The reservation of the first job that does not fit: its earliest start, and what has to be left to it until then.

EASY backfill (Lifka, The ANL/IBM SP scheduling system, 1995), per device instead of on sums.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.model.candidates import Candidate, Leaving, NoRoom, Room, Sites, find_room


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """`job` is to start `at_seconds` from now with `claims`; `words` say for whom that is kept, where it is no job.

    Nothing is kept from `until_seconds` on.
    """

    job: Candidate
    at_seconds: float
    claims: tuple[Claim, ...]
    words: str = ""
    until_seconds: float = float("inf")

    @property
    def devices(self) -> int:
        """Number of devices that are kept."""
        return sum(len(claim.devices) + claim.unnamed for claim in self.claims)


def reserve(job: Candidate, *, ledger: Ledger, sites: Sites, leaving: Iterable[Leaving]) -> Reservation | None:
    """The earliest start of a job that does not fit now. None where no end that is known makes room for it.

    More ends leave more room, so the number of ends that it takes is found by doubling and halving: a few placements
    however many jobs run.
    """
    nodes = set(sites[job.site]) if job.site in sites else None
    future = _Future(job, ledger=ledger.copy(), sites=sites, ends=_ends(leaving, ledger=ledger, nodes=nodes))
    too_few, count, room = 0, 1, None
    while room is None:
        if too_few >= len(future.ends):
            return None
        count = min(count, len(future.ends))
        room = future.room_after(count)
        if room is None:
            too_few, count = count, 2 * count
    while count - too_few > 1:
        middle = (too_few + count) // 2
        found = future.room_after(middle)
        if found is None:
            too_few = middle
        else:
            count, room = middle, found
    return Reservation(job=job, at_seconds=future.ends[count - 1].at_seconds, claims=room.claims)


def set_aside(reservation: Reservation, *, ledger: Ledger, leaving: Iterable[Leaving]) -> Ledger:
    """A copy of the ledger in which what fits stays out of the reservation's way, however long it runs.

    Of what is reserved only that part is taken which does not come from those who leave before: what is then free on
    each node and device is the lesser of what is free now and what will be free beside the reservation.
    """
    kept = ledger.copy()
    for claim in kept_now(reservation, ledger=ledger, leaving=leaving):
        kept.commit(claim)
    return kept


def kept_now(reservation: Reservation, *, ledger: Ledger, leaving: Iterable[Leaving]) -> list[Claim]:
    """What of the reservation is free now and has to stay so: the rest comes from those who leave before.

    What is kept for a time and for no job counts on nobody whose end is but a guess.
    """
    gone = [
        ledger.claim(each.key)
        for each in leaving
        if each.at_seconds <= reservation.at_seconds and not (reservation.words and each.assumed)
    ]
    return beyond(reservation.claims, given=[claim for claim in gone if claim is not None])


class _Future:
    """The ledger after a number of ends, in the order of their times."""

    def __init__(self, job: Candidate, *, ledger: Ledger, sites: Sites, ends: Sequence[Leaving]) -> None:
        self.ends = ends
        self._job = job
        self._sites = sites
        self._ledger = ledger
        self._fit_cache = FitCache(ledger)
        self._gone: list[Claim] = []

    def room_after(self, count: int) -> Room | None:
        while len(self._gone) < count:
            claim = self._ledger.release(self.ends[len(self._gone)].key)
            assert claim is not None, "only ends of claims that stand are counted"
            self._gone.append(claim)
        while len(self._gone) > count:
            self._ledger.commit(self._gone.pop())
        found = find_room(self._job, ledger=self._ledger, fit_cache=self._fit_cache, sites=self._sites)
        return None if isinstance(found, NoRoom) else found


def _ends(leaving: Iterable[Leaving], *, ledger: Ledger, nodes: set[str] | None) -> list[Leaving]:
    """The ends that can matter to a job, by time: of claims that stand, on its nodes."""
    first: dict[str, Leaving] = {}
    for each in sorted(leaving):
        claim = ledger.claim(each.key)
        if claim is not None and (nodes is None or claim.node in nodes):
            first.setdefault(each.key, each)
    return list(first.values())


def beyond(claims: Collection[Claim], *, given: Iterable[Claim]) -> list[Claim]:
    """What `claims` take beyond that which the claims `given` give back, node by node and device by device."""
    left, nodes = _Given(), {claim.node for claim in claims}
    for claim in given:
        # Of thousands that end most are elsewhere.
        if claim.node in nodes:
            left.add(claim)
    return [left.reduce(claim) for claim in claims]


class _Given:
    """Amounts that are given back and not yet counted against anything."""

    def __init__(self) -> None:
        self._left: Counter[tuple[str, str]] = Counter()

    def add(self, claim: Claim) -> None:
        self._left[claim.node, "cpu"] += claim.cpu_milli
        self._left[claim.node, "memory"] += claim.memory_mib
        self._left[claim.node, f"devices of {claim.resource}"] += len(claim.devices) + claim.unnamed
        for device in claim.devices:
            self._left[device.uuid, "share"] += device.share_milli
            self._left[device.uuid, "memory"] += device.memory_mib

    def reduce(self, claim: Claim) -> Claim:
        devices = [
            replace(
                device,
                share_milli=self._take(device.uuid, "share", device.share_milli),
                memory_mib=self._take(device.uuid, "memory", device.memory_mib),
            )
            for device in claim.devices
        ]
        return replace(
            claim,
            devices=tuple(device for device in devices if device.share_milli or device.memory_mib),
            unnamed=self._take(claim.node, f"devices of {claim.resource}", claim.unnamed),
            cpu_milli=self._take(claim.node, "cpu", claim.cpu_milli),
            memory_mib=self._take(claim.node, "memory", claim.memory_mib),
        )

    def _take(self, where: str, what: str, amount: int) -> int:
        """What of `amount` is not given back."""
        taken = min(amount, self._left[where, what])
        self._left[where, what] -= taken
        return amount - taken
