"""Who may start now: in order of priority and age, each job is placed whole or told what it is short of.

A job that does not fit is passed by later ones that do; reservations that bound this are a matter of their own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dovetail.api.gpujob import Reason
from dovetail.engine.claims import Ask, Claim
from dovetail.engine.ledger import Ledger
from dovetail.engine.plan import Shortage, place
from dovetail.engine.shapes import Shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A job as the queue sees it. `others` are further ways to meet what it asks, tried in order after `ask`.

    `workers` are those that have no node yet. `created` is the RFC 3339 time of submission. `site` names the nodes
    that its pods may go to in the `sites` of a cycle; a site that is not listed there is every node.
    """

    key: str
    ask: Ask
    workers: int = 1
    priority: int = 0
    created: str = ""
    name: str = ""
    site: str = ""
    others: tuple[Ask, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The job may start; `claims` are what its workers would hold, in the way of `ask`."""

    key: str
    claims: tuple[Claim, ...] = ()
    ask: Ask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The job waits, and why: one word of the closed set and one sentence with numbers."""

    key: str
    reason: Reason
    message: str


Verdict = Admitted | Waits
Sites = Mapping[str, Sequence[str]]


def order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Higher priority first, then the older, then by name, so that the order is total and the same everywhere."""
    return sorted(candidates, key=lambda job: (-job.priority, job.created, job.name, job.key))


def claim_on_the_way(candidates: Iterable[Candidate], *, ledger: Ledger, sites: Sites) -> None:
    """Set room aside in `ledger` for workers that were admitted and have no node yet, as far as there is room.

    They were admitted on room that the ledger does not show as taken until they are bound.
    """
    shapes = Shapes(ledger)
    for job in order(candidates):
        if job.ask.gpu is None:
            continue
        for worker in range(job.workers):
            key = f"{job.key}/{worker}"
            found = _place(job, job.ask, ledger=ledger, shapes=shapes, sites=sites, workers=1, key=key)
            if isinstance(found, Shortage):
                break
            _commit(found, ledger=ledger)


def admit(waiting: Iterable[Candidate], *, ledger: Ledger, sites: Sites) -> Iterator[Verdict]:
    """One verdict for each waiting job, in order. `ledger` is used up: hand over a copy.

    Within a cycle room only shrinks, so a shape that was refused once is refused again without another look: many
    waiting jobs of a few shapes cost a few placements. An iterator, so that a long cycle can be taken in parts.
    """
    shapes = Shapes(ledger)
    refused: dict[tuple[Ask, tuple[Ask, ...], int, str], Shortage] = {}
    for job in order(waiting):
        if job.ask.gpu is None:
            yield Admitted(key=job.key, ask=job.ask)
            continue
        shape = (job.ask, job.others, job.workers, job.site)
        shortage = refused.get(shape)
        if shortage is None:
            found = _place_somehow(job, ledger=ledger, shapes=shapes, sites=sites)
            if isinstance(found, Admitted):
                _commit(found.claims, ledger=ledger)
                yield found
                continue
            _, shortage = found
            refused[shape] = shortage
        yield Waits(key=job.key, reason=shortage.reason, message=shortage.message)


def way_of(job: Candidate, *, ledger: Ledger, sites: Sites) -> Ask:
    """Of the ways in which the job may be met, the one that has room, else the one of which it would be told."""
    found = _place_somehow(job, ledger=ledger, shapes=Shapes(ledger), sites=sites)
    return (found.ask or job.ask) if isinstance(found, Admitted) else found[0]


def _place_somehow(job: Candidate, *, ledger: Ledger, shapes: Shapes, sites: Sites) -> Admitted | tuple[Ask, Shortage]:
    """The first way that has room for all workers; else the first way that could ever have it, and its shortage.

    All workers are met in one way. A way that no node serves says less than any other.
    """
    ways, nodes = [job.ask], sites.get(job.site)
    if job.others:
        ways = [ask for ask in (job.ask, *job.others) if ledger.serves(ask.resource, nodes=nodes)] or ways
    shortages = []
    for ask in ways:
        found = _place(job, ask, ledger=ledger, shapes=shapes, sites=sites, workers=job.workers, key=job.key)
        if not isinstance(found, Shortage):
            return Admitted(key=job.key, claims=tuple(found), ask=ask)
        shortages.append((ask, found))
    return next((each for each in shortages if each[1].reason != "ExceedsCapacity"), shortages[0])


def _place(
    job: Candidate, ask: Ask, *, ledger: Ledger, shapes: Shapes, sites: Sites, workers: int, key: str
) -> list[Claim] | Shortage:
    return place(ledger, ask, workers=workers, key=key, nodes=sites.get(job.site), shapes=shapes)


def _commit(claims: Iterable[Claim], *, ledger: Ledger) -> None:
    for claim in claims:
        ledger.commit(claim)
