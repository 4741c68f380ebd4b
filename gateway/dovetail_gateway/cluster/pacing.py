"""Computations in threads that share the interpreter: they end when their caller has left, and users take turns.

AbandonedError   raised inside a computation that no one waits for
"""

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from dovetail.query.checkpoints import checking
from dovetail_gateway.access.limits import tenant_of

T = TypeVar("T")
# A user has so many seconds of CPU at once, and then this part of the interpreter: the event loop and other users need
# the rest also while no one else computes, because a thread that computes delays each event.
BURST_SECONDS: Final = 2.0
SHARE: Final = 0.25
# Users whose debts differ by less share the interpreter: turns that are shorter would cost more than they save.
_SAME_SECONDS: Final = 0.1
# How often a computation looks whether it must wait; checkpoints are microseconds apart.
_LOOK_SECONDS: Final = 0.002


class AbandonedError(Exception):
    """A computation that no one waits for any more."""


class Pacing:
    """The computations that run, and the debt of each user: the seconds until its share has paid for what it computed.

    At each of its checkpoints, a computation waits while its user owes too much, and while one of a user who owes less
    is there. So a short question of one user is not slowed down by long ones of another.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._running: dict[Computation, str] = {}
        # By user, when the debt is paid.
        self._paid_at: dict[str, float] = {}

    def computation(self, user: str) -> "Computation":
        """A new computation in the user's name. The service accounts of one namespace have one debt."""
        return Computation(self, user=tenant_of(user))

    def begin(self, computation: "Computation", *, user: str) -> None:
        """Let the computation run once its user does not owe too much. Raises `AbandonedError`."""
        with self._changed:
            self._rest(computation, user=user)
            self._running[computation] = user

    def end(self, computation: "Computation", *, seconds: float) -> None:
        """Add what the computation has used since its last turn, and let others go on."""
        with self._changed:
            user = self._running.pop(computation, None)
            if user is not None:
                self._add(user, seconds=seconds)
            self._changed.notify_all()

    def turn(self, computation: "Computation", *, seconds: float) -> None:
        """Add what the computation has used, and wait for its turn. Raises `AbandonedError`."""
        with self._changed:
            # While it rests, no other waits for it.
            user = self._running.pop(computation)
            self._add(user, seconds=seconds)
            self._changed.notify_all()
            self._rest(computation, user=user)
            self._running[computation] = user
            while not computation.is_abandoned and self._is_behind_another(user):
                self._changed.wait()
        if computation.is_abandoned:
            raise AbandonedError

    def wake(self) -> None:
        """Let all that wait look again."""
        with self._changed:
            self._changed.notify_all()

    def debt(self, user: str) -> float:
        """The seconds until the user's share has paid for what it computed."""
        return max(0.0, self._paid_at.get(user, 0.0) - self._clock())

    def _rest(self, computation: "Computation", *, user: str) -> None:
        while (wait := self.debt(user) - BURST_SECONDS / SHARE) > 0:
            if computation.is_abandoned:
                raise AbandonedError
            self._changed.wait(wait)

    def _is_behind_another(self, user: str) -> bool:
        return self.debt(user) > min(map(self.debt, self._running.values())) + _SAME_SECONDS

    def _add(self, user: str, *, seconds: float) -> None:
        now = self._clock()
        self._paid_at[user] = max(now, self._paid_at.get(user, now)) + seconds / SHARE
        for paid in [each for each, at in self._paid_at.items() if at <= now]:
            del self._paid_at[paid]


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
        self._pacing.begin(self, user=self._user)
        self._counted_at = time.thread_time()
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
