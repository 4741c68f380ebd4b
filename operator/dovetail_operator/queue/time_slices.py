"""Long work in slices, so that other tasks of the event loop run in between."""

import asyncio
import time
from typing import Final

SLICE_SECONDS: Final = 0.02


class TimeSlices:
    """Yields to other tasks after each slice of the work, and optionally rests before the next.

    `busy_seconds` is the CPU time of the work alone. Wall-clock time would include the other tasks.
    """

    def __init__(self, *, rest_seconds: float = 0.0) -> None:
        self._rest_seconds = rest_seconds
        self._due = time.monotonic() + SLICE_SECONDS
        self._since = time.thread_time()
        self._before = 0.0

    @property
    def busy_seconds(self) -> float:
        """The CPU time of the work so far, in seconds."""
        return self._before + time.thread_time() - self._since

    async def pause_if_due(self) -> None:
        """Pause if the slice is over."""
        if time.monotonic() >= self._due:
            self._before = self.busy_seconds
            await asyncio.sleep(self._rest_seconds)
            self._due, self._since = time.monotonic() + SLICE_SECONDS, time.thread_time()
