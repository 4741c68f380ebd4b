"""Future submissions, predicted from those at the same hours of the days before. Pure."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from math import floor
from typing import Final

from dovetail.queue.model.candidates import Candidate

_DAY: Final = 86_400.0
# The number of days that predictions use, and the most jobs that are remembered.
_DAYS: Final = 7
REMEMBERED: Final = 1_000
_TO_COME: Final = "9999-12-31T23:59:59Z"
# A shorter history gives no rate.
_LEAST_SECONDS: Final = 3_600.0


class Arrivals:
    """The jobs of the last days, to be replayed."""

    def __init__(self) -> None:
        self._latest: deque[tuple[float, Candidate]] = deque(maxlen=REMEMBERED)
        self._since: float | None = None

    def came(self, job: Candidate, *, at_seconds: float) -> None:
        """Record that the job was submitted then.

        Call this once for each job, in order of submission.
        """
        self._since = at_seconds if self._since is None else self._since
        if len(self._latest) == REMEMBERED:
            self._since = self._latest[0][0]
        self._latest.append((at_seconds, job))

    def again(self, *, now_seconds: float, play: int, above: int) -> Iterator[tuple[float, Candidate]]:
        """Yield future jobs of a priority above `above`, by time, without end.

        Each comes with the seconds until it arrives. They repeat the days before. Each `play` begins with another one
        of these days.
        """
        if self._since is None or now_seconds - self._since < _LEAST_SECONDS:
            return
        days = min(_DAYS, floor((now_seconds - self._since) / _DAY))
        span = days * _DAY if days else now_seconds - self._since
        begin = now_seconds - span + (play % days) * _DAY if days else now_seconds - span
        past = sorted(
            ((at - begin) % span, number, job)
            for number, (at, job) in enumerate(self._latest)
            if job.priority > above and now_seconds - span <= at < now_seconds
        )
        for turn in count() if past else ():
            for at, number, job in past:
                # Younger than every job that waits now.
                again = replace(job, key=f"to-come/{turn}/{number}/{job.key}", created=_TO_COME)
                yield at + turn * span, again
