"""Whose turn it is: the order of waiting jobs between the quotas of a tree. Pure.

Within a quota the jobs keep their order (priority, age). Between quotas, jobs within their own guarantee come first,
then those that borrow from the nearest relatives, and among them those of the lowest dominant share for its weight.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from dovetail.queue.quota_tree.loans import Charge, Loans
from dovetail.queue.quota_tree.tree import Vector

# How many jobs beyond their own guarantee get their exact turn. Later ones start only if all of these cannot, and keep
# the order that they have without a tree: an exact turn for each of 15,000 jobs would cost as much as their verdicts.
_EXACT: Final = 128
# Shares that differ by less than this are equal, so that the order does not change with every second of use.
_STEP: Final = 0.005

_Turn = tuple[object, ...]


class Waiting(Protocol):
    """A waiting job, as far as its turn depends on it: its key, its recent use for its share, its age."""

    @property
    def key(self) -> str:
        """The UID of the job."""

    @property
    def share(self) -> float:
        """The fair-share level of its account."""

    @property
    def created(self) -> str:
        """The time of its submission, RFC 3339."""

    @property
    def number(self) -> int:
        """Its number in its namespace."""

    @property
    def name(self) -> str:
        """Its namespace and name."""


Job = TypeVar("Job", bound=Waiting)


def in_turn(ordered: Sequence[Job], *, loans: Loans) -> list[Job]:
    """The jobs in their turn between quotas; `ordered` is their order without a tree."""
    if not loans.tree:
        return list(ordered)
    own, rest = _own_first(ordered, loans=loans)
    return [*own, *_shared(rest, loans=loans)]


def _own_first(ordered: Sequence[Job], *, loans: Loans) -> tuple[list[Job], list[Job]]:
    """The jobs within their own guarantees, the oldest first, and all others."""
    own: list[Job] = []
    rest: list[Job] = []
    room = [
        [
            None if bound is None else max(0, bound - used)
            for bound, used in zip(node.guaranteed, loans.used(at), strict=True)
        ]
        for at, node in enumerate(loans.tree.nodes)
    ]
    full = {at for at, left in enumerate(room) if left[0] == 0}
    charges = loans.charges
    for job in ordered:
        charge = charges.get(job.key)
        if charge is None or charge.quota is None or charge.quota in full:
            rest.append(job)
        elif _take(room[charge.quota], need=charge.need):
            own.append(job)
            if room[charge.quota][0] == 0:
                full.add(charge.quota)
        else:
            rest.append(job)
    own.sort(key=lambda job: (job.created, job.number, job.name, job.key))
    return own, rest


def _take(room: list[int | None], *, need: Vector) -> bool:
    """Take `need` of the room if it is there."""
    if any(left is not None and amount > left for left, amount in zip(room, need, strict=True)):
        return False
    for at, amount in enumerate(need):
        left = room[at]
        room[at] = None if left is None else left - amount
    return True


@dataclass(slots=True)
class _Line(Generic[Job]):
    """The first jobs of one quota that wait for a loan, as many as can get an exact turn, and the next of them."""

    jobs: list[tuple[Job, Charge | None]] = field(default_factory=list)
    next: int = 0


def _shared(rest: Sequence[Job], *, loans: Loans) -> list[Job]:
    """The jobs by progressive filling: each turn goes to the quota that is lowest once all earlier turns are counted.

    A turn only raises shares, so an old entry of the heap is never too high: it is compared again when it comes up.
    """
    lines: dict[int | None, _Line[Job]] = {}
    charges = loans.charges
    for job in rest:
        charge = charges.get(job.key)
        quota = None if charge is None else charge.quota
        line = lines.get(quota)
        if line is None:
            line = lines[quota] = _Line()
        if len(line.jobs) < _EXACT:
            line.jobs.append((job, charge))
    if len(lines) <= 1:
        return list(rest)
    filling = loans.copy()
    heap = [(_turn(line, quota=quota, loans=filling), quota) for quota, line in lines.items()]
    ranked = [(turn, -1 if quota is None else quota) for turn, quota in heap]
    heapq.heapify(ranked)
    found: list[Job] = []
    while ranked and len(found) < _EXACT:
        turn, at = ranked[0]
        quota = None if at < 0 else at
        line = lines[quota]
        now = _turn(line, quota=quota, loans=filling)
        if now > turn:
            heapq.heapreplace(ranked, (now, at))
            continue
        job, charge = line.jobs[line.next]
        line.next += 1
        found.append(job)
        if charge is not None:
            filling.count(charge)
        if line.next == len(line.jobs):
            heapq.heappop(ranked)
        else:
            heapq.heapreplace(ranked, (_turn(line, quota=quota, loans=filling), at))
    taken = {job.key for job in found}
    return found if not ranked else [*found, *(job for job in rest if job.key not in taken)]


def _turn(line: _Line[Job], *, quota: int | None, loans: Loans) -> _Turn:
    """What a quota's next job is compared by: its distance, then the shares on its path from the top."""
    job, charge = line.jobs[line.next]
    age = (job.share, job.created, job.number, job.name, job.key)
    if quota is None or charge is None:
        return (loans.depth(None, need=()), (_stepped(loans.outside_level),), *age)
    need = charge.need
    path = loans.tree.nodes[quota].path
    return (loans.depth(quota, need=need), tuple(_stepped(loans.level(at)) for at in reversed(path)), *age)


def _stepped(level: float) -> int:
    return int(level / _STEP)
