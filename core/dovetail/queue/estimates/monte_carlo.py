"""When the waiting jobs are going to start, and how sure that is: many futures played, each as it may well come.

In each every job runs as long as one like it may, and jobs of higher priority come as they came on days before. Pure:
what is drawn follows from the job and the number of the play, so that the same queue is foreseen alike whenever it is.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from math import ceil
from statistics import median
from typing import Final, Protocol

import msgspec

from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.backfill.advance_reservation import Windows
from dovetail.queue.cycle import Look
from dovetail.queue.estimates.simulation import FORESEEN_JOBS, Start, play
from dovetail.queue.model.candidates import Candidate, Leaving, Sites, order
from dovetail.queue.model.gate import Gate

# So many futures are played, or fewer where that takes very many looks.
_PLAYS: Final = 15
_LEAST_PLAYS: Final = 4
_LOOKS: Final = 1_500
# The shortest span with this part of the starts that were played makes the range.
_WITHIN: Final = 0.9


class Coming(Protocol):
    """Tells which jobs are yet to come."""

    def __call__(self, *, play: int, above: int) -> Iterable[tuple[float, Candidate]]:
        """Those of a priority `above` that, and in how many seconds, by time; another draw for each `play`."""


def nobody(*, play: int, above: int) -> Iterable[tuple[float, Candidate]]:  # noqa: ARG001 - the protocol's
    """Nobody comes."""
    return ()


def foresee_with_range(
    waiting: Iterable[Candidate],
    *,
    ledger: Ledger,
    sites: Sites,
    leaving: Iterable[Leaving],
    gate: Callable[[], Gate | None] = lambda: None,
    coming: Coming = nobody,
    windows: Windows | None = None,
) -> Iterator[Start | None]:
    """The starts of the first jobs that have to wait, in the midst of those that were played, with their ranges.

    `ledger` is as before in the end; `gate` makes a new one for each play. None between two looks.
    """
    jobs, ends = order(waiting), list(leaving)
    central, seen = list[Start](), _Seen()
    for start in play(jobs, look=Look(ledger.copy(), sites=sites, leaving=ends, gate=gate(), windows=windows)):
        central += [] if start is None else [start]
        yield None
    known = any(job.likely_range for job in jobs) or any(end.likely_range for end in ends)
    above = min((job.priority for job in jobs[:FORESEEN_JOBS]), default=0)
    for number in range(_PLAYS) if known and central else ():
        if number >= _LEAST_PLAYS and seen.looks >= _LOOKS:
            break
        then = [_end_drawn(each, play=number) for each in ends]
        # One by one: of thousands that wait only the first are looked at.
        drawn = (_drawn(job, play=number) for job in jobs)
        come = ((at, _drawn(job, play=number)) for at, job in coming(play=number, above=above))
        look = Look(ledger.copy(), sites=sites, leaving=then, gate=gate(), windows=windows)
        for start in play(drawn, look=look, coming=come):
            seen.add(start)
            yield None
        seen.end(look.now)
    yield from map(seen.ranged, central)


def _drawn(job: Candidate, *, play: int) -> Candidate:
    """The job as it may come."""
    if job.likely_range is None:
        return job
    return replace(job, likely_seconds=_between(job.likely_range, _part(job.key, play=play)))


def _end_drawn(end: Leaving, *, play: int) -> Leaving:
    """The end as it may come."""
    if end.likely_range is None:
        return end
    return msgspec.structs.replace(end, likely_seconds=_between(end.likely_range, _part(end.job, play=play)))


def _part(job: str, *, play: int) -> float:
    """From 0 to 1, the same for all that the job has in that play."""
    return int.from_bytes(blake2b(f"{play}/{job}".encode(), digest_size=6).digest(), "big") / 2**48


def _between(ordered: tuple[float, ...], part: float) -> float:
    """The value at that part of the way through."""
    at = part * (len(ordered) - 1)
    first = min(int(at), len(ordered) - 1)
    last = min(first + 1, len(ordered) - 1)
    return ordered[first] + (at - first) * (ordered[last] - ordered[first])


class _Seen:
    """What was seen in the plays."""

    def __init__(self) -> None:
        self.looks = 0
        self._ended: list[float] = []
        self._starts: list[dict[str, float]] = [{}]

    def add(self, start: Start | None) -> None:
        """A start in this play, or a look."""
        if start is None:
            self.looks += 1
        else:
            self._starts[-1][start.key] = start.in_seconds

    def end(self, at_seconds: float) -> None:
        """The play is over."""
        self._ended.append(at_seconds)
        self._starts.append({})

    def ranged(self, start: Start) -> Start:
        """The start in the midst of the plays. In one that ended before, it is then at the earliest."""
        played = zip(self._starts, self._ended, strict=False)
        found = sorted(starts.get(start.key, ended) for starts, ended in played)
        if not found:
            return start
        early, late = _shortest(found)
        return replace(start, in_seconds=min(max(median(found), early), late), range_seconds=(early, late))


def _shortest(ordered: list[float]) -> tuple[float, float]:
    """The shortest span with that part of the values."""
    needed = ceil(_WITHIN * len(ordered))
    first = min(range(len(ordered) - needed + 1), key=lambda at: ordered[at + needed - 1] - ordered[at])
    return ordered[first], ordered[first + needed - 1]
