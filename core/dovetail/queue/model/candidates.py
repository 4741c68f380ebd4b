"""Jobs as the queue sees them, their order, and the placement of one job as a whole."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import Final
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.refusals import Refusal
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.request import WHOLE_MILLI

DAY_SECONDS: Final = 86_400.0
# Assumed for pods that are leaving, and the least for a job that has exceeded its assumed run time.
SOON_SECONDS: Final = 60.0
Sites = Mapping[str, Sequence[str]]


class Shape:
    """The key of equal requests: jobs of one shape fit or do not fit alike.

    Equal shapes are one object.
    """

    __slots__ = ("__weakref__",)


_SHAPES: Final[WeakValueDictionary[object, Shape]] = WeakValueDictionary()
# The same for the kinds of candidates.
_KINDS: Final[WeakValueDictionary[object, Shape]] = WeakValueDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A job as the queue sees it, with the workers that have no node yet.

    - `key`: UID of the GPUJob
    - `ask`: what each worker requests
    - `workers`: number of workers that have no node yet
    - `priority`: higher starts first
    - `created`: time of submission, RFC 3339 in whole seconds; older starts first
    - `number`: job number in the namespace; orders jobs that were created in the same second
    - `name`: namespace and name, as messages write it
    - `site`: key of its nodes in the `sites` of a cycle; a site that is not listed there means every node
    - `others`: alternatives to `ask`, tried in this order after it
    - `run_seconds`: how long it is expected to hold its devices
    - `limited`: whether a time limit ends it after `run_seconds`
    - `limit_seconds`: that limit, without the grace period of its pods
    - `share`: fair-share level of its account; smaller starts first within a priority
    - `may_preempt`: whether lower-priority jobs may be preempted for it
    - `nodes`: nodes of its current plan, one for each of `workers`; empty without a plan
    - `least`: smallest number of workers that it may start with; None for all of them
    - `likely_seconds`: learned run time, where known; only estimates use it
    - `likely_range`: learned run times in ascending order, equally likely, where known; only estimates use them
    - `cpu_in_seconds`: seconds from now after which it runs on the CPU if its GPUs are busy; infinity if it does so
      only where no node could ever serve it, None if it never does
    - `first`: whether it starts before all others: it has ended to restart elsewhere, and its room there is lost
    - `leave_seconds`: how long its pods take to end; None if it may not be preempted, or while no quota has a reserve
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
    limit_seconds: int | None = None
    share: float = 0.0
    may_preempt: bool = True
    nodes: tuple[str, ...] = ()
    least: int | None = None
    likely_seconds: float | None = None
    likely_range: tuple[float, ...] | None = None
    cpu_in_seconds: float | None = None
    first: bool = False
    leave_seconds: float | None = None
    _shape: Shape | None = field(default=None, init=False, repr=False, compare=False)
    _kind: Shape | None = field(default=None, init=False, repr=False, compare=False)
    _rank: tuple[object, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def gpus(self) -> float:
        """The GPUs that it requests in total; a share counts as a fraction."""
        return 0.0 if self.ask.gpu is None else self.workers * self.ask.gpu.total_milli / WHOLE_MILLI

    @property
    def shape(self) -> Shape:
        """The shape of its request, nodes and number of workers."""
        if self._shape is None:
            # Cycles ask for it often, and comparing requests costs more than everything else about a job.
            says = (self.ask, self.others, self.workers, self.least, self.site)
            object.__setattr__(self, "_shape", _SHAPES.setdefault(says, Shape()))
        assert self._shape is not None, "it was just set"
        return self._shape

    @property
    def kind(self) -> Shape:
        """The key of jobs that a cycle tells apart by their place in the order alone, and by what counts them."""
        if self._kind is None:
            near = self.name.partition("/")[0]
            lasts = self.run_seconds, self.limited, self.limit_seconds
            says = (
                self.shape,
                self.priority,
                self.share,
                self.may_preempt,
                self.first,
                self.cpu_in_seconds,
                near,
                lasts,
            )
            object.__setattr__(self, "_kind", _KINDS.setdefault(says, Shape()))
        assert self._kind is not None, "it was just set"
        return self._kind

    def of_another(self, *, key: str, created: str, number: int, name: str) -> "Candidate":
        """The candidate of another job of this kind and namespace: both share what is known of the kind."""
        other, own = object.__new__(Candidate), (key, created, number, name, None, self.kind)
        for put_field, value in zip(_PUT_OWN, own, strict=True):
            put_field(other, value)
        for get_field, put_field in _OF_KIND:
            put_field(other, get_field(self))
        return other

    @property
    def rank(self) -> tuple[object, ...]:
        """The place in the queue: by priority, fair share, age, number and name; after those that are `first`."""
        if self._rank is None:
            # Each cycle sorts thousands of jobs, nearly all of which were there before.
            rank = (not self.first, -self.priority, self.share, self.created, self.number, self.name, self.key)
            object.__setattr__(self, "_rank", rank)
        assert self._rank is not None, "it was just set"
        return self._rank


_OWN: Final = ("key", "created", "number", "name", "_rank", "_kind")
# What writes and reads a field: by its name takes twice as long, and a start has thousands of jobs.
_PUT_OWN: Final = tuple(vars(Candidate)[name].__set__ for name in _OWN)
_OF_KIND: Final = tuple(
    (vars(Candidate)[each.name].__get__, vars(Candidate)[each.name].__set__)
    for each in fields(Candidate)
    if each.name not in _OWN
)


class Leaving(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The expected end, `at_seconds` from now, of the claim `key` of a job.

    `assumed` is set where no time limit ends it. Where known, `likely_seconds` is when it probably ends, and the values
    of `likely_range`, in ascending order, are equally likely.
    """

    at_seconds: float
    key: str
    job: str
    assumed: bool = False
    likely_seconds: float | None = None
    likely_range: tuple[float, ...] | None = None

    @property
    def expected_seconds(self) -> float:
        """Seconds until the probable end: `likely_seconds` where known, else `at_seconds`."""
        return self.at_seconds if self.likely_seconds is None else self.likely_seconds


