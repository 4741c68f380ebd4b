"""Waiting for what other programs do, by looks whose cost decides how often they come."""

import time
from collections.abc import Callable
from typing import Final

PATIENCE_SECONDS: Final = 60.0
# A look is a fifth of the time at most: most looks are a program, and they take CPU from what they wait for.
_PAUSE_OF_A_LOOK: Final = 4
_SHORTEST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0


def until(holds: Callable[[], object], *, what: Callable[[], object] = str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until this is true. `what` says in the message of a failure how it is instead."""
    limit = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if holds():
            return
        now = time.monotonic()
        assert now < limit, f"not within {seconds:g} s: {what()}"
        pause = _PAUSE_OF_A_LOOK * (now - began)
        time.sleep(min(max(pause, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS))
