"""Jobs as the queue sees them, their order, and placing one whole. The ledger is as before when a function returns."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.refusals import Refusal
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.request import WHOLE_MILLI

DAY_SECONDS: Final = 86_400.0
Sites = Mapping[str, Sequence[str]]


class Shape:
    """What decides whether there is room: jobs of one shape fit or do not fit alike. Equal shapes are one object."""

    __slots__ = ("__weakref__",)


_SHAPES: Final[WeakValueDictionary[object, Shape]] = WeakValueDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A job as the queue sees it. `others` are further ways to meet what it asks, tried in order after `ask`.

    `workers` are those that have no node yet; with `least` it may start with fewer, but with no fewer than that.
    `created` is the RFC 3339 time of submission, in whole seconds; of one second those go first whose `number` in their
    namespace is smaller. `site` names the nodes that its pods may go to in the `sites` of a
    cycle; a site that is not listed there is every node. It is taken to hold its devices for `run_seconds`; where
    it is `limited` it holds them no longer than that. Of one priority those go first whose `share` of what was used
    of late is smaller. Only a job that `may_preempt` can take the place of others. `nodes` are those of a plan that
    stands, one for each of `workers`. Where that is known, it is likely to run for `likely_seconds`, and as long as
    each of `likely_range` with the same chance, from the shortest to the longest: nothing but estimates rests on it.
    """

    key: str
    ask: Ask
    workers: int = 1
    priority: int = 0
    created: str = ""
    number: int = 0
    name: str = ""
    site: str = ""
    others: tuple[Ask, ...] = ()
    run_seconds: float = DAY_SECONDS
    limited: bool = False
    share: float = 0.0
    may_preempt: bool = True
    nodes: tuple[str, ...] = ()
    least: int | None = None
    likely_seconds: float | None = None
    likely_range: tuple[float, ...] | None = None
    _shape: Shape | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def gpus(self) -> float:
        """How many GPUs it holds; a share counts as such."""
        return 0.0 if self.ask.gpu is None else self.workers * self.ask.gpu.total_milli / WHOLE_MILLI

    @property
    def shape(self) -> Shape:
        """That of what it asks, where, and for how many workers."""
        if self._shape is None:
            # Looks ask for it again and again, and comparing requests costs more than all else about a job.
            says = (self.ask, self.others, self.workers, self.least, self.site)
            object.__setattr__(self, "_shape", _SHAPES.setdefault(says, Shape()))
        assert self._shape is not None, "it was just set"
        return self._shape


class Leaving(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The claim `key` of a job is taken to end `at_seconds` from now; `assumed` where no time limit says so.

    Where that is known, it is likely to end in `likely_seconds` already, and in each of `likely_range` with the
    same chance.
    """

    at_seconds: float
    key: str
    job: str
    assumed: bool = False
    likely_seconds: float | None = None
    likely_range: tuple[float, ...] | None = None

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
    """Higher priority first, then who has used less of late, then the older, then by number and name: total, and the
    same everywhere."""
    return sorted(candidates, key=lambda job: (-job.priority, job.share, job.created, job.number, job.name, job.key))


def find_room(job: Candidate, *, ledger: Ledger, fit_cache: FitCache, sites: Sites) -> Room | NoRoom:
    """The first way that has room for all workers; else the first way that could ever have it, and its shortage.

    All workers are met in one way. A way that no node serves says less than any other.
    """
    ways, nodes = [job.ask], sites.get(job.site)
    if job.others:
        ways = [ask for ask in (job.ask, *job.others) if ledger.serves(ask.resource, nodes=nodes)] or ways
    shortages = []
    for ask in ways:
        found = place(ledger, ask, workers=job.workers, key=job.key, nodes=nodes, fit_cache=fit_cache, least=job.least)
        if not isinstance(found, Shortage):
            return Room(ask=ask, claims=tuple(found))
        shortages.append(NoRoom(ask=ask, shortage=found))
    return next((each for each in shortages if each.shortage.reason != "ExceedsCapacity"), shortages[0])


def helps(job: Candidate, *, nodes: Iterable[str], fit_cache: FitCache, sites: Sites) -> bool:
    """Whether one of its workers could go to one of `nodes` now: where there was no room, none came up otherwise."""
    its = set(sites[job.site]) if job.site in sites else None
    nodes = [node for node in nodes if its is None or node in its]
    return any(fit_cache.best(ask, nodes=nodes, key=job.key, limit=1) for ask in (job.ask, *job.others))


def way_of(job: Candidate, *, ledger: Ledger, sites: Sites) -> Ask:
    """Of the ways in which the job may be met, the one that has room, else the one of which it would be told."""
    return find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites=sites).ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What the jobs on the way were given: when that is taken to end, and whose plan does not hold any more.

    `lost` has a node where the plan of a job has no room by now, by the job's key; `late` are the keys of jobs whose
    plan counts on those who are about to leave.
    """

    leaving: list[Leaving] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)


_Worker = tuple[str, int, Ask]


