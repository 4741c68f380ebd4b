"""Calls that are made once for all who wait for the same answer."""

import asyncio

import pytest

from dovetail_gateway.access.shared_calls import SharedCalls
from tests.faults import left_at_each_turn


class Server:
    """Answers each call once its gate is open, with its number; `ended` are those that were cancelled."""

    def __init__(self) -> None:
        self.calls: SharedCalls[str, int] = SharedCalls()
        self.gates: list[asyncio.Event] = []
        self.ended: list[int] = []
        self.fails = False

    async def _answer(self) -> int:
        number, gate = len(self.gates), asyncio.Event()
        self.gates.append(gate)
        try:
            await gate.wait()
        except asyncio.CancelledError:
            self.ended.append(number)
            raise
        if self.fails:
            raise ConnectionError(str(number))
        return number

    async def ask(self, key: str = "k") -> int:
        return await self.calls.result(key, of=self._answer)

    async def ask_twice(self) -> list[int]:
        return [await self.ask(), await self.ask()]


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_who_asks_while_a_call_runs_shares_it_and_the_next_makes_another() -> None:
    server = Server()
    asking = [asyncio.ensure_future(server.ask(key)) for key in ("k", "k", "other")]
    await turns()
    assert (len(server.gates), len(server.calls)) == (2, 2)
    for gate in server.gates:
        gate.set()
    assert await asyncio.gather(*asking) == [0, 0, 1]
    assert len(server.calls) == 0
    again = asyncio.ensure_future(server.ask())
    await turns()
    server.gates[2].set()
    assert (await again, len(server.calls)) == (2, 0)


async def test_one_who_leaves_an_ended_call_late_leaves_the_next_call_to_those_who_wait_for_it() -> None:
    server = Server()
    eager, other = asyncio.ensure_future(server.ask_twice()), asyncio.ensure_future(server.ask())
    await turns()
    server.gates[0].set()
    assert await other == 0
    await turns()
    third = asyncio.ensure_future(server.ask())
    await turns()
    assert len(server.gates) == 2, "the second call is shared"
    server.gates[1].set()
    assert (await eager, await third, len(server.calls)) == ([0, 1], 1, 0)


async def test_an_error_reaches_all_who_wait_and_the_next_asks_again() -> None:
    server = Server()
    server.fails = True
    asking = [asyncio.ensure_future(server.ask()) for _ in range(3)]
    await turns()
    server.gates[0].set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(each) for each in found] == ["0"] * 3
    server.fails = False
    again = asyncio.ensure_future(server.ask())
    await turns()
    server.gates[1].set()
    assert (await again, len(server.calls)) == (1, 0)


@pytest.mark.parametrize("leavers", [1, 2, 3])
async def test_a_call_ends_once_the_last_has_left_it(leavers: int) -> None:
    server = Server()
    asking = [asyncio.ensure_future(server.ask()) for _ in range(3)]
    await turns()
    for each in asking[:leavers]:
        each.cancel()
    await turns()
    assert (server.ended, len(server.calls)) == (([0], 0) if leavers == 3 else ([], 1))
    server.gates[0].set()
    assert await asyncio.gather(*asking[leavers:]) == [0] * (3 - leavers)
    assert len(server.calls) == 0


class Steps:
    """A call of three steps. `made` are the calls that came to their end."""

    def __init__(self) -> None:
        self.calls: SharedCalls[str, int] = SharedCalls()
        self.made: list[int] = []

    async def ask(self) -> int:
        return await self.calls.result("k", of=self._answer)

    async def _answer(self) -> int:
        for _ in range(3):
            await asyncio.sleep(0)
        self.made.append(1)
        return 1

    async def end(self) -> tuple[list[int], int]:
        return self.made, len(self.calls)


async def test_one_of_two_who_wait_for_an_answer_may_leave_at_any_moment() -> None:
    async def make() -> Steps:
        return Steps()

    assert await left_at_each_turn(make, journey=Steps.ask, end=Steps.end) >= 3
