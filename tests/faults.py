"""Fault points: a journey that is cancelled at each await in turn, or killed at each effect, and then made again.

The end has to be that of a journey without a fault: nothing stays taken, nothing is done twice, nothing is lost.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

W = TypeVar("W")
# A journey of more points than this one does not end.
_MOST_POINTS = 2000


class Killed(BaseException):
    """What ends a process at an effect: no handler of errors sees it."""


class Effects:
    """Counts effects. Before or after the `at`-th one, the process is killed; with None it never is."""

    def __init__(self, at: int | None = None, *, before: bool = False) -> None:
        self.done: list[str] = []
        self.at = at
        self._before = before

    def around(self, what: str, effect: Callable[..., Any]) -> Callable[..., Any]:
        """The effect, as one after which or before which the process may be killed."""

        def apply(*args: Any, **options: Any) -> Any:
            is_last = len(self.done) + 1 == self.at
            self.done.append(what)
            if is_last and self._before:
                raise Killed
            result = effect(*args, **options)
            if is_last:
                raise Killed
            return result

        return apply


class _Stopped(Awaitable[Any]):
    """A coroutine whose task is cancelled at the coroutine's `at`-th suspension."""

    def __init__(self, journey: Coroutine[Any, Any, Any], *, at: int) -> None:
        self._journey = journey
        self._at = at
        self.suspended = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = lambda: self._journey.send(None)  # noqa: E731 - replaced below
        while True:
            try:
                waits_for = step()
            except StopIteration as end:
                return end.value
            self.suspended += 1
            if self.suspended == self._at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield waits_for
                step = lambda: self._journey.send(None)  # noqa: E731
            except BaseException as error:  # noqa: BLE001 - the journey gets what its task gets
                step = _throwing(self._journey, error)


def _throwing(journey: Coroutine[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: journey.throw(error)


async def cancelled_at(journey: Coroutine[Any, Any, Any], *, at: int) -> bool:
    """Run the journey and cancel it at its `at`-th await that waits. False if it had ended before."""
    stopped = _Stopped(journey, at=at)

    async def run() -> Any:
        return await stopped

    await asyncio.wait([task := asyncio.ensure_future(run())])
    if not task.cancelled() and (error := task.exception()) is not None and stopped.suspended < at:
        raise error
    return stopped.suspended >= at


async def at_each_await(
    make: Callable[[], Awaitable[W]],
    *,
    journey: Callable[[W], Coroutine[Any, Any, Any]],
    end: Callable[[W], Awaitable[Any]],
    safe: Callable[[W], object] = lambda _world: None,
) -> int:
    """Cancel the journey at each await in turn, make it again, and compare the end with that of one without a fault.

    `safe` asserts what has to hold at the moment of the fault. `end` waits until nothing happens any more, and says
    what there is then. Returns the number of awaits.
    """
    untouched = await make()
    await journey(untouched)
    wanted = await end(untouched)
    for at in itertools.count(1):
        assert at < _MOST_POINTS, "the journey does not end"
        world = await make()
        was_cancelled = await cancelled_at(journey(world), at=at)
        safe(world)
        if was_cancelled:
            await journey(world)
        found = await end(world)
        assert found == wanted, f"cancelled at await {at}: {found}, and without a fault {wanted}"
        if not was_cancelled:
            return at - 1
    raise AssertionError


async def left_at_each_turn(
    make: Callable[[], Awaitable[W]],
    *,
    journey: Callable[[W], Coroutine[Any, Any, Any]],
    end: Callable[[W], Awaitable[Any]],
) -> int:
    """Two make the journey at once, and the first leaves at each turn of the event loop in turn.

    The second gets what it gets without the first, and so does `end`. Returns the number of turns.
    """
    untouched = await make()
    wanted = await journey(untouched), await end(untouched)
    for turn in range(_MOST_POINTS):
        world = await make()
        leaves, stays = (asyncio.ensure_future(journey(world)) for _ in range(2))
        for _ in range(turn):
            await asyncio.sleep(0)
        has_left = leaves.cancel()
        await asyncio.wait([leaves, stays])
        assert not stays.cancelled(), f"the other one has left at turn {turn}, and so does this one"
        found = stays.result(), await end(world)
        assert found == wanted, f"left at turn {turn}: {found}, and without the other one {wanted}"
        if not has_left:
            return turn
    raise AssertionError("the journey does not end")


def at_each_effect(
    make: Callable[[Effects], W],
    *,
    journey: Callable[[W], object],
    end: Callable[[W], Any],
    restart: Callable[[W], W],
    safe: Callable[[W], object] = lambda _world: None,
) -> int:
    """Kill the journey before and after each effect, `restart`, make it again, and compare the ends.

    `safe` asserts what has to hold at the moment of the kill. Returns the number of effects.
    """
    untouched = make(effects := Effects())
    journey(untouched)
    wanted, number = end(untouched), len(effects.done)
    for at, before in itertools.product(range(1, number + 1), (True, False)):
        world = make(killed := Effects(at, before=before))
        try:
            journey(world)
        except Killed:
            pass
        else:
            raise AssertionError(f"effect {at} did not happen again")
        safe(world)
        killed.at = None
        world = restart(world)
        journey(world)
        found = end(world)
        where = f"killed {'before' if before else 'after'} {killed.done[at - 1]}"
        assert found == wanted, f"{where}: {found}, and without a fault {wanted}"
    return number