class Standing:
    """What planned workers were given, from look to look: it stands as long as nothing on their node has changed.

    `version` tells how often a node has changed so far.
    """

    def __init__(self, version: Callable[[str], int]) -> None:
        self._version = version
        self._known: dict[str, tuple[int, list[_Worker], list[Claim]]] = {}

    def claims(self, node: str, workers: list[_Worker]) -> list[Claim] | None:
        """The claims of just these workers on the node; None where they have to be looked for."""
        known = self._known.get(node)
        if known is None or known[:2] != (self._version(node), workers):
            return None
        return known[2]

    def keep(self, node: str, workers: list[_Worker], claims: list[Claim]) -> None:
        """They were given that now."""
        self._known[node] = self._version(node), workers, claims

    def forget_all_but(self, nodes: Container[str]) -> None:
        """Nobody is planned on any other node."""
        for node in [node for node in self._known if node not in nodes]:
            del self._known[node]


def claim_on_the_way(
    candidates: Iterable[Candidate],
    *,
    ledger: Ledger,
    sites: Sites,
    going: Iterable[str] = (),
    standing: Standing | None = None,
) -> Claimed:
    """Set room aside in `ledger` for workers that were admitted and have no node yet, as far as there is room.

    They were admitted on room that the ledger does not show as taken until they are bound. A planned worker may take
    what the claims `going` give back soon: their pods are about to end.
    """
    claimed, jobs, planned = Claimed(), order(candidates), dict[str, list[tuple[Candidate, int]]]()
    for job in jobs:
        for worker, node in enumerate(job.nodes if job.ask.gpu is not None else ()):
            planned.setdefault(node, []).append((job, worker))
    standing = standing or Standing(lambda _node: 0)
    ends = frozenset(going)
    for node, workers in planned.items():
        _claim_on(node, workers, ledger=ledger, going=ends, claimed=claimed, standing=standing)
    standing.forget_all_but(planned)
    fit_cache = FitCache(ledger)
    for job in jobs:
        if job.ask.gpu is not None and not job.nodes:
            claimed.leaving.extend(_claim_anywhere(job, ledger=ledger, sites=sites, fit_cache=fit_cache))
    return claimed


def _claim_on(
    node: str,
    workers: Sequence[tuple[Candidate, int]],
    *,
    ledger: Ledger,
    going: frozenset[str],
    claimed: Claimed,
    standing: Standing,
) -> None:
    """Claim for the workers that are planned on one node."""
    asked = [(job.key, worker, job.ask) for job, worker in workers]
    claims = standing.claims(node, asked)
    if claims is not None:
        ledger.commit_all(claims)
        claimed.leaving.extend(_end_of(claim, job=job) for (job, _), claim in zip(workers, claims, strict=True))
        return
    found, late = [], False
    for job, worker in workers:
        key = f"{job.key}/{worker}"
        fit = check(ledger, job.ask, node=node, key=key)
        if not isinstance(fit, Fit) and isinstance(fit := _check_after(going, job, node, key=key, ledger=ledger), Fit):
            claimed.late.add(job.key)
            late = True
        if isinstance(fit, Fit):
            found.append(fit.claim)
            claimed.leaving.extend(commit([fit.claim], job=job, ledger=ledger))
        else:
            claimed.lost[job.key] = node
    if len(found) == len(workers) and not late:
        standing.keep(node, asked, found)


def _check_after(going: frozenset[str], job: Candidate, node: str, *, key: str, ledger: Ledger) -> Fit | Refusal:
    """Whether a planned worker fits once those are gone that are leaving its node."""
    leaving = [claim for claim in ledger.claims_on(node) if claim.key in going]
    for claim in leaving:
        ledger.release(claim.key)
    found = check(ledger, job.ask, node=node, key=key)
    for claim in leaving:
        ledger.commit(claim)
    return found


def _claim_anywhere(job: Candidate, *, ledger: Ledger, sites: Sites, fit_cache: FitCache) -> list[Leaving]:
    """Claim for the workers of a job without a plan, one after the other."""
    leaving = []
    for worker in range(job.workers):
        key, nodes = f"{job.key}/{worker}", sites.get(job.site)
        found = place(ledger, job.ask, workers=1, key=key, nodes=nodes, fit_cache=fit_cache)
        if isinstance(found, Shortage):
            break
        leaving += commit(found, job=job, ledger=ledger)
    return leaving


def commit(claims: Iterable[Claim], *, job: Candidate, ledger: Ledger, at_seconds: float = 0.0) -> list[Leaving]:
    """Promise `claims` to a job that starts `at_seconds` from now, and say when they are taken to end."""
    claims = list(claims)
    ledger.commit_all(claims)
    return [_end_of(claim, job=job, at_seconds=at_seconds) for claim in claims]


def _end_of(claim: Claim, *, job: Candidate, at_seconds: float = 0.0) -> Leaving:
    """When a claim of the job is taken to end if the job starts `at_seconds` from now."""
    likely = None if job.likely_seconds is None else at_seconds + job.likely_seconds
    reach = None if job.likely_range is None else tuple(at_seconds + each for each in job.likely_range)
    return Leaving(
        key=claim.key,
        job=job.key,
        at_seconds=at_seconds + job.run_seconds,
        assumed=not job.limited,
        likely_seconds=likely,
        likely_range=reach,
    )
