"""When the waiting jobs are going to start: the queue's own looks, played from one predicted end to the next."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from dovetail.engine.claims import Claim
from dovetail.engine.ledger import Ledger
from dovetail.queue.admission import Admitted, Look
from dovetail.queue.candidates import Candidate, Leaving, Sites, order
from dovetail.queue.gate import Gate

# The first jobs of the queue are foreseen, and so many ends ahead: what comes later is known too badly to be told.
FORESEEN_JOBS: Final = 100
_ENDS_AHEAD: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The job `key` of so many `gpus` is to start `in_seconds`, and what that rests on, in one sentence.

    `range_seconds` is when it is to start if all jobs end early, and if all end late.
    """

    key: str
    in_seconds: float
    basis: str
    gpus: float = 0.0
    range_seconds: tuple[float, float] | None = None


def foresee(
    waiting: Iterable[Candidate],
    *,
    ledger: Ledger,
    sites: Sites,
    leaving: Iterable[Leaving],
    gate: Gate | None = None,
) -> Iterator[Start | None]:
    """The starts of the first jobs that have to wait, as far as can be seen. `ledger` and `gate` are used up: hand over
    copies.

    None between two looks, so that a long simulation can be taken in parts.
    """
    return _play(order(waiting), look=Look(ledger, sites=sites, leaving=leaving, gate=gate))


def _play(ordered: Iterable[Candidate], *, look: Look) -> Iterator[Start | None]:
    pending = _first_that_wait(ordered, look=look)
    over = _Over()
    for _ in range(_ENDS_AHEAD):
        ended = look.advance() if pending else None
        if ended is None:
            return
        over.add(ended)
        yield None
        left = []
        for job in pending:
            verdict = look.at(job)
            if isinstance(verdict, Admitted):
                basis = over.basis(verdict.claims)
                yield Start(key=job.key, in_seconds=look.now, basis=basis, gpus=job.gpus)
            else:
                left.append(job)
        pending = left


def foresee_with_range(
    waiting: Iterable[Candidate],
    *,
    ledger: Ledger,
    sites: Sites,
    leaving: Iterable[Leaving],
    gate: Callable[[], Gate | None] = lambda: None,
) -> Iterator[Start | None]:
    """The same with the ranges of the starts: also played as if all jobs ended early, and as if all ended late.

    `ledger` is as before in the end; `gate` makes a new one for each play.
    """
    jobs, ends, played = order(waiting), list(leaving), list[dict[str, float]]()
    known = any(job.likely_range for job in jobs) or any(end.likely_range for end in ends)
    for late in (False, True) if known else ():
        starts: dict[str, float] = {}
        then = [_likely(each, late=late) for each in ends]
        look = Look(ledger.copy(), sites=sites, leaving=then, gate=gate())
        # One by one: of thousands that wait only the first are looked at.
        for start in _play((_likely(job, late=late) for job in jobs), look=look):
            starts.update({} if start is None else {start.key: start.in_seconds})
            yield None
        played.append(starts)
    for start in _play(jobs, look=Look(ledger.copy(), sites=sites, leaving=ends, gate=gate())):
        if start is None:
            yield None
        else:
            ranged = [starts.get(start.key, start.in_seconds) for starts in played] or [start.in_seconds]
            yield replace(start, range_seconds=(min(ranged), max(ranged)))


_T = TypeVar("_T", Candidate, Leaving)


def _likely(of: _T, *, late: bool) -> _T:
    """The job or the end as if it came early, or late."""
    return of if of.likely_range is None else replace(of, likely_seconds=of.likely_range[late])


def _first_that_wait(ordered: Iterable[Candidate], *, look: Look) -> list[Candidate]:
    pending = []
    for job in ordered:
        if not isinstance(look.at(job), Admitted):
            pending.append(job)
        if len(pending) == FORESEEN_JOBS:
            break
    return pending


class _Over:
    """Jobs whose end is counted on, by node."""

    def __init__(self) -> None:
        self._ended: dict[str, dict[str, bool]] = {}
        self._early: set[str] = set()

    def add(self, ended: Iterable[tuple[Leaving, Claim]]) -> None:
        for leaving, claim in ended:
            self._ended.setdefault(claim.node, {})[leaving.job] = leaving.assumed
            if leaving.expected_seconds < leaving.at_seconds:
                self._early.add(leaving.job)

    def basis(self, claims: Iterable[Claim]) -> str:
        """What has to have ended on the nodes of `claims`."""
        nodes = sorted({claim.node for claim in claims})
        ended = {job: assumed for node in nodes for job, assumed in self._ended.get(node, {}).items()}
        if not ended:
            return "Its turn comes after jobs before it"
        where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
        who = f"{len(ended)} job{'s have' if len(ended) > 1 else ' has'} ended on {where} by then at the latest"
        assumed = sum(ended.values())
        if not self._early.isdisjoint(ended):
            early = who.removesuffix(" at the latest")
            return f"{early}, if they use as much of their time limits as jobs like them did"
        if not assumed:
            return f"{who}, by the time limits"
        return f"{who.removesuffix(' at the latest')}, if {assumed} without a time limit run as long as is configured"
