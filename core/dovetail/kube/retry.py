"""Retries: the one loop that tries failed work again, and what it waits for. Randomness and sleep are arguments.

tenacity, the library for this, adds 94 µs to each request that succeeds, and 27 ms to the start of a command. Most of
what is here would remain: a wait also depends on the API server's answer, and its jitter on a given generator.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from dovetail.kube.errors import (
    Conflict,
    KubeError,
    ServerFault,
    StatusError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)

T = TypeVar("T")

MAX_ATTEMPTS: Final = 5
_LONGEST_RETRY_AFTER_SECONDS: Final = 60.0
# Without 500: the API server answers 500 to requests that fail every time.
_PASSING_FAULTS: Final = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that double up to `longest_seconds`, each shortened by up to half at random."""

    first_seconds: float = 0.2
    longest_seconds: float = 10.0

    def seconds(self, attempt: int, *, rng: random.Random) -> float:
        """Seconds to wait after failure number `attempt`, counted from 0."""
        full = min(self.longest_seconds, self.first_seconds * 2.0 ** min(attempt, 60))
        return full * (1 - rng.random() / 2)


BACKOFF: Final = Backoff()
# A conflict is over once the newer object is read: only writers that keep meeting need to wait.
_CONFLICT_BACKOFF: Final = Backoff(first_seconds=0.01, longest_seconds=0.1)
# Spreads the retries of many clients, and guards nothing.
JITTER: Final = random.Random()  # noqa: S311


def always(_error: Exception, _attempt: int) -> bool:
    """Retry after any error, without end."""
    return True


def ignore(_error: Exception, _wait_seconds: float) -> None:
    """Report no failure."""


async def retrying(
    act: Callable[[int], Awaitable[T]],
    *,
    may_retry: Callable[[Exception, int], bool],
    failed: Callable[[Exception, float], None] = ignore,
    backoff: Backoff = BACKOFF,
    rng: random.Random = JITTER,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """The result of `act`, which gets the number of the attempt, counted from 0.

    `may_retry` gets the error and the number of the attempt that raised it; an error that it refuses is raised.
    `failed` gets the error and the seconds until the next attempt: the backoff, or longer if the API server said so.
    """
    attempt = 0
    while True:
        try:
            return await act(attempt)
        except Exception as error:
            if not may_retry(error, attempt):
                raise
            wait = max(backoff.seconds(attempt, rng=rng), requested_wait_seconds(error))
            failed(error, wait)
        await sleep(wait)
        attempt += 1


async def retry_on_conflict(
    act: Callable[[int], Awaitable[T]],
    *,
    attempts: int = MAX_ATTEMPTS,
    conflicts: tuple[type[KubeError], ...] = (Conflict,),
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """The result of a read, a change and a write of one object, again after each write of another client in between.

    `act` gets the number of the attempt, counted from 0: from 1 on it reads the object again. Raises the last conflict
    after `attempts`, and every other error at once.
    """

    def may_retry(error: Exception, attempt: int) -> bool:
        return isinstance(error, conflicts) and attempt + 1 < attempts

    return await retrying(act, may_retry=may_retry, backoff=_CONFLICT_BACKOFF, sleep=sleep)


def requested_wait_seconds(error: Exception) -> float:
    """Seconds that the API server requested (Retry-After), at most 60; 0 if it requested none."""
    asked = error.retry_after_seconds if isinstance(error, StatusError) else None
    return min(asked or 0.0, _LONGEST_RETRY_AFTER_SECONDS)


def may_resume(error: KubeError) -> bool:
    """Whether a watch can continue from its resourceVersion instead of relisting.

    A relist costs the API server far more than a resumed watch.
    """
    busy = isinstance(error, TooManyRequests) or (isinstance(error, ServerFault) and error.code == 503)
    return busy or isinstance(error, Unreachable)


def may_resend(error: Exception, *, method: str, attempt: int) -> bool:
    """Whether the same request may be sent again: a read that met a transient failure.

    A write is sent again only when the API server rejected the credentials (a rotated token): that write had no effect.
    """
    if isinstance(error, Unauthorized):
        return attempt == 0
    if method != "GET" or attempt + 1 >= MAX_ATTEMPTS:
        return False
    if isinstance(error, ServerFault):
        return error.code in _PASSING_FAULTS
    return isinstance(error, TooManyRequests | Unreachable)
