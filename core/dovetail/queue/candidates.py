"""Jobs as the queue sees them, their order, and placing one whole. The ledger is as before when a function returns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail.engine.claims import Ask, Claim
from dovetail.engine.ledger import Ledger
from dovetail.engine.plan import Shortage, place
from dovetail.engine.shapes import Shapes

DAY_SECONDS: Final = 86_400.0
Sites = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A job as the queue sees it. `others` are further ways to meet what it asks, tried in order after `ask`.

    `workers` are those that have no node yet; with `least` it may start with fewer, but with no fewer than that.
    `created` is the RFC 3339 time of submission. `site` names the nodes that its pods may go to in the `sites` of a
    cycle; a site that is not listed there is every node. It is taken to hold its devices for `run_seconds`; where
    it is `limited` it holds them no longer than that. Of one priority those go first whose `share` of what was used
    of late is smaller. `nodes` are those of a plan that stands, one for each of `workers`. Where that is known, it
    is likely to run for `likely_seconds`: nothing but estimates rests on it.
    """

    key: str
    ask: Ask
    workers: int = 1
    priority: int = 0
    created: str = ""
    name: str = ""
    site: str = ""
    others: tuple[Ask, ...] = ()
    run_seconds: float = DAY_SECONDS
    limited: bool = False
    share: float = 0.0
    nodes: tuple[str, ...] = ()
    least: int | None = None
    likely_seconds: float | None = None

    @property
    def shape(self) -> tuple[Ask, tuple[Ask, ...], int, int | None, str]:
        """What decides whether there is room: jobs of one shape fit or do not fit alike."""
        return (self.ask, self.others, self.workers, self.least, self.site)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Leaving:
    """The claim `key` of a job is taken to end `at_seconds` from now; `assumed` where no time limit says so.

    Where that is known, it is likely to end in `likely_seconds` already.
    """

    at_seconds: float
    key: str
    job: str
    assumed: bool = False
    likely_seconds: float | None = None

    @property
    def expected_seconds(self) -> float:
        """When it is expected to end: where nothing better is known, when it is taken to."""
        return self.at_seconds if self.likely_seconds is None else self.likely_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """There is room for all workers in the way of `ask`; `claims` are what they would hold."""

    ask: Ask
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRoom:
    """There is none; the shortage is of the way of `ask`, of which the job is told."""

    ask: Ask
    shortage: Shortage


def order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Higher priority first, then who has used less of late, then the older, then by name: total, and the same
    everywhere."""
    return sorted(candidates, key=lambda job: (-job.priority, job.share, job.created, job.name, job.key))


def find_room(job: Candidate, *, ledger: Ledger, shapes: Shapes, sites: Sites) -> Room | NoRoom:
    """The first way that has room for all workers; else the first way that could ever have it, and its shortage.

    All workers are met in one way. A way that no node serves says less than any other.
    """
    ways, nodes = [job.ask], sites.get(job.site)
    if job.others:
        ways = [ask for ask in (job.ask, *job.others) if ledger.serves(ask.resource, nodes=nodes)] or ways
    shortages = []
    for ask in ways:
        found = place(ledger, ask, workers=job.workers, key=job.key, nodes=nodes, shapes=shapes, least=job.least)
        if not isinstance(found, Shortage):
            return Room(ask=ask, claims=tuple(found))
        shortages.append(NoRoom(ask=ask, shortage=found))
    return next((each for each in shortages if each.shortage.reason != "ExceedsCapacity"), shortages[0])


def helps(job: Candidate, *, nodes: Iterable[str], shapes: Shapes, sites: Sites) -> bool:
    """Whether one of its workers could go to one of `nodes` now: where there was no room, none came up otherwise."""
    its = set(sites[job.site]) if job.site in sites else None
    nodes = [node for node in nodes if its is None or node in its]
    return any(shapes.best(ask, nodes=nodes, key=job.key, limit=1) for ask in (job.ask, *job.others))


def way_of(job: Candidate, *, ledger: Ledger, sites: Sites) -> Ask:
    """Of the ways in which the job may be met, the one that has room, else the one of which it would be told."""
    return find_room(job, ledger=ledger, shapes=Shapes(ledger), sites=sites).ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What the jobs on the way were given: when that is taken to end, and whose plan does not hold any more.

    `lost` has a node where the plan of a job has no room by now, by the job's key; `late` are the keys of jobs whose
    plan counts on those who are about to leave.
    """

    leaving: list[Leaving] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)


def claim_on_the_way(
    candidates: Iterable[Candidate], *, ledger: Ledger, sites: Sites, going: Iterable[str] = ()
) -> Claimed:
    """Set room aside in `ledger` for workers that were admitted and have no node yet, as far as there is room.

    They were admitted on room that the ledger does not show as taken until they are bound. A planned worker may take
    what the claims `going` give back soon: their pods are about to end.
    """
    shapes, claimed, ends = Shapes(ledger), Claimed(), frozenset(going)
    for job in order(candidates):
        if job.ask.gpu is None:
            continue
        for worker in range(job.workers):
            nodes = [job.nodes[worker]] if job.nodes else sites.get(job.site)
            key = f"{job.key}/{worker}"
            found = place(ledger, job.ask, workers=1, key=key, nodes=nodes, shapes=shapes)
            if isinstance(found, Shortage) and job.nodes:
                found = _place_after(ends, job=job, worker=worker, ledger=ledger)
                claimed.late.update([] if isinstance(found, Shortage) else [job.key])
            if not isinstance(found, Shortage):
                claimed.leaving.extend(commit(found, job=job, ledger=ledger))
            elif job.nodes:
                claimed.lost[job.key] = job.nodes[worker]
            else:
                break
    return claimed


def _place_after(going: frozenset[str], *, job: Candidate, worker: int, ledger: Ledger) -> list[Claim] | Shortage:
    """The claim of a planned worker once those are gone that are leaving its node."""
    node = job.nodes[worker]
    leaving = [claim for claim in ledger.claims_on(node) if claim.key in going]
    for claim in leaving:
        ledger.release(claim.key)
    found = place(ledger, job.ask, workers=1, key=f"{job.key}/{worker}", nodes=[node], shapes=Shapes(ledger))
    for claim in leaving:
        ledger.commit(claim)
    return found


def commit(claims: Iterable[Claim], *, job: Candidate, ledger: Ledger, at_seconds: float = 0.0) -> list[Leaving]:
    """Promise `claims` to a job that starts `at_seconds` from now, and say when they are taken to end."""
    leaving = []
    for claim in claims:
        ledger.commit(claim)
        end = at_seconds + job.run_seconds
        likely = None if job.likely_seconds is None else at_seconds + job.likely_seconds
        leaving.append(
            Leaving(key=claim.key, job=job.key, at_seconds=end, assumed=not job.limited, likely_seconds=likely)
        )
    return leaving
