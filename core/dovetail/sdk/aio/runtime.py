"""What asyncio does in its own way: sleep, work in the background, and finish in spite of a cancellation."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from dovetail.sdk.errors import DovetailError

T = TypeVar("T")
_BEGUN: Final = set[asyncio.Future[None]]()


async def sleep(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


async def finish(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do the work to its end, even if this task is cancelled meanwhile."""
    task = asyncio.ensure_future(work())
    if cancellation := await _done(task):
        await task
        raise cancellation
    await task


async def settled(work: Callable[[], Coroutine[Any, Any, T]], *, undo: Callable[[T], Awaitable[Any]]) -> T:
    """The result of the work; if this task is cancelled meanwhile, the work comes to its end and is undone."""
    task = asyncio.ensure_future(work())
    if not (cancellation := await _done(task)):
        return await task

    async def undone() -> None:
        with suppress(DovetailError):
            await undo(await task)

    await finish(undone)
    raise cancellation


async def _done(task: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Return once the task is done, with the cancellation of the one that waits; a second one ends neither."""
    cancellation = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = error
    return cancellation


def begin(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do the work soon: what calls this cannot wait."""
    task = asyncio.ensure_future(work())
    # A task that nothing refers to may end before its work does.
    _BEGUN.add(task)
    task.add_done_callback(_BEGUN.discard)


class Periodic:
    """Calls `action` repeatedly in the background; it returns the seconds until the next call, or None to end."""

    def __init__(self, action: Callable[[], Awaitable[float | None]]) -> None:
        self._action = action
        self._task: asyncio.Task[None] | None = None

    def start(self, *, after_seconds: float) -> None:
        """Begin, with the first call after this time."""
        self._task = asyncio.create_task(self._run(after_seconds))

    async def stop(self) -> None:
        """End, also in the middle of a call."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self, seconds: float) -> None:
        pause: float | None = seconds
        while pause is not None:
            await asyncio.sleep(pause)
            pause = await self._action()
