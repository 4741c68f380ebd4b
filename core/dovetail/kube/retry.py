"""How long to wait before a retry. Pure: randomness is an argument."""

import random
from dataclasses import dataclass
from typing import Final

from dovetail.kube.errors import KubeError, ServerFault, StatusError, TooManyRequests, Unauthorized, Unreachable

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


def requested_wait_seconds(error: KubeError) -> float:
    """Seconds that the API server requested (Retry-After), at most 60; 0 if it requested none."""
    asked = error.retry_after_seconds if isinstance(error, StatusError) else None
    return min(asked or 0.0, _LONGEST_RETRY_AFTER_SECONDS)


def may_resume(error: KubeError) -> bool:
    """Whether a watch can continue from its resourceVersion instead of relisting.

    A relist costs the API server far more than a resumed watch.
    """
    busy = isinstance(error, TooManyRequests) or (isinstance(error, ServerFault) and error.code == 503)
    return busy or isinstance(error, Unreachable)


def may_retry(error: KubeError, *, method: str, attempt: int) -> bool:
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