def seconds_left(run_seconds: float, *, ran: float, limited: bool) -> float:
    """Seconds until the assumed end of a run of `run_seconds` that has gone on for `ran` seconds.

    A run that has exceeded that ends soon where a limit ends it. Nothing ends one without a limit: it is taken to run
    as long as it already has.
    """
    left = run_seconds - ran
    if left > 0:
        return left
    return SOON_SECONDS if limited else max(SOON_SECONDS, ran)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """All workers have room with the request `ask`; `claims` are what they would hold."""

    ask: Ask
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRoom:
    """The workers have no room.

    `shortage` is that of the request `ask`, which the message names.
    """

    ask: Ask
    shortage: Shortage


class InOrder(tuple[Candidate, ...]):  # noqa: SLOT001 - a tuple with slots cannot cache a property
    """Candidates by their ranks."""

    @cached_property
    def kinds(self) -> list[Shape]:
        """The kind of each."""
        return [job.kind for job in self]


def order(candidates: Iterable[Candidate]) -> InOrder:
    """Sort candidates by their ranks."""
    return candidates if isinstance(candidates, InOrder) else InOrder(sorted(candidates, key=attrgetter("rank")))


def find_room(job: Candidate, *, ledger: Ledger, fit_cache: FitCache, sites: Sites) -> Room | NoRoom:
    """The first request that has room for all workers, else a shortage.

    The shortage is that of the first request that could ever have room. All workers use the same alternative.
    Alternatives that no node serves are skipped, unless none is served. The ledger is unchanged when this returns.
    """
    ways, nodes = [job.ask], sites.get(job.site)
    if job.others:
        both = (job.ask, *job.others)
        ways = [ask for ask in both if ledger.of_profile(ask.profile).serves(ask.resource, nodes=nodes)] or ways
    shortages = []
    for ask in ways:
        found = place(
            ledger, ask=ask, workers=job.workers, key=job.key, nodes=nodes, fit_cache=fit_cache, least=job.least
        )
        if not isinstance(found, Shortage):
            return Room(ask=ask, claims=tuple(found))
        shortages.append(NoRoom(ask=ask, shortage=found))
    return next((each for each in shortages if each.shortage.reason != "ExceedsCapacity"), shortages[0])


