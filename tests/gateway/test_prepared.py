"""Queues prepared for dry runs: once for all who ask, never for another audience, never too old."""

import asyncio
from datetime import UTC, datetime

import pytest

from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.query.dry_run import prepare
from dovetail_gateway.access.visibility import EVERYTHING, Visibility
from dovetail_gateway.cluster.prepared import (
    CHEAP_SECONDS,
    FRESH_SECONDS,
    MOST_LIMITED,
    OLDEST_SECONDS,
    Audience,
    Prepared,
    PreparedQueues,
)

COSTLY, CHEAP = CHEAP_SECONDS * 2, CHEAP_SECONDS / 2
ADMIN = Audience(sees=EVERYTHING, user="")
NOTHING = prepare(
    ClusterObjects(nodes=(), gpunodes=(), pods=(), jobs=(), settings=Settings()),
    now=datetime(2026, 11, 1, tzinfo=UTC),
)


class Cluster:
    """A cluster without objects whose version and clock a test sets."""

    def __init__(self) -> None:
        self.version = 1
        self.seconds = 100.0
        self.took = COSTLY
        self.made: list[Audience] = []
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.queues = PreparedQueues(
            self._prepare, version=lambda: self.version, clock=lambda: self.seconds, sleep=self._sleep
        )
        self.rests: list[float] = []

    async def _sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)

    async def _prepare(self, audience: Audience) -> Prepared:
        self.made.append(audience)
        version, fails = self.version, self.took < 0
        await self.may_end.wait()
        if fails:
            raise ValueError("it cannot be prepared")
        return Prepared(queue=NOTHING, version=version, took_seconds=self.took)

    async def version_for(self, audience: Audience = ADMIN) -> int:
        return (await self.queues.for_audience(audience)).version


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


async def test_it_is_prepared_once_however_many_ask(cluster: Cluster) -> None:
    cluster.may_end.clear()
    asking = [asyncio.ensure_future(cluster.version_for()) for _ in range(50)]
    await asyncio.sleep(0)
    cluster.may_end.set()
    assert (await asyncio.gather(*asking), len(cluster.made)) == ([1] * 50, 1)


async def test_a_costly_queue_serves_after_changes_and_a_cheap_one_does_not(cluster: Cluster) -> None:
    await cluster.version_for()
    cluster.version = 2
    assert await cluster.version_for() == 1
    cluster.took, cluster.seconds = CHEAP, cluster.seconds + OLDEST_SECONDS + 1
    assert await cluster.version_for() == 2
    cluster.version = 3
    assert await cluster.version_for() == 3


async def test_an_older_one_serves_while_the_next_is_prepared(cluster: Cluster) -> None:
    await cluster.version_for()
    cluster.version, cluster.seconds = 2, cluster.seconds + FRESH_SECONDS + 1
    cluster.may_end.clear()
    assert [await cluster.version_for() for _ in range(3)] == [1, 1, 1]
    await asyncio.sleep(0)
    cluster.may_end.set()
    async with asyncio.timeout(5):
        while await cluster.version_for() == 1:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
    assert len(cluster.made) == 2


async def test_one_that_is_too_old_serves_no_one(cluster: Cluster) -> None:
    await cluster.version_for()
    cluster.version, cluster.seconds = 2, cluster.seconds + OLDEST_SECONDS + 1
    assert await cluster.version_for() == 2


async def test_no_one_gets_the_queue_of_another_audience(cluster: Cluster) -> None:
    red = Visibility(frozenset({"red"}))
    audiences = [ADMIN, Audience(sees=red, user="rita"), Audience(sees=red, user="bob")]
    for audience in audiences * 2:
        await cluster.version_for(audience)
    assert cluster.made == [*audiences, *audiences[1:]], "one of a limited audience is kept, and that of all"


async def test_only_the_newest_are_kept(cluster: Cluster) -> None:
    for at in range(MOST_LIMITED + 1):
        await cluster.version_for(Audience(sees=Visibility(frozenset()), user=f"u-{at}"))
    await cluster.version_for(Audience(sees=Visibility(frozenset()), user="u-1"))
    assert len(cluster.made) == MOST_LIMITED + 1
    await cluster.version_for(Audience(sees=Visibility(frozenset()), user="u-0"))
    assert len(cluster.made) == MOST_LIMITED + 2


async def test_an_error_reaches_who_waits_and_the_next_tries_again(cluster: Cluster) -> None:
    cluster.took = -1
    with pytest.raises(ValueError, match="cannot be prepared"):
        await cluster.version_for()
    cluster.took = COSTLY
    assert (await cluster.version_for(), len(cluster.made)) == (1, 2)


async def test_who_goes_away_does_not_end_the_preparation_of_the_others(cluster: Cluster) -> None:
    cluster.may_end.clear()
    first, second = (asyncio.ensure_future(cluster.version_for()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    cluster.may_end.set()
    assert (await second, len(cluster.made)) == (1, 1)


@pytest.mark.parametrize(("took", "rest"), [(0.01, FRESH_SECONDS), (0.5, 10.0), (3.0, 20.0)])
async def test_one_that_is_kept_ready_rests_by_what_it_costs_and_is_never_too_old(
    cluster: Cluster, took: float, rest: float
) -> None:
    cluster.took = took
    keeping = asyncio.ensure_future(cluster.queues.keep_ready(ADMIN))
    async with asyncio.timeout(5):
        while len(cluster.rests) < 3:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
    keeping.cancel()
    assert cluster.rests[0] == rest < OLDEST_SECONDS
    made = len(cluster.made)
    await cluster.version_for()
    assert len(cluster.made) == made, "the one that is ready serves"


async def test_an_error_does_not_end_what_keeps_one_ready(cluster: Cluster) -> None:
    cluster.took = -1
    keeping = asyncio.ensure_future(cluster.queues.keep_ready(ADMIN))
    async with asyncio.timeout(5):
        while not cluster.rests:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
    cluster.took = COSTLY
    assert await cluster.version_for() == 1
    keeping.cancel()
