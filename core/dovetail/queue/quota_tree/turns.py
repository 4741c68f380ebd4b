"""Whose turn it is: the order of waiting jobs between the quotas of a tree. Pure.

Within a quota the jobs keep their order (priority, age). Between quotas, jobs within their own guarantee come first,
by age; then those that borrow from the nearest relatives, and among them those of the lowest dominant share for its
weight. An elastic job is within the guarantee if its fewest workers are. If not all are, it comes after the jobs that
borrow nothing: its other workers must not take what these are guaranteed.
"""

import heapq
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final, Protocol, TypeVar

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

    @property
    def least(self) -> int | None:
        """The smallest number of workers that it may start with; None for all of them."""


Job = TypeVar("Job", bound=Waiting)


def in_turn(ordered: Sequence[Job], *, loans: Loans) -> list[Job]:
    """The jobs in their turn between quotas; `ordered` is their order without a tree."""
    if not loans.tree:
        return list(ordered)
    own, lines = _own_first(ordered, loans=loans)
    shared = _shared(lines, loans=loans) if len(lines) > 1 else []
    first = {job.key for job in (*own, *shared)}
    return [*own, *shared, *(job for job in ordered if job.key not in first)]


def fewest(charge: Charge, *, least: int | None) -> Vector:
    """What a job takes at least: with the `least` workers of an elastic one."""
    return charge.need if least is None or not charge.each else tuple(amount * least for amount in charge.each)


def _by_age(lines: Mapping[int, Sequence[Job]]) -> list[Job]:
    """The jobs of several quotas: each quota has the places of its jobs by age, and fills them in its own order.

    So a job of high priority passes others of its quota, and a quota whose jobs have one gets no earlier places.
    """
    places = [(job.created, job.number, job.name, job.key, quota) for quota, jobs in lines.items() for job in jobs]
    following = {quota: iter(jobs) for quota, jobs in lines.items()}
    return [next(following[place[-1]]) for place in sorted(places)]


def _own_first(ordered: Sequence[Job], *, loans: Loans) -> tuple[list[Job], dict[int | None, list[Job]]]:
    """The jobs within their own guarantees in their turn, and all others in order, by their quota."""
    # The owners of each quota: those within its guarantee with all their workers, and those from the first one on that
    # is within it with its fewest workers alone.
    whole: dict[int, list[Job]] = {}
    part: dict[int, list[Job]] = {}
    lines: dict[int | None, list[Job]] = {}
    room = [
        [
            None if bound is None else max(0, bound - used)
            for bound, used in zip(node.bounds, loans.used(at), strict=True)
        ]
        for at, node in enumerate(loans.tree.nodes)
    ]
    # Each look passes thousands of jobs through this loop, and most do not get past their quota's GPUs.
    gpus_left = [inf if left[0] is None else left[0] for left in room]
    charge_of = loans.charges.get
    for job in ordered:
        charge = charge_of(job.key)
        quota = None if charge is None else charge.quota
        if (
            charge is not None
            and quota is not None
            and (charge.need[0] <= gpus_left[quota] or charge.each)
            and gpus_left[quota] > 0
            and (taken := _taken(charge, room=room[quota], least=job.least)) is not None
        ):
            owners = part if taken is not charge.need or quota in part else whole
            owners.setdefault(quota, []).append(job)
            gpus_left[quota] -= taken[0]
            continue
        line = lines.get(quota)
        if line is None:
            line = lines[quota] = []
        line.append(job)
    return [*_by_age(whole), *_by_age(part)], lines


def _taken(charge: Charge, *, room: list[int | None], least: int | None) -> Vector | None:
    """What a job takes of its quota's room, from which it is taken: with all its workers, else with its fewest."""
    if _take(room, need=charge.need):
        return charge.need
    if not charge.each or not _take(room, need=(least_of_it := fewest(charge, least=least))):
        return None
    return least_of_it


def _take(room: list[int | None], *, need: Vector) -> bool:
    """Take `need` of the room if it is there: of all that a guarantee names, and it names some of it."""
    is_named = False
    for left, amount in zip(room, need, strict=True):
        if left is not None and amount:
            if amount > left:
                return False
            is_named = True
    if not is_named and any(need):
        return False
    for at, amount in enumerate(need):
        left = room[at]
        room[at] = None if left is None else left - amount
    return True


def _shared(lines: Mapping[int | None, Sequence[Job]], *, loans: Loans) -> list[Job]:
    """The first jobs by progressive filling: each turn goes to the quota that is lowest once all earlier ones count.

    A turn only raises shares, so an old entry of the heap is never too high: it is compared again when it comes up.
    """
    filling = loans.copy()
    following = {quota: iter(jobs) for quota, jobs in lines.items()}
    heads = {quota: next(jobs) for quota, jobs in following.items()}
    ranked = [(_turn(job, quota=quota, loans=filling), -1 if quota is None else quota) for quota, job in heads.items()]
    heapq.heapify(ranked)
    found: list[Job] = []
    while ranked and len(found) < _EXACT:
        turn, at = ranked[0]
        quota = None if at < 0 else at
        job = heads[quota]
        now = _turn(job, quota=quota, loans=filling)
        if now > turn:
            heapq.heapreplace(ranked, (now, at))
            continue
        found.append(job)
        charge = filling.charge(job.key)
        if charge is not None:
            filling.count(charge)
        after = next(following[quota], None)
        if after is None:
            heapq.heappop(ranked)
        else:
            heads[quota] = after
            heapq.heapreplace(ranked, (_turn(after, quota=quota, loans=filling), at))
    return found


def _turn(job: Waiting, *, quota: int | None, loans: Loans) -> _Turn:
    """What the next job of a quota is compared by: its distance, then the shares on its path from the top."""
    charge = loans.charge(job.key)
    age = (job.share, job.created, job.number, job.name, job.key)
    if quota is None or charge is None:
        return (loans.depth(None, need=()), (_stepped(loans.outside_level),), *age)
    need = fewest(charge, least=job.least)
    path = loans.tree.nodes[quota].path
    return (loans.depth(quota, need=need), tuple(_stepped(loans.level(at)) for at in reversed(path)), *age)


def _stepped(level: float) -> int:
    return int(level / _STEP)
