"""The reservation of the first job that does not fit: its earliest start and its devices.

EASY backfill (Lifka, The ANL/IBM SP scheduling system, 1995), on devices instead of sums.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import replace as with_fields

from dovetail.api.reasons import queue as says
from dovetail.api.reasons.clause import Sentence
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.dependencies import with_number
from dovetail.queue.model.candidates import Candidate, Leaving, NoRoom, Room, Sites, find_room, needed_devices

# As long as pods that have to end are taken to need.
_LEAVING_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lending:
    """The use of a reserve by others, while those that it is kept for do not need it.

    - `within_seconds`: how long the pods of such a job may take to end
    - `claims`: keys of the claims of running jobs that may end for it together, in that time
    """

    within_seconds: float
    claims: frozenset[str] = frozenset()

    @property
    def ready_seconds(self) -> float:
        """Seconds from now until pods that end have ended: as soon as a job that lends, or would end, leaves."""
        return max(self.within_seconds, _LEAVING_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A job's start `at_seconds` from now with `claims`.

    - `job`: the job; a placeholder candidate for an advance reservation
    - `at_seconds`: seconds from now until the start
    - `claims`: what the job is to hold, one claim a worker
    - `words`: for an advance reservation, what messages say of it; None for a job
    - `until_seconds`: seconds from now until the reservation ends
    - `lending`: for a reserve, who may use it meanwhile; None for any other reservation
    """

    job: Candidate
    at_seconds: float
    claims: tuple[Claim, ...]
    words: Sentence | None = None
    until_seconds: float = float("inf")
    lending: Lending | None = None

    def admits(self, job: Candidate) -> bool:
        """Whether the job may use what is kept: its pods end as soon as those that it is kept for need it."""
        lending = self.lending
        return lending is not None and job.leave_seconds is not None and job.leave_seconds <= lending.within_seconds

    @property
    def ready_seconds(self) -> float:
        """Seconds from now until what ends by itself is of use: until the start, or as long as pods may take to end."""
        return self.at_seconds if self.lending is None else max(self.at_seconds, self.lending.ready_seconds)

    @property
    def devices(self) -> int:
        """The number of devices that are kept."""
        return sum(len(claim.devices) + claim.picked for claim in self.claims)

    def words_for(self, job: Candidate) -> Sentence:
        """What is kept from another job, and for whom."""
        if self.words is not None:
            return self.words
        namespace, _, name = self.job.name.partition("/")
        # Tenants must not see the names of other namespaces.
        is_near = job.name.partition("/")[0] == namespace
        if not is_near:
            return says.KEPT_FOR_ANOTHER(count=self.devices)
        return says.KEPT_FOR(count=self.devices, job=with_number(name, number=self.job.number))


def reserve(job: Candidate, *, ledger: Ledger, sites: Sites, leaving: Iterable[Leaving]) -> Reservation | None:
    """The earliest start of a job that does not fit now.

    None where no known end makes room for it.

    More ends leave more room, so doubling and bisection find the number of ends: a few placements, however many jobs
    run. They begin where enough devices are free, which is the answer for most jobs of whole GPUs.
    """
    nodes = sites[job.site] if job.site in sites else ledger.nodes()
    ends = _ends(leaving, ledger=ledger, nodes=set(nodes))
    if not ends:
        return None
    too_few = _too_few(job, ledger=ledger, nodes=nodes, ends=ends)
    future = _Future(job, ledger=ledger.copy(), sites=sites, ends=ends)
    step, count, room = 1, too_few + 1, None
    while room is None:
        if too_few >= len(future.ends):
            return None
        count = min(count, len(future.ends))
        room = future.room_after(count)
        if room is None:
            too_few, step, count = count, 2 * step, count + step
    while count - too_few > 1:
        middle = (too_few + count) // 2
        found = future.room_after(middle)
        if found is None:
            too_few = middle
        else:
            count, room = middle, found
    return Reservation(job=job, at_seconds=future.ends[count - 1].at_seconds, claims=room.claims)


def set_aside(reservation: Reservation, *, ledger: Ledger, leaving: Iterable[Leaving]) -> Ledger:
    """A copy of the ledger in which every fit, however long, leaves room for the reservation.

    The copy commits only the part of the reservation that is not covered by claims that end before its start. The free
    amount of each node and device is then the smaller of two: what is free now, and what is free once the reservation
    has begun.
    """
    kept = ledger.copy()
    for claim in kept_now(reservation, ledger=ledger, leaving=leaving):
        kept.commit(claim)
    return kept


