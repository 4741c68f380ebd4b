"""Synchronous iterators whose deep calls can pause for the event loop.

The search for the jobs that end for a gang of thousands of GPUs takes seconds, in many proofs one after another, within
one verdict. It is pure code without `await`. Without a pause, the operator could not renew its Lease meanwhile. It
would lose it, and its successor would begin the same search.

A greenlet runs the iterator, as SQLAlchemy runs its drivers for asyncio. The iterator and the event loop never run at
the same time, so this is no thread: what the iterator reads changes in its pauses only.
"""

from collections.abc import AsyncGenerator, Iterator
from typing import Generic, TypeVar

from greenlet import getcurrent, greenlet

from dovetail_operator.queue.time_slices import TimeSlices

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
