"""Turns: one answer at a time for each caller."""

import asyncio

from dovetail_gateway.cluster.turns import Turns


async def test_a_caller_has_one_turn_at_a_time_and_others_do_not_wait_for_it() -> None:
    turns, order, may_end = Turns(), list[str](), asyncio.Event()

    async def ask(key: bytes, name: str) -> None:
        async with turns.turn(key):
            order.append(name)
            await may_end.wait()

    asking = [asyncio.ensure_future(ask(b"a", "first")), asyncio.ensure_future(ask(b"a", "second"))]
    asking.append(asyncio.ensure_future(ask(b"b", "other")))
    for _ in range(5):
        await asyncio.sleep(0)
    assert order == ["first", "other"]
    may_end.set()
    await asyncio.gather(*asking)
    assert (order, len(turns)) == (["first", "other", "second"], 0)


async def test_who_goes_away_gives_the_turn_to_the_next() -> None:
    turns = Turns()
    holding = asyncio.ensure_future(_hold(turns))
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(_hold(turns))
    await asyncio.sleep(0)
    holding.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(turns) == 1
    waiting.cancel()
    await asyncio.gather(holding, waiting, return_exceptions=True)
    assert len(turns) == 0


async def _hold(turns: Turns) -> None:
    async with turns.turn(b"a"):
        await asyncio.Event().wait()