def kept_now(reservation: Reservation, *, ledger: Ledger, leaving: Iterable[Leaving]) -> list[Claim]:
    """The parts of the reservation that are free now and must stay free.

    Claims that end before the start give the rest. An advance reservation does not count on ends that are assumed
    rather than set by a time limit.
    """
    lent = frozenset[str]() if reservation.lending is None else reservation.lending.claims
    gone = [
        ledger.claim(each.key)
        for each in leaving
        if each.key not in lent
        and each.at_seconds <= reservation.ready_seconds
        and (reservation.words is None or not each.assumed)
    ]
    gone += [ledger.claim(key) for key in lent]
    return beyond(reservation.claims, given=[claim for claim in gone if claim is not None])


def _too_few(job: Candidate, *, ledger: Ledger, nodes: Sequence[str], ends: Sequence[Leaving]) -> int:
    """A number of ends after which the job still has no room, because too few devices have enough share left."""
    asks = (job.ask, *job.others)
    needs = [need for ask in asks if (need := needed_devices(ask)) is not None]
    if len(needs) < len(asks):
        return 0
    each, share_milli = min(count for count, _ in needs), min(share for _, share in needs)
    # Workers with shares may have one device together.
    seats = (job.least or job.workers) if all(ask.mode == "Exclusive" for ask in asks) else 1
    counts = ledger.devices_with(share_milli, nodes=nodes)
    free, able = dict(zip(nodes, counts.tolist(), strict=True)), int((counts // each).sum())
    for number, end in enumerate(ends):
        if able >= seats:
            return max(0, number - 1)
        claim = ledger.claim(end.key)
        assert claim is not None, "only ends of claims that stand are counted"
        before = free[claim.node]
        free[claim.node] = before + len(claim.devices) + claim.unnamed
        able += free[claim.node] // each - before // each
    return len(ends) - (able >= seats)


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


def _ends(leaving: Iterable[Leaving], *, ledger: Ledger, nodes: set[str]) -> list[Leaving]:
    """The ends that can matter to a job, by time: of claims in the ledger, on the job's nodes."""
    first: dict[str, Leaving] = {}
    for each in sorted(leaving):
        claim = ledger.claim(each.key)
        if claim is not None and claim.node in nodes:
            first.setdefault(each.key, each)
    return list(first.values())


def beyond(claims: Collection[Claim], *, given: Iterable[Claim]) -> list[Claim]:
    """What `claims` take beyond what the claims `given` give back, by node and by device."""
    left, nodes = _Given(), {claim.node for claim in claims}
    for claim in given:
        # Most of thousands of ends are on other nodes.
        if claim.node in nodes:
            left.add(claim)
    return [left.reduce(claim) for claim in claims]


class _Given:
    """Amounts that are given back and not yet used up: milli, MiB and numbers of devices."""

    def __init__(self) -> None:
        self._left: Counter[tuple[str, str]] = Counter()

    def add(self, claim: Claim) -> None:
        self._left[claim.node, "cpu"] += claim.cpu_milli
        self._left[claim.node, "memory"] += claim.memory_mib
        self._left[claim.node, f"devices of {claim.resource}"] += len(claim.devices) + claim.unnamed
        for profile, count in claim.instances:
            self._left[claim.node, f"instances of {profile}"] += count
        for device in claim.devices:
            self._left[device.uuid, "share"] += device.share_milli
            self._left[device.uuid, "memory"] += device.memory_mib

    def reduce(self, claim: Claim) -> Claim:
        devices = [
            with_fields(
                device,
                share_milli=self._take(device.uuid, what="share", amount=device.share_milli),
                memory_mib=self._take(device.uuid, what="memory", amount=device.memory_mib),
            )
            for device in claim.devices
        ]
        return replace(
            claim,
            devices=tuple(device for device in devices if device.share_milli or device.memory_mib),
            unnamed=self._take(claim.node, what=f"devices of {claim.resource}", amount=claim.unnamed),
            instances=tuple(
                (profile, left)
                for profile, count in claim.instances
                if (left := self._take(claim.node, what=f"instances of {profile}", amount=count))
            ),
            cpu_milli=self._take(claim.node, what="cpu", amount=claim.cpu_milli),
            memory_mib=self._take(claim.node, what="memory", amount=claim.memory_mib),
        )

    def _take(self, where: str, *, what: str, amount: int) -> int:
        """The part of `amount` that is not given back."""
        taken = min(amount, self._left[where, what])
        self._left[where, what] -= taken
        return amount - taken
