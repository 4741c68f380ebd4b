"""Slots that users take in turn, so that one who asks a lot leaves room for the others.

CrowdedError   a user who has asked for too much already
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import SaidError, Sentence


class CrowdedError(SaidError):
    """A user who has asked for too much already, and may ask again in `wait_seconds`."""

    def __init__(self, sentence: Sentence, *, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds
        super().__init__(sentence)


class FairQueue:
    """At most `at_once` slots are taken, `most_of_one` of them by one user, in whose name `most_waiting` may wait.

    A free slot goes to the next user in a circle (round robin), whatever number of calls each of them has waiting.
    """

    def __init__(self, *, at_once: int, most_of_one: int, most_waiting: int) -> None:
        self._at_once = at_once
        self._most_of_one = most_of_one
        self._most_waiting = most_waiting
        self._taken: Counter[str] = Counter()
        # The user who is next comes first.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def __len__(self) -> int:
        """The number of users who have a slot or wait for one."""
        return len(self._taken.keys() | self._waiting.keys())

    @asynccontextmanager
    async def slot(self, user: str) -> AsyncIterator[None]:
        """Wait for a slot and keep it inside the block. Raises `CrowdedError`."""
        await self._take(user)
        try:
            yield
        finally:
            self._give_back(user)

    async def _take(self, user: str) -> None:
        if len(self._waiting.get(user, ())) >= self._most_waiting:
            of_user = says.TOO_MANY_WAIT(count=self._most_waiting, user=user) if user else None
            raise CrowdedError(of_user or says.TOO_MANY_OF_CALLER(count=self._most_waiting), wait_seconds=1.0)
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(granted)
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                # It was granted at the moment at which its caller left.
                self._give_back(user)
            else:
                self._leave(user, waits=granted)
            raise

    def _leave(self, user: str, *, waits: asyncio.Future[None]) -> None:
        own = self._waiting.get(user)
        if own is None or waits not in own:
            return
        own.remove(waits)
        if not own:
            del self._waiting[user]

    def _give_back(self, user: str) -> None:
        self._taken[user] -= 1
        if not self._taken[user]:
            del self._taken[user]
        self._grant()

    def _grant(self) -> None:
        while self._taken.total() < self._at_once and (user := self._next()) is not None:
            own = self._waiting[user]
            granted = own.popleft()
            self._waiting.move_to_end(user)
            if not own:
                del self._waiting[user]
            # One that was cancelled leaves the queue in the next turn of the event loop.
            if not granted.cancelled():
                self._taken[user] += 1
                granted.set_result(None)

    def _next(self) -> str | None:
        return next((user for user in self._waiting if self._taken[user] < self._most_of_one), None)
