"""Estimated starts of waiting jobs with their ranges, from many simulated futures. Pure.

In each future every job runs as long as a similar job may, and jobs of higher priority arrive as on days before. The
draws follow from the job and the number of the play, so that the same queue always gives the same estimates.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from math import ceil
from statistics import median
from typing import Final, Protocol

import msgspec

from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.backfill.advance_reservation import Windows
from dovetail.queue.backfill.residual import Shortages
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.estimates.simulation import FORESEEN_JOBS, Start, first_that_wait, play
from dovetail.queue.model.candidates import Candidate, Leaving, Sites
from dovetail.queue.model.gate import Gate

# The number of plays; fewer, but at least `_LEAST_PLAYS`, once they have taken `_LOOKS` scheduling cycles.
_PLAYS: Final = 15
_LEAST_PLAYS: Final = 4
_LOOKS: Final = 1_500
# The range is the shortest span that contains this share of the simulated starts.
_WITHIN: Final = 0.9
# An estimate is to be off by at most an hour: it is where most of the simulated starts lie within one. The likeliest
# future counts as so many plays: few plays tell little of where most are.
_HOUR: Final = 3_600.0
_LIKELIEST_COUNTS: Final = 4


class Coming(Protocol):
    """Predicts which jobs arrive."""

    def __call__(self, *, play: int, above: int) -> Iterable[tuple[float, Candidate]]:
        """Yield jobs of a priority above `above` with the seconds until they arrive, by time.

        Each `play` differs.
        """


def no_arrivals(*, play: int, above: int) -> Iterable[tuple[float, Candidate]]:  # noqa: ARG001 - the protocol's
    """Predict no arrivals."""
    return ()


def foresee_with_range(
    waiting: Iterable[Candidate],
    *,
    ledger: Ledger,
    sites: Sites,
    leaving: Iterable[Leaving],
    gate: Callable[[], Gate | None] = lambda: None,
    coming: Coming = no_arrivals,
    windows: Windows | None = None,
    only: str | None = None,
    most_cycles: int | None = None,
) -> Iterator[Start | None]:
    """Yield the starts of the first waiting jobs: the likeliest of the plays, with a range.

    None between two cycles.

    `ledger` is unchanged in the end; `gate` makes a new gate for each play. With `only`, no other job gets an estimate,
    and each play ends when this job starts. With `most_cycles`, it plays the likeliest future alone, so there
    is no range, and there is no estimate if that takes more simulated cycles.
    """
    ends, central, seen, shortages = list(leaving), list[Start](), _Seen(), Shortages()
    look = SchedulingCycle(ledger.copy(), sites=sites, leaving=ends, gate=gate(), windows=windows, shortages=shortages)
    jobs = look.in_order(waiting)
    pending = first_that_wait(jobs, look=look)
    if only is not None and all(job.key != only for job in pending):
        return
    cycles = 0
    for start in play(pending, look=look, only=only, explains=True):
        central += [] if start is None or only not in {None, start.key} else [start]
        cycles += start is None
        if most_cycles is not None and cycles > most_cycles:
            return
        yield None
    known = any(job.likely_range for job in jobs) or any(end.likely_range for end in ends)
    above = min((job.priority for job in jobs[:FORESEEN_JOBS]), default=0)
    for number in range(_PLAYS) if known and central and most_cycles is None else ():
        if number >= _LEAST_PLAYS and seen.looks >= _LOOKS:
            break
        then = [_end_drawn(each, play=number) for each in ends]
        # A generator: of thousands of waiting jobs only the first are placed.
        drawn = (_drawn(job, play=number) for job in jobs)
        come = ((at, _drawn(job, play=number)) for at, job in coming(play=number, above=above))
        look = SchedulingCycle(
            ledger.copy(), sites=sites, leaving=then, gate=gate(), windows=windows, shortages=shortages
        )
        for start in play(first_that_wait(drawn, look=look), look=look, coming=come, only=only):
            seen.add(start)
            yield None
        seen.end(look.now)
    yield from map(seen.ranged, central)


def _drawn(job: Candidate, *, play: int) -> Candidate:
    """The job with a drawn run time."""
    if job.likely_range is None:
        return job
    return replace(job, likely_seconds=_between(job.likely_range, part=_part(job.key, play=play)))


def _end_drawn(end: Leaving, *, play: int) -> Leaving:
    """The end at a drawn time."""
    if end.likely_range is None:
        return end
    return msgspec.structs.replace(end, likely_seconds=_between(end.likely_range, part=_part(end.job, play=play)))


def _part(job: str, *, play: int) -> float:
    """A number from 0 to 1, the same for all claims of the job in one play."""
    return int.from_bytes(blake2b(f"{play}/{job}".encode(), digest_size=6).digest(), "big") / 2**48


def _between(ordered: tuple[float, ...], *, part: float) -> float:
    """The value at this part of the way through the ascending values, interpolated."""
    at = part * (len(ordered) - 1)
    first = min(int(at), len(ordered) - 1)
    last = min(first + 1, len(ordered) - 1)
    return ordered[first] + (at - first) * (ordered[last] - ordered[first])


class _Seen:
    """The starts that the plays have found."""

    def __init__(self) -> None:
        self.looks = 0
        self._ended: list[float] = []
        self._starts: list[dict[str, float]] = [{}]

    def add(self, start: Start | None) -> None:
        """Add a start of this play; None counts a scheduling cycle."""
        if start is None:
            self.looks += 1
        else:
            self._starts[-1][start.key] = start.in_seconds

    def end(self, at_seconds: float) -> None:
        """End this play at this time."""
        self._ended.append(at_seconds)
        self._starts.append({})

    def ranged(self, start: Start) -> Start:
        """The start at the likeliest time, with the range of the plays.

        In a play that ended before the job started, the end of the play counts as its start.
        """
        played = zip(self._starts, self._ended, strict=False)
        found = sorted(starts.get(start.key, ended) for starts, ended in played)
        if not found:
            return start
        early, late = _shortest(found)
        likeliest = _likeliest(sorted(found + [start.in_seconds] * _LIKELIEST_COUNTS))
        return replace(start, in_seconds=min(max(likeliest, early), late), range_seconds=(early, late))


def _shortest(ordered: list[float]) -> tuple[float, float]:
    """The shortest span that contains `_WITHIN` of the values."""
    needed = ceil(_WITHIN * len(ordered))
    first = min(range(len(ordered) - needed + 1), key=lambda at: ordered[at + needed - 1] - ordered[at])
    return ordered[first], ordered[first + needed - 1]


def _likeliest(ordered: list[float]) -> float:
    """The median of the largest group of these ascending values within an hour of one time."""
    ends = [bisect_right(ordered, value + 2 * _HOUR) for value in ordered]
    first = max(range(len(ordered)), key=lambda at: ends[at] - at)
    return median(ordered[first : ends[first]])
