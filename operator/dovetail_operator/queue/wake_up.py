"""When the next scheduling cycle runs: soon after an input has changed, or at a time.

Any event handler may ask for a cycle. Events come in bursts, and one cycle covers all of them. Soon after a
cycle, events are likely to go on: the next one waits longer for them.
"""

import asyncio
from contextlib import suppress
from typing import Final

_BURST_SECONDS: Final = 0.05
# A cycle has a cost of its own, however few jobs are new: at 20 new jobs a second, half of a cycle for each job was a
# seventh of what all programs took until the job had its reason.
_LONG_BURST_SECONDS: Final = 0.2
# For so long after a cycle, a request is one of many.
_SPELL_SECONDS: Final = 0.5


class WakeUp:
    """Requests for a cycle. One task waits for them with `wait`."""

    def __init__(self) -> None:
        self._due = asyncio.Event()
        self._urgent = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        # When the last cycle began.
        self._began = float("-inf")

    def soon(self) -> None:
        """Ask for a cycle. The pause after the previous one stays."""
        self._due.set()

    def at_once(self) -> None:
        """Ask for a cycle, and end the pause after the previous one early."""
        self._due.set()
        self._urgent.set()

    def within(self, *, seconds: float) -> None:
        """Ask for a cycle in `seconds` at the latest. One timer serves all that ask."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._ring)

    async def wait(self) -> None:
        """Wait until a cycle is due. Requests from now on are for the cycle after it."""
        loop = asyncio.get_running_loop()
        await self._due.wait()
        is_one_of_many = loop.time() < self._began + _SPELL_SECONDS
        await asyncio.sleep(_LONG_BURST_SECONDS if is_one_of_many else _BURST_SECONDS)
        self._began = loop.time()
        self._due.clear()
        self._urgent.clear()

    async def pause(self, *, seconds: float) -> None:
        """Wait for `seconds`, or until a cycle is requested at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._urgent.wait()

    def _ring(self) -> None:
        self._timer = None
        self._due.set()
