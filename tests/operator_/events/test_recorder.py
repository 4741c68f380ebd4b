"""Announcements become events about GPUJobs, and a metric counts what comes of them."""

import asyncio
import random
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from dovetail.api.meta import ObjectMeta
from dovetail.api.reasons.clause import Sentence
from dovetail.kube.client import Client
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.events.recorder import JobEvents
from tests.background import running
from tests.core.kube.api import Answer, Api, refusal

POST = "POST /api/v1/namespaces/team/events"


def news(name: str) -> Announcement:
    about = ObjectMeta(name=name, namespace="team", uid=f"uid-{name}", labels={"large": "x" * 1000})
    return Announcement(about=about, severity="Normal", why=Sentence(reason="Running", message="Running on a"))


async def test_an_announcement_is_an_event_about_its_job_and_is_counted(client: Client, api: Api) -> None:
    registry = CollectorRegistry()
    events = JobEvents(
        client,
        is_busy=lambda: False,
        registry=registry,
        now=lambda: datetime(2026, 11, 22, tzinfo=UTC),
        rng=random.Random(7),
    )
    assert registry.get_sample_value("dovetail_events_total", {"outcome": "replaced"}) == 0
    api.answer(POST, Answer(body={}), refusal(403))
    events.post(news("x"))
    events.post(news("y"))
    async with running(events.run()), asyncio.timeout(20):
        while not registry.get_sample_value("dovetail_events_total", {"outcome": "dropped"}):  # noqa: ASYNC110 - HTTP
            await asyncio.sleep(0.001)
    assert registry.get_sample_value("dovetail_events_total", {"outcome": "posted"}) == 1
    assert api.of(POST)[0].body["involvedObject"] == {
        "apiVersion": "dovetail.dev/v1beta1",
        "kind": "GPUJob",
        "name": "x",
        "namespace": "team",
        "uid": "uid-x",
    }
    assert api.of(POST)[0].body["source"] == {"component": "dovetail-operator"}
