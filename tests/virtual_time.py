"""An event loop whose clock jumps to the next timer: a test of hours takes milliseconds, and one that waits for nothing
fails at once."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StuckError(Exception):
    """Every task waits for something that no timer brings."""


class _Jumping(selectors.DefaultSelector):
    """Waits for no time that passes: it tells the loop how long it would have waited."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise StuckError
        if not ready and timeout:
            self._jump(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Tasks and timers alone; nothing comes from outside."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(_Jumping(self._pass))

    def time(self) -> float:
        return self.now

    def _pass(self, seconds: float) -> None:
        self.now += seconds


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run the scenario to its end in virtual time. `loop.time` is the clock of whatever takes one."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario)


def clock() -> float:
    """The time of the scenario that runs."""
    return asyncio.get_running_loop().time()


def pass_by(seconds: float) -> None:
    """Let time pass for code that blocks: nothing else runs in the scenario meanwhile."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.now += seconds
