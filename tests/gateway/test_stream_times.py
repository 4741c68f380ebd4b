"""When an answer that stays open says something, asks again what its caller may see, and ends: to the second."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from dovetail.api.reasons import problems as says
from dovetail.config.settings import Settings
from dovetail.kube.errors import Unreachable
from dovetail_gateway.access.callers import Caller
from dovetail_gateway.access.fair_queue import CrowdedError
from dovetail_gateway.access.identities import Identity
from dovetail_gateway.access.tokens import Token
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.metrics import Metrics
from dovetail_gateway.routing.open_streams import MOST_STREAMS, OpenStreams
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.stream.events import EventStreams, _Stream
from dovetail_gateway.stream.feed import Feed
from tests import virtual_time
from tests.gateway.test_cluster_machine import make_cache

AWAY: Final = Unreachable("https://api", problem="reset")
CROWDED: Final = CrowdedError(says.REVIEWED_TOO_OFTEN(user="rita"), wait_seconds=1.0)
RED: Final = Visibility(frozenset({"red"}))


class World:
    """A stream of one caller in virtual time; `said` is what it sent, with the seconds since its start.

    `denied_at` is when the caller loses its right, `fails` what a review then raises instead. `stops_reading_at` is
    when the client reads no more.
    """

    def __init__(
        self,
        *,
        ends: float | None = None,
        denied_at: float = float("inf"),
        fails: Exception | None = None,
        stops_reading_at: float = float("inf"),
    ) -> None:
        self.began = virtual_time.clock()
        self.metrics = Metrics()
        self.open = OpenStreams(metrics=self.metrics, clock=virtual_time.clock)
        self.feed = Feed(make_cache(Settings()))
        self.said: list[tuple[float, str]] = []
        self.reviewed: list[float] = []
        self.denied_at = denied_at
        self.fails = fails
        self.stops_reading_at = stops_reading_at
        expires_at = None if ends is None else self.began + ends
        self.caller = Caller(key=b"k", token=Token(text="t", digest=b"k", expires_at=expires_at))

    @property
    def now(self) -> float:
        return virtual_time.clock() - self.began

    async def seen_by(self, _caller: Caller, *, oldest: float) -> Visibility:
        assert oldest == self.open.times.review_seconds
        return RED

    async def may(self, _caller: Caller, *, oldest: float = 30.0, **_: Any) -> bool:
        assert oldest == self.open.times.review_seconds
        self.reviewed.append(self.now)
        if self.now >= self.denied_at and self.fails is not None:
            raise self.fails
        return self.now < self.denied_at

    async def write(self, data: bytes) -> None:
        if self.now >= self.stops_reading_at:
            await asyncio.Event().wait()
        self.said.append((self.now, data.decode()))

    async def stream(self) -> None:
        events = EventStreams(self.feed, cache=self, reviews=self, streams=self.open)  # type: ignore[arg-type]
        made = _Stream(events, response=self, caller=self.caller, sees=RED, seq=self.feed.seq)  # type: ignore[arg-type]
        with self.open.counted(Identity(username="rita")):
            await made.run()

    async def until_end(self) -> None:
        await self.open.until_end(self.caller, may=lambda: self.may(self.caller))

    def end(self) -> None:
        self.open.stop()
        self.feed.wake()


def events(said: list[tuple[float, str]]) -> list[tuple[float, Any]]:
    """What was said, with the reason of a `bye`."""
    found = list[tuple[float, Any]]()
    for at, text in said:
        head, _, data = text.strip().partition("\ndata: ")
        found.append((at, json.loads(data)["why"] if "event: bye" in head else head.partition("\n")[0]))
    return found


def run(scenario: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return virtual_time.run(scenario())


def test_a_silent_stream_gives_a_sign_of_life_each_15_seconds_and_its_rights_are_reviewed_each_30() -> None:
    async def scenario() -> World:
        world = World()
        asyncio.get_running_loop().call_later(100, world.end)
        await world.stream()
        return world

    world = run(scenario)
    alive = [at for at, text in world.said if text == ": alive\n\n"]
    assert (alive, world.reviewed) == ([15, 30, 45, 60, 75, 90], [30, 60, 90])
    assert events(world.said)[-1] == (100, "the gateway stops")


ENDS: Final[list[tuple[dict[str, Any], float, str]]] = [
    ({"ends": 20}, 20, "the token has expired"),
    ({"ends": 61}, 61, "the token has expired"),
    ({"ends": 0}, 0, "the token has expired"),
    ({"denied_at": 31}, 60, "you may not watch gpujobs.dovetail.dev any more"),
    ({"denied_at": 31, "fails": AWAY}, 60, f"your rights cannot be reviewed: {AWAY}"),
    ({"denied_at": 31, "fails": CROWDED}, 60, f"your rights cannot be reviewed: {CROWDED}"),
]


@pytest.mark.parametrize(("scene", "at", "why"), ENDS)
def test_a_stream_ends_with_its_token_or_at_the_review_that_does_not_permit_it(
    scene: dict[str, Any], at: float, why: str
) -> None:
    async def scenario() -> World:
        world = World(**scene)
        await world.stream()
        return world

    world = run(scenario)
    assert events(world.said)[-1] == (at, why)
    assert not world.open._open


@pytest.mark.parametrize(("scene", "at"), [each[:2] for each in ENDS])
def test_so_does_every_other_answer_that_stays_open(scene: dict[str, Any], at: float) -> None:
    async def scenario() -> float:
        world = World(**scene)
        await world.until_end()
        return world.now

    assert run(scenario) == at


def test_an_answer_that_stays_open_ends_at_once_when_the_gateway_stops() -> None:
    async def scenario() -> float:
        world = World(ends=50)
        asyncio.get_running_loop().call_later(7, world.end)
        await world.until_end()
        return world.now

    assert run(scenario) == 7


def test_a_client_that_does_not_read_is_left_after_ten_seconds() -> None:
    async def scenario() -> tuple[World, float]:
        world = World(stops_reading_at=30)
        with pytest.raises(ConnectionError):
            await world.stream()
        return world, world.now

    world, ended_at = run(scenario)
    assert (world.said[-1][0], ended_at, world.open._open) == (15, 40, {})


def test_open_streams_are_counted_by_user_and_in_the_metric_until_each_ends() -> None:
    async def scenario() -> None:
        world = World()
        gauge = world.metrics.streams._value

        async def hold(user: str) -> None:
            with world.open.counted(Identity(username=user)):
                await asyncio.sleep(60)
                raise ConnectionError

        held = [asyncio.ensure_future(hold("rita")) for _ in range(MOST_STREAMS)]
        await asyncio.sleep(1)
        with pytest.raises(RequestFailedError, match=f"{MOST_STREAMS} streams of rita are open"):
            await hold("rita")
        held.append(asyncio.ensure_future(hold("rob")))
        await asyncio.sleep(1)
        assert gauge.get() == MOST_STREAMS + 1
        held[0].cancel()
        await asyncio.sleep(0)
        held.append(asyncio.ensure_future(hold("rita")))
        await asyncio.wait(held)
        assert [isinstance(each.exception(), ConnectionError) for each in held[1:]] == [True] * MOST_STREAMS + [True]
        assert (gauge.get(), world.open._open) == (0, {})

    run(scenario)
