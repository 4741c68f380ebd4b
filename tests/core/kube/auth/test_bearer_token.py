"""A token is kept for a minute, and replaced once after a 401."""

import asyncio

from dovetail.kube.auth.connection import Connection
from dovetail.kube.transport import BearerToken


class Source:
    """Gives t1, t2 ...; remembers whether each was a renewal."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def __call__(self, *, renew: bool) -> str:
        self.asked.append(renew)
        return f"t{len(self.asked)}"


def make(source: Source, *, clock: list[float] | None = None) -> BearerToken:
    now = clock or [0.0]
    return BearerToken(Connection(server="https://x", token_source=source), clock=lambda: now[0])


async def test_a_token_is_kept_for_a_minute() -> None:
    clock, source = [0.0], Source()
    token, given = make(source, clock=clock), list[str | None]()
    for clock[0] in (0.0, 59.9, 60.0):
        given.append(await token.get())
    assert given == ["t1", "t1", "t2"]
    assert source.asked == [False, False]


async def test_a_rejected_token_is_renewed_at_once() -> None:
    source = Source()
    token = make(source)
    token.reject(await token.get())
    assert await token.get() == "t2"
    assert source.asked == [False, True]


async def test_a_request_that_was_rejected_with_the_old_token_renews_nothing() -> None:
    source = Source()
    token = make(source)
    old = await token.get()
    token.reject(old)
    await token.get()
    token.reject(old)
    assert await token.get() == "t2"


async def test_requests_that_start_together_log_in_once() -> None:
    source = Source()
    token = make(source)
    assert set(await asyncio.gather(*(token.get() for _ in range(20)))) == {"t1"}
    assert source.asked == [False]


async def test_a_fixed_token_needs_no_reading() -> None:
    assert await BearerToken(Connection(server="https://x", token="fixed")).get() == "fixed"
    assert await BearerToken(Connection(server="https://x")).get() is None
