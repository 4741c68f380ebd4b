import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.builtin import Severity
from dovetail.api.meta import ObjectMeta
from dovetail.kube.client import Client
from dovetail.kube.retry import Backoff
from dovetail_operator.events import recorder
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.events.recorder import Poster
from tests.core.kube.api import Answer, Api, refusal

POST = "POST /api/v1/namespaces/team/events"
AT = datetime(2026, 11, 22, 8, 30, 0, 250_000, tzinfo=UTC)
IN_A_RUSH = 0.001


class Desk:
    """A poster, and whether it is in a rush."""

    def __init__(self, client: Client, api: Api) -> None:
        self.api = api
        self.in_a_rush = False
        self.registry = CollectorRegistry()
        self.poster = Poster(
            client,
            in_a_rush=lambda: self.in_a_rush,
            registry=self.registry,
            now=lambda: AT,
            rng=random.Random(7),
            rest_seconds_in_a_rush=IN_A_RUSH,
        )

    def count(self, outcome: str) -> float | None:
        return self.registry.get_sample_value("dovetail_events_total", {"outcome": outcome})

    @property
    def posted(self) -> list[tuple[str, str]]:
        return [(seen.body["involvedObject"]["name"], seen.body["reason"]) for seen in self.api.of(POST)]

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.poster.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def desk(client: Client, api: Api) -> Desk:
    return Desk(client, api)


def news(name: str = "x", *, reason: str = "Running", severity: Severity = "Normal") -> Announcement:
    about = ObjectMeta(name=name, namespace="team", uid=f"uid-{name}")
    return Announcement(about=about, severity=severity, reason=reason, message=f"{reason} on a")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a request arrives over HTTP
            await asyncio.sleep(0.001)


async def test_an_event_tells_of_the_job_what_has_happened_and_when(desk: Desk, api: Api) -> None:
    api.answer(POST, Answer(body={}))
    desk.poster.post(news())
    async with desk.at_work():
        await until(lambda: desk.count("posted") == 1)
    body = api.of(POST)[0].body
    assert body["involvedObject"] == {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "GPUJob",
        "name": "x",
        "namespace": "team",
        "uid": "uid-x",
    }
    assert (body["type"], body["reason"], body["message"]) == ("Normal", "Running", "Running on a")
    assert body["firstTimestamp"] == body["lastTimestamp"] == "2026-11-22T08:30:00Z"
    # By which events of one second stand in their order.
    assert body["eventTime"] == "2026-11-22T08:30:00.250000Z"
    assert body["source"] == {"component": "dovetail-operator"}


async def test_while_it_waits_a_normal_event_gives_way_to_the_next_and_a_warning_does_not(desk: Desk, api: Api) -> None:
    api.answer(POST, *[Answer(body={})] * 4)
    desk.in_a_rush = True
    for each in (
        news(reason="Starting"),
        news(reason="BadCard", severity="Warning"),
        news("y", reason="Starting"),
        news(reason="Running"),
        news(reason="OverPromise", severity="Warning"),
    ):
        desk.poster.post(each)
    async with desk.at_work():
        await until(lambda: desk.count("posted") == 4)
    assert sorted(desk.posted) == [("x", "BadCard"), ("x", "OverPromise"), ("x", "Running"), ("y", "Starting")]
    assert desk.count("replaced") == 1


async def test_in_a_rush_events_come_slowly_and_a_moment_longer(desk: Desk) -> None:
    calm = desk.poster.rest_seconds(now=100.0)
    desk.in_a_rush = True
    assert desk.poster.rest_seconds(now=100.0) == IN_A_RUSH
    desk.in_a_rush = False
    assert desk.poster.rest_seconds(now=100.9) == IN_A_RUSH
    assert desk.poster.rest_seconds(now=101.1) == calm != IN_A_RUSH


@pytest.mark.parametrize(("status", "posted"), [(200, 2), (503, 1)])
async def test_newer_news_that_comes_while_an_event_is_sent_is_posted(
    desk: Desk, api: Api, monkeypatch: pytest.MonkeyPatch, status: int, posted: int
) -> None:
    """Where sending the older one fails, that one is not tried again."""
    monkeypatch.setattr(recorder, "_BACKOFF", Backoff(first_seconds=0.001))
    released = asyncio.Event()
    api.answer(POST, Answer(status=status, body={}, released=released), Answer(body={}))
    async with desk.at_work():
        desk.poster.post(news(reason="Starting"))
        await until(lambda: len(api.of(POST)) == 1)
        desk.poster.post(news(reason="Running"))
        released.set()
        await until(lambda: desk.count("posted") == posted)
    assert desk.posted == [("x", "Starting"), ("x", "Running")]
    assert not desk.poster._waiting


async def test_an_event_is_tried_again_when_the_trouble_passes(
    desk: Desk, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_BACKOFF", Backoff(first_seconds=0.001))
    api.answer(POST, refusal(503), refusal(429), Answer(body={}))
    desk.poster.post(news())
    async with desk.at_work():
        await until(lambda: desk.count("posted") == 1)
    assert desk.count("dropped") == 0


async def test_an_event_that_cannot_be_posted_keeps_nobody_waiting(
    desk: Desk, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_BACKOFF", Backoff(first_seconds=0.001))
    # Of a namespace that is going; then an API server that is never well.
    api.answer(POST, refusal(403), Answer(body={}), *[refusal(500)] * recorder._MOST_TRIES)
    async with desk.at_work():
        desk.poster.post(news("a"))
        await until(lambda: desk.count("dropped") == 1)
        desk.poster.post(news("b"))
        await until(lambda: desk.count("posted") == 1)
        desk.poster.post(news("c"))
        await until(lambda: desk.count("dropped") == 2)
    assert [name for name, _ in desk.posted] == ["a", "b", *["c"] * recorder._MOST_TRIES]


async def test_of_too_many_events_the_oldest_are_dropped(desk: Desk, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_MOST_WAITING", 2)
    api.answer(POST, *[Answer(body={})] * 2)
    for name in "abc":
        desk.poster.post(news(name))
    assert desk.count("dropped") == 1
    async with desk.at_work():
        await until(lambda: desk.count("posted") == 2)
    assert sorted(name for name, _ in desk.posted) == ["b", "c"]
