"""How long to wait before trying again. Pure: randomness is an argument."""

import random
from dataclasses import dataclass
from typing import Final

from dovetail.kube.errors import KubeError, ServerFault, StatusError, TooManyRequests, Unauthorized, Unreachable

MAX_ATTEMPTS: Final = 5
_LONGEST_RETRY_AFTER_SECONDS: Final = 60.0
# Not 500: the API server answers it for requests that fail every time.
_PASSING_FAULTS: Final = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that double from `first_seconds` up to `longest_seconds`, each shortened by up to half at random."""

    first_seconds: float = 0.2
    longest_seconds: float = 10.0

    def seconds(self, attempt: int, *, rng: random.Random) -> float:
        """The wait after the failure number `attempt`, counted from 0."""
        full = min(self.longest_seconds, self.first_seconds * 2.0 ** min(attempt, 60))
        return full * (1 - rng.random() / 2)


BACKOFF: Final = Backoff()


def requested_wait_seconds(error: KubeError) -> float:
    """What the API server asked us to wait (Retry-After), within reason; 0 if nothing."""
    asked = error.retry_after_seconds if isinstance(error, StatusError) else None
    return min(asked or 0.0, _LONGEST_RETRY_AFTER_SECONDS)


def may_resume(error: KubeError) -> bool:
    """Whether a watch can go on from where it was, rather than from a new list, which costs the API server far more."""
    busy = isinstance(error, TooManyRequests) or (isinstance(error, ServerFault) and error.code == 503)
    return busy or isinstance(error, Unreachable)


def may_retry(error: KubeError, *, method: str, attempt: int) -> bool:
    """Whether the same request may be sent again by itself: a read that met a passing trouble.

    A write goes again only when the API server did not know us (a token that rotated): that one surely did nothing.
    """
    if isinstance(error, Unauthorized):
        return attempt == 0
    if method != "GET" or attempt + 1 >= MAX_ATTEMPTS:
        return False
    if isinstance(error, ServerFault):
        return error.code in _PASSING_FAULTS
    return isinstance(error, TooManyRequests | Unreachable)
