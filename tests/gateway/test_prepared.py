"""Queues prepared for dry runs: once for all who ask, never for another audience, never too old."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.decoding import decode
from dovetail.query.dry_run import prepare
from dovetail_gateway.access.visibility import EVERYTHING, Visibility
from dovetail_gateway.cluster import prepared
from dovetail_gateway.cluster.prepared import (
    CHEAP_SECONDS,
    FRESH_SECONDS,
    MOST_JOBS,
    MOST_LIMITED,
    MOST_OF_ONE,
    OLDEST_SECONDS,
    Audience,
    Prepared,
    PreparedQueues,
)
from tests.gateway.builders import make_job

COSTLY, CHEAP = CHEAP_SECONDS * 2, CHEAP_SECONDS / 2
JOB = decode(json.dumps(make_job("j", namespace="red")), as_type=GPUJob)
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
        self.users: list[str] = []
        self.jobs = 0
        # How long a preparation takes by the clock.
        self.lasts = 0.0
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

    async def _prepare(self, audience: Audience, *, user: str) -> Prepared:
        self.made.append(audience)
        self.users.append(user)
        version, fails = self.version, self.took < 0
        await self.may_end.wait()
        self.seconds += self.lasts
        if fails:
            raise ValueError("it cannot be prepared")
        queue = replace(NOTHING, jobs=dict.fromkeys(map(str, range(self.jobs)), JOB))
        return Prepared(queue=queue, version=version, took_seconds=self.took)

    async def version_for(self, audience: Audience = ADMIN, *, user: str | None = None) -> int:
        return (await self.queues.for_audience(audience, user=audience.user if user is None else user)).version


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
    assert cluster.made == audiences
    assert cluster.users == ["", "rita", "bob"], "the preparation counts for who asks"


def limited(name: str) -> Audience:
    return Audience(sees=Visibility(frozenset()), user=name)


async def test_limited_users_do_not_evict_each_others_queue(cluster: Cluster) -> None:
    for name in [f"u-{at}" for at in range(MOST_LIMITED)] * 2:
        await cluster.version_for(limited(name))
    assert len(cluster.made) == MOST_LIMITED


async def test_beyond_the_bound_those_used_least_recently_are_forgotten(cluster: Cluster) -> None:
    for at in range(MOST_LIMITED):
        await cluster.version_for(limited(f"u-{at}"))
    await cluster.version_for(limited("u-0"))
    await cluster.version_for(limited("one more"))
    await cluster.version_for(limited("u-0"))
    assert len(cluster.made) == MOST_LIMITED + 1
    await cluster.version_for(limited("u-1"))
    assert len(cluster.made) == MOST_LIMITED + 2


@pytest.mark.parametrize("user", ["eve", "system:serviceaccount:red:eve-{}"])
async def test_one_tenant_who_asks_about_many_evicts_no_one_else(cluster: Cluster, user: str) -> None:
    await cluster.version_for(limited("rita"))
    for at in range(MOST_LIMITED + 1):
        await cluster.version_for(limited(f"u-{at}"), user=user.format(at))
    await cluster.version_for(limited("rita"))
    assert (len(cluster.made), len(cluster.queues._kept)) == (MOST_LIMITED + 2, 1 + MOST_OF_ONE)


@pytest.mark.parametrize(("jobs", "kept"), [(MOST_JOBS // 4, 4), (MOST_JOBS // 2, 2), (MOST_JOBS, 2)])
async def test_queues_of_large_clusters_are_fewer_and_never_less_than_two(
    cluster: Cluster, jobs: int, kept: int
) -> None:
    cluster.jobs = jobs
    for at in range(6):
        await cluster.version_for(limited(f"u-{at}"))
    assert [each.user for each in cluster.queues._kept] == [f"u-{at}" for at in range(6 - kept, 6)]


async def test_a_preparation_that_no_one_waits_for_ends(cluster: Cluster) -> None:
    cluster.may_end.clear()
    asking = [asyncio.ensure_future(cluster.version_for()) for _ in range(2)]
    await asyncio.sleep(0)
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await asyncio.sleep(0)
    assert (len(cluster.queues._calls), cluster.queues._one.locked(), len(cluster.made)) == (0, False, 1)
    cluster.may_end.set()
    assert await cluster.version_for() == 1


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


async def test_a_queue_is_as_old_as_the_cluster_of_which_it_was_made(cluster: Cluster) -> None:
    """A preparation takes seconds, in which the cluster goes on."""
    cluster.lasts = OLDEST_SECONDS - 5
    await cluster.version_for()
    cluster.version, cluster.lasts, cluster.seconds = 2, 0.0, cluster.seconds + 4
    assert await cluster.version_for() == 1
    cluster.version, cluster.seconds = 3, cluster.seconds + OLDEST_SECONDS + 1
    cluster.lasts = OLDEST_SECONDS + 1
    assert await cluster.version_for() == 3, "who waited for it gets it"
    cluster.version, cluster.lasts = 4, 0.0
    assert await cluster.version_for() == 4, "and no one after"


async def test_two_queues_are_prepared_one_after_the_other(cluster: Cluster) -> None:
    cluster.may_end.clear()
    asking = [asyncio.ensure_future(cluster.version_for(limited(name))) for name in ("rita", "rob")]
    for _ in range(20):
        await asyncio.sleep(0)
    assert [each.user for each in cluster.made] == ["rita"]
    cluster.may_end.set()
    await asyncio.gather(*asking)
    assert [each.user for each in cluster.made] == ["rita", "rob"]


async def test_for_those_who_see_everything_the_user_of_the_job_makes_no_difference() -> None:
    some = Visibility(frozenset({"blue"}))
    assert Audience.of_job(JOB, sees=EVERYTHING, user="rita") == ADMIN
    found = Audience.of_job(JOB, sees=some, user="rita")
    assert (found.sees.namespaces, found.user) == ({"red", "blue"}, "rita"), "the job's own namespace is not hidden"
    assert Audience.of_job(JOB, sees=some, user=None).user == ""


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_forgotten_is_the_users_own_first_and_no_more_than_necessary(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng, most, most_jobs = Random(seed), 5, 12
    monkeypatch.setattr(prepared, "MOST_LIMITED", most)
    monkeypatch.setattr(prepared, "MOST_JOBS", most_jobs)
    # By name in the order of use: who asked for it last, and its jobs.
    model: dict[str, tuple[str, int]] = {}
    for _ in range(300):
        name, user = rng.choice("abcdefgh"), rng.choice(["rita", "rob", "eve"])
        if rng.random() < 0.1:
            await cluster.version_for()
            continue
        cluster.jobs = rng.randrange(6)
        if name in model:
            # One that is kept serves as it is.
            model[name] = model.pop(name)
        else:
            own = [each for each, (owner, _) in model.items() if owner == user]
            for each in own[: max(0, len(own) + 1 - MOST_OF_ONE)]:
                del model[each]
            sizes = [jobs for _, jobs in model.values()]
            while len(model) + 1 > 2 and (
                len(model) + 1 > most or sum(jobs for _, jobs in model.values()) + sizes[-1] > most_jobs
            ):
                del model[next(iter(model))]
            model[name] = user, cluster.jobs
        await cluster.version_for(limited(name), user=user)
        kept = [each.user for each in cluster.queues._kept if not each.sees.everything]
        assert kept == list(model), (name, user)
