"""Long work in slices, so that other tasks of the event loop run in between: between two steps, or within one.

The search for the jobs that end for a gang of thousands of GPUs takes seconds, in many proofs one after another, within
one verdict. It is pure code without `await`. Without a pause, the operator could not renew its Lease meanwhile. It
would lose it, and its successor would begin the same search.

A greenlet runs such an iterator, as SQLAlchemy runs its drivers for asyncio. The iterator and the event loop never run
at the same time, so this is no thread: what the iterator reads changes in its pauses only.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Final, Generic, TypeVar

from greenlet import getcurrent, greenlet

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


T = TypeVar("T")


class Pausable(Generic[T]):
    """Iterates asynchronously over `items`, and pauses for the event loop between them and at each `pause`.

    It pauses where a slice of `slices` is over. An error of the iterator is raised to the caller.
    """

    def __init__(self, slices: TimeSlices) -> None:
        self._slices = slices
        self._at_work: tuple[greenlet, greenlet] | None = None

    def pause(self) -> None:
        """Pause if the slice is over. For calls within the iterator; outside of it, it does nothing."""
        if self._at_work is None:
            return
        worker, caller = self._at_work
        if getcurrent() is worker and self._slices.is_due:
            caller.switch(None)

    async def over(self, items: Iterator[T]) -> AsyncGenerator[T, None]:
        """The items. An iteration that ends early ends the iterator at the place where it pauses."""
        caller = getcurrent()

        def work() -> None:
            for item in items:
                caller.switch((item,))

        worker = greenlet(work)
        self._at_work = worker, caller
        try:
            while True:
                found = worker.switch()
                if worker.dead:
                    return
                if found is not None:
                    yield found[0]
                await self._slices.pause_if_due()
        finally:
            self._at_work = None
            if not worker.dead:
                worker.throw()
