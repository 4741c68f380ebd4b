"""Slots that users take in turn, so that one who asks a lot leaves room for the others.

CrowdedError   a user who has asked for too much already
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import SaidError, Sentence
from dovetail_gateway.access.limits import tenant_of


class CrowdedError(SaidError):
    """A user who has asked for too much already, and may ask again in `wait_seconds`."""

    def __init__(self, sentence: Sentence, *, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds
        super().__init__(sentence)


@dataclass(frozen=True, slots=True)
class _Call:
    """One that waits for a slot. `granted` ends then."""

    user: str
    granted: asyncio.Future[None]


class FairQueue:
    """At most `at_once` slots are taken, `most_of_one` of them by one user, in whose name `most_waiting` may wait.

    A free slot goes to the next user in a circle (round robin), whatever number of calls each of them has waiting. The
    service accounts of one namespace have the slots and the turns of one user.
    """

    def __init__(self, *, at_once: int, most_of_one: int, most_waiting: int) -> None:
        self._at_once = at_once
        self._most_of_one = most_of_one
        self._most_waiting = most_waiting
        # By tenant.
        self._taken: Counter[str] = Counter()
        # By tenant; the one who is next comes first.
        self._waiting: OrderedDict[str, deque[_Call]] = OrderedDict()
        # How many calls of each user wait.
        self._numbers: Counter[str] = Counter()

    def __len__(self) -> int:
        """The number of tenants who have a slot or wait for one."""
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
        if self._numbers[user] >= self._most_waiting:
            of_user = says.TOO_MANY_WAIT(count=self._most_waiting, user=user) if user else None
            raise CrowdedError(of_user or says.TOO_MANY_OF_CALLER(count=self._most_waiting), wait_seconds=1.0)
        call = _Call(user, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(tenant_of(user), deque()).append(call)
        self._numbers[user] += 1
        self._grant()
        try:
            await call.granted
        except asyncio.CancelledError:
            if call.granted.done() and not call.granted.cancelled():
                # It was granted at the moment at which its caller left.
                self._give_back(user)
            else:
                self._leave(call)
            raise

    def _leave(self, call: _Call) -> None:
        tenant = tenant_of(call.user)
        own = self._waiting.get(tenant)
        if own is None or call not in own:
            return
        own.remove(call)
        self._waits_no_more(call)
        if not own:
            del self._waiting[tenant]

    def _give_back(self, user: str) -> None:
        tenant = tenant_of(user)
        self._taken[tenant] -= 1
        if not self._taken[tenant]:
            del self._taken[tenant]
        self._grant()

    def _grant(self) -> None:
        while self._taken.total() < self._at_once and (tenant := self._next()) is not None:
            own = self._waiting[tenant]
            call = own.popleft()
            self._waits_no_more(call)
            self._waiting.move_to_end(tenant)
            if not own:
                del self._waiting[tenant]
            # One that was cancelled leaves the queue in the next turn of the event loop.
            if not call.granted.cancelled():
                self._taken[tenant] += 1
                call.granted.set_result(None)

    def _waits_no_more(self, call: _Call) -> None:
        self._numbers[call.user] -= 1
        if not self._numbers[call.user]:
            del self._numbers[call.user]

    def _next(self) -> str | None:
        return next((tenant for tenant in self._waiting if self._taken[tenant] < self._most_of_one), None)