def helps(job: Candidate, *, nodes: Iterable[str], fit_cache: FitCache, sites: Sites, ledger: Ledger) -> bool:
    """Whether one worker fits on one of `nodes` now.

    If not, the room on these nodes changes no refusal.
    """
    its = sites.get(job.site)
    if its is not None and its is not nodes:
        within = set(its)
        nodes = [node for node in nodes if node in within]
    nodes = list(nodes)
    return any(
        fit_cache.best(ask, nodes=able, key=job.key, limit=1)
        for ask in (job.ask, *job.others)
        if (able := _with_devices(ask, nodes=nodes, ledger=ledger))
    )


def needed_devices(ask: Ask) -> tuple[int, int] | None:
    """How many devices of a node a worker needs at least, and which share in milli each of them must have left.

    None where shares say nothing: for turns, MIG instances, and a pod without devices.
    """
    if ask.gpu is None or ask.mode == "TimeShared" or ask.profile:
        return None
    return ask.gpu.count, ask.gpu.share_milli


def _with_devices(ask: Ask, *, nodes: Sequence[str], ledger: Ledger) -> Sequence[str]:
    """The nodes with enough devices for a worker: a question that costs a hundredth of whether it fits there."""
    need = needed_devices(ask)
    if need is None:
        return nodes
    count, share_milli = need
    free = ledger.devices_with(share_milli, nodes=nodes)
    return [nodes[at] for at in np.flatnonzero(free >= count).tolist()]


