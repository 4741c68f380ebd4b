"""Long work in slices, so that other tasks of the event loop run in between."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

SLICE_SECONDS: Final = 0.02


class TimeSlices:
    """Yields to other tasks after each slice of the work, and optionally rests before the next.

    `busy_seconds` is the CPU time of the work alone. Wall-clock time would include the other tasks. `clock` is
    monotonic, in seconds.
    """

    def __init__(self, *, rest_seconds: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest_seconds = rest_seconds
        self._clock = clock
        self._due = clock() + SLICE_SECONDS
        self._since = time.thread_time()
        self._before = 0.0

    @property
    def busy_seconds(self) -> float:
        """The CPU time of the work so far, in seconds."""
        return self._before + time.thread_time() - self._since

    @property
    def is_due(self) -> bool:
        """Whether the slice is over."""
        return self._clock() >= self._due

    async def pause_if_due(self) -> None:
        """Pause if the slice is over."""
        if self.is_due:
            self._before = self.busy_seconds
            await asyncio.sleep(self._rest_seconds)
            self._due, self._since = self._clock() + SLICE_SECONDS, time.thread_time()
