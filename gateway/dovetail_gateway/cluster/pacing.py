"""Computations in threads that share the interpreter: they end when their caller has left, and users take turns.

AbandonedError   raised inside a computation that no one waits for
"""

import threading
import time
from collections.abc import Callable
from math import exp
from typing import Final, TypeVar

from dovetail.query.checkpoints import checking

T = TypeVar("T")
# After this time, what a user has used counts for about a third of it.
_FORGET_SECONDS: Final = 10.0
# Users who differ by less share the interpreter: turns that are shorter would cost more than they save.
_SAME_SECONDS: Final = 0.02
# How often a computation looks whether it must wait; checkpoints are microseconds apart.
_LOOK_SECONDS: Final = 0.002


class AbandonedError(Exception):
    """A computation that no one waits for any more."""


class Pacing:
    """The computations that run, and how much of the interpreter each user had in the last seconds.

    At each of its checkpoints, a computation waits while one of a user who had less is there, so that a short question
    of one user is not slowed down by long ones of another.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._running: dict[Computation, str] = {}
        # By user: seconds of computing, and when they were counted.
        self._used: dict[str, tuple[float, float]] = {}

    def computation(self, user: str) -> "Computation":
        """A new computation in the user's name."""
        return Computation(self, user=user)

    def begin(self, computation: "Computation", *, user: str) -> None:
        """Count the computation as one that runs."""
        with self._changed:
            self._running[computation] = user

    def end(self, computation: "Computation", *, seconds: float) -> None:
        """Add what the computation has used since its last turn, and let others go on."""
        with self._changed:
            self._add(self._running.pop(computation), seconds=seconds)
            self._changed.notify_all()

    def turn(self, computation: "Computation", *, seconds: float) -> None:
        """Add what the computation has used, and wait for its turn. Raises `AbandonedError`."""
        with self._changed:
            user = self._running[computation]
            self._add(user, seconds=seconds)
            self._changed.notify_all()
            while not computation.is_abandoned and self._is_behind_another(user):
                self._changed.wait()
        if computation.is_abandoned:
            raise AbandonedError

    def wake(self) -> None:
        """Let all that wait look again."""
        with self._changed:
            self._changed.notify_all()

    def _is_behind_another(self, user: str) -> bool:
        now = self._clock()
        least = min(self._used_by(each, now=now) for each in self._running.values())
        return self._used_by(user, now=now) > least + _SAME_SECONDS

    def _used_by(self, user: str, *, now: float) -> float:
        seconds, at = self._used.get(user, (0.0, now))
        return seconds * exp((at - now) / _FORGET_SECONDS)

    def _add(self, user: str, *, seconds: float) -> None:
        now = self._clock()
        self._used[user] = self._used_by(user, now=now) + seconds, now
        for other in [each for each in self._used if self._used_by(each, now=now) < _SAME_SECONDS / 10]:
            del self._used[other]


class Computation:
    """One computation of a user, in a thread."""

    def __init__(self, pacing: Pacing, *, user: str) -> None:
        self.is_abandoned = False
        self._pacing = pacing
        self._user = user
        self._counted_at = 0.0

    def run(self, compute: Callable[[], T]) -> T:
        """Compute in this thread. Raises `AbandonedError` if no one waits for it any more."""
        if self.is_abandoned:
            raise AbandonedError
        self._counted_at = time.thread_time()
        self._pacing.begin(self, user=self._user)
        try:
            with checking(self._check):
                return compute()
        finally:
            self._pacing.end(self, seconds=self._taken())

    def abandon(self) -> None:
        """End the computation at its next checkpoint. Called in another thread."""
        self.is_abandoned = True
        self._pacing.wake()

    def _check(self) -> None:
        if self.is_abandoned:
            raise AbandonedError
        if time.thread_time() - self._counted_at >= _LOOK_SECONDS:
            self._pacing.turn(self, seconds=self._taken())

    def _taken(self) -> float:
        """The seconds of CPU since this was last asked."""
        now = time.thread_time()
        seconds, self._counted_at = now - self._counted_at, now
        return seconds