def way_of(job: Candidate, *, ledger: Ledger, sites: Sites) -> Ask:
    """The alternative that has room, else the one whose shortage the job would get."""
    return find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites=sites).ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The claims of admitted jobs whose pods are not bound yet.

    - `leaving`: when each claim is expected to end
    - `lost`: by job key, a node where the job's plan has no room any more
    - `late`: keys of jobs whose plan uses devices of pods that are about to end
    - `claims`: what was committed
    """

    leaving: list[Leaving] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    claims: list[Claim] = field(default_factory=list)


_Worker = tuple[str, int, Ask]


class ClaimCache:
    """Claims of planned workers, cached across cycles until something changes on their node.

    `version` gives the number of changes of a node so far.
    """

    def __init__(self, version: Callable[[str], int]) -> None:
        self._version = version
        self._known: dict[str, tuple[int, list[_Worker], list[Claim]]] = {}

    def claims(self, node: str, *, workers: list[_Worker]) -> list[Claim] | None:
        """The claims of exactly these workers on the node; None where they must be computed."""
        known = self._known.get(node)
        if known is None or known[:2] != (self._version(node), workers):
            return None
        return known[2]

    def keep(self, node: str, *, workers: list[_Worker], claims: list[Claim]) -> None:
        """Cache the claims of these workers on the node."""
        self._known[node] = self._version(node), workers, claims

    def forget_all_but(self, nodes: Container[str]) -> None:
        """Drop the nodes that no plan uses any more."""
        for node in [node for node in self._known if node not in nodes]:
            del self._known[node]


def claim_on_the_way(
    candidates: Iterable[Candidate],
    *,
    ledger: Ledger,
    sites: Sites,
    going: Iterable[str] = (),
    standing: ClaimCache | None = None,
) -> Claimed:
    """Commit to `ledger` the admitted workers that have no node yet, as far as there is room.

    The ledger does not show their devices as taken until they are bound. A planned worker may use what the claims
    `going` are about to release, because their pods are terminating.
    """
    claimed, jobs, planned = Claimed(), order(candidates), dict[str, list[tuple[Candidate, int]]]()
    for job in jobs:
        for worker, node in enumerate(job.nodes if job.ask.gpu is not None else ()):
            planned.setdefault(node, []).append((job, worker))
    standing = standing or ClaimCache(lambda _node: 0)
    ends, fit_cache = frozenset(going), FitCache(ledger)
    for node, workers in planned.items():
        _claim_on(
            node,
            workers=workers,
            ledger=ledger,
            fit_cache=fit_cache,
            going=ends,
            claimed=claimed,
            standing=standing,
        )
    standing.forget_all_but(planned)
    for job in jobs:
        if job.ask.gpu is not None and not job.nodes:
            _claim_anywhere(job, ledger=ledger, sites=sites, fit_cache=fit_cache, claimed=claimed)
    return claimed


def _claim_on(
    node: str,
    *,
    workers: Sequence[tuple[Candidate, int]],
    ledger: Ledger,
    fit_cache: FitCache,
    going: frozenset[str],
    claimed: Claimed,
    standing: ClaimCache,
) -> None:
    """Claim for the workers that are planned on one node."""
    asked = [(job.key, worker, job.ask) for job, worker in workers]
    claims = standing.claims(node, workers=asked)
    if claims is not None:
        ledger.commit_all(claims)
        claimed.claims.extend(claims)
        claimed.leaving.extend(_end_of(claim, job=job) for (job, _), claim in zip(workers, claims, strict=True))
        return
    found, late = [], False
    for job, worker in workers:
        key = f"{job.key}/{worker}"
        # The extender chooses the devices by price too.
        fit = fit_cache.check(job.ask, node=node, key=key)
        if not isinstance(fit, Fit) and isinstance(
            fit := _check_after(going, job=job, node=node, key=key, ledger=ledger), Fit
        ):
            claimed.late.add(job.key)
            late = True
        if isinstance(fit, Fit):
            found.append(fit.claim)
            claimed.claims.append(fit.claim)
            claimed.leaving.extend(commit([fit.claim], job=job, ledger=ledger))
        else:
            claimed.lost[job.key] = node
    if len(found) == len(workers) and not late:
        standing.keep(node, workers=asked, claims=found)


def _check_after(going: frozenset[str], *, job: Candidate, node: str, key: str, ledger: Ledger) -> Fit | Refusal:
    """Whether a planned worker fits once the `going` claims have left its node.

    The ledger is unchanged on return.
    """
    leaving = [claim for claim in ledger.claims_on(node) if claim.key in going]
    for claim in leaving:
        ledger.release(claim.key)
    found = check(ledger, ask=job.ask, node=node, key=key)
    for claim in leaving:
        ledger.commit(claim)
    return found


def _claim_anywhere(job: Candidate, *, ledger: Ledger, sites: Sites, fit_cache: FitCache, claimed: Claimed) -> None:
    """Claim for the workers of a job without a plan, one by one."""
    for worker in range(job.workers):
        key, nodes = f"{job.key}/{worker}", sites.get(job.site)
        found = place(ledger, ask=job.ask, workers=1, key=key, nodes=nodes, fit_cache=fit_cache)
        if isinstance(found, Shortage):
            break
        claimed.claims.extend(found)
        claimed.leaving.extend(commit(found, job=job, ledger=ledger))


def commit(claims: Iterable[Claim], *, job: Candidate, ledger: Ledger, at_seconds: float = 0.0) -> list[Leaving]:
    """Commit `claims` to a job that starts `at_seconds` from now; return their expected ends."""
    claims = list(claims)
    ledger.commit_all(claims)
    return [_end_of(claim, job=job, at_seconds=at_seconds) for claim in claims]


def _end_of(claim: Claim, *, job: Candidate, at_seconds: float = 0.0) -> Leaving:
    """The expected end of a claim of a job that starts `at_seconds` from now."""
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
