"""What jobs were measured to use is computed once for all who ask, and each reader gets its own namespaces of it."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.config.settings import Settings
from dovetail_gateway.cluster import measured_jobs
from dovetail_gateway.cluster.measured_jobs import MeasuredJobs
from tests.gateway.builders import make_job
from tests.gateway.test_cluster_machine import make_cache, tell
from tests.gateway.test_waste import measured

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


class Asked:
    """The measured jobs of a cache, and how often they were computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, costly: bool) -> None:
        self.computed = 0
        # All is more than this, or nothing is.
        monkeypatch.setattr(measured_jobs, "_CHEAP_SECONDS", -1.0 if costly else float("inf"))
        monkeypatch.setattr(measured_jobs, "measured", self._count)
        self.cache = make_cache(Settings())
        self.jobs = MeasuredJobs(self.cache)
        self.put("train")

    def _count(self, jobs: Any, *, now: datetime) -> Any:
        self.computed += 1
        return self._measured(jobs, now=now)

    _measured = staticmethod(measured_jobs.measured)

    def put(self, name: str) -> None:
        job = make_job(name, namespace="red", user="rita", status=measured(0.1))
        tell(self.cache, "gpujobs", "ADDED", job)

    async def names(self, *, seconds: float = 0.0) -> list[str]:
        return [each.job.metadata.name for each in await self.jobs.all(now=NOW + timedelta(seconds=seconds))]


async def test_they_serve_while_nothing_changes_for_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, costly=False)
    assert [await asked.names(seconds=seconds) for seconds in (0, 29, 30)] == [["train"]] * 3
    assert asked.computed == 2


async def test_what_is_cheap_is_computed_again_after_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, costly=False)
    await asked.names()
    asked.put("other")
    assert await asked.names() == ["train", "other"]


async def test_what_is_costly_serves_for_some_seconds_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, costly=True)
    await asked.names()
    asked.put("other")
    assert await asked.names(seconds=9) == ["train"]
    assert await asked.names(seconds=10) == ["train", "other"]


async def test_a_clock_that_was_set_back_makes_no_answer_of_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, costly=True)
    await asked.names()
    await asked.names(seconds=-1)
    assert asked.computed == 2


async def test_those_who_ask_at_once_wait_for_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, costly=True)
    found = await asyncio.gather(*(asked.names() for _ in range(5)))
    assert (found, asked.computed) == ([["train"]] * 5, 1)


async def test_a_question_that_took_longer_does_not_bring_back_what_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, may_end = Asked(monkeypatch, costly=True), threading.Event()
    count = asked._count

    def held_up(jobs: Any, *, now: datetime) -> Any:
        is_first = not asked.computed
        found = count(jobs, now=now)
        if is_first:
            may_end.wait(60)
        return found

    monkeypatch.setattr(measured_jobs, "measured", held_up)
    first = asyncio.create_task(asked.names())
    while not asked.computed:  # noqa: ASYNC110 - threads have no event of the loop
        await asyncio.sleep(0)
    asked.put("other")
    assert await asked.names() == ["train", "other"]
    may_end.set()
    assert await first == ["train"]
    assert await asked.names() == ["train", "other"]
