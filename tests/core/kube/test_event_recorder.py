"""Events as they reach the API server, one at a time, whatever comes meanwhile."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from dovetail.api.builtin import ObjectReference, Severity
from dovetail.kube.client import Client
from dovetail.kube.event_correlator import EventLimits
from dovetail.kube.event_recorder import EventRecorder, Outcome, Pace
from dovetail.kube.retry import Backoff
from tests.background import eventually
from tests.core.kube.api import Answer, Api, refusal

POST = "POST /api/v1/namespaces/team/events"
POST_OF_NODES = "POST /api/v1/namespaces/default/events"
AT = datetime(2026, 11, 22, 8, 30, 0, 250_000, tzinfo=UTC)
NODE = ObjectReference(api_version="v1", kind="Node", name="n", uid="n")
PACE = Pace(pause_seconds=0.0, busy_pause_seconds=0.001, max_tries_per_event=5, backoff=Backoff(first_seconds=0.001))


class Desk:
    """A recorder at work, its clocks, and what came of its events."""

    def __init__(self, client: Client, api: Api, *, pace: Pace = PACE, limits: EventLimits | None = None) -> None:
        self.api = api
        self.busy = False
        self.seconds = 0.0
        self.outcomes: list[Outcome] = []
        self.recorder = EventRecorder(
            client,
            component="dovetail-test",
            pace=pace,
            limits=limits or EventLimits(),
            is_busy=lambda: self.busy,
            count=self.outcomes.append,
            now=lambda: AT + timedelta(seconds=self.seconds),
            clock=lambda: self.seconds,
            rng=random.Random(7),
        )

    def record(
        self,
        name: str = "x",
        *,
        reason: str = "Running",
        message: str = "on a",
        severity: Severity = "Normal",
        adds: bool = False,
    ) -> None:
        about = ObjectReference(api_version="v1", kind="Pod", name=name, namespace="team", uid=f"uid-{name}")
        self.recorder.event(about, severity=severity, reason=reason, message=message, adds=adds)

    def count(self, outcome: Outcome) -> int:
        return self.outcomes.count(outcome)

    @property
    def posted(self) -> list[tuple[str, str]]:
        return [(seen.body["involvedObject"]["name"], seen.body["reason"]) for seen in self.api.of(POST)]

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.recorder.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def desk(client: Client, api: Api) -> Desk:
    return Desk(client, api)


async def test_an_event_names_its_object_what_happened_and_when(desk: Desk, api: Api) -> None:
    api.answer(POST, Answer(body={}))
    desk.record()
    async with desk.at_work():
        await eventually(lambda: desk.count("posted") == 1)
    body = api.of(POST)[0].body
    assert body["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "x",
        "namespace": "team",
        "uid": "uid-x",
    }
    assert (body["type"], body["reason"], body["message"], body["count"]) == ("Normal", "Running", "on a", 1)
    assert body["firstTimestamp"] == body["lastTimestamp"] == "2026-11-22T08:30:00Z"
    # It orders the events of one second.
    assert body["eventTime"] == "2026-11-22T08:30:00.250000Z"
    assert body["source"] == {"component": "dovetail-test"}
    assert body["reportingInstance"] == "dovetail-test"


async def test_an_event_about_an_object_without_a_namespace_is_where_kubectl_looks_for_it(desk: Desk, api: Api) -> None:
    api.answer(POST_OF_NODES, Answer(body={}))
    desk.recorder.event(NODE, severity="Warning", reason="R", message="m", host="n")
    async with desk.at_work():
        await eventually(lambda: desk.count("posted") == 1)
    body = api.of(POST_OF_NODES)[0].body
    assert body["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}
    assert body["source"] == {"component": "dovetail-test", "host": "n"}
    assert body["reportingInstance"] == "n"


async def test_a_long_message_and_a_long_name_are_cut_to_what_the_api_server_takes(desk: Desk, api: Api) -> None:
    api.answer(POST, Answer(body={}))
    desk.record("x" * 200, message="m" * 5000)
    async with desk.at_work():
        await eventually(lambda: desk.count("posted") == 1)
    body = api.of(POST)[0].body
    assert len(body["message"]) == 1024
    assert body["metadata"]["generateName"] == "x" * 50 + "."


async def test_while_it_waits_a_normal_event_is_replaced_by_the_next_and_a_warning_is_not(desk: Desk, api: Api) -> None:
    api.answer(POST, *[Answer(body={})] * 5)
    desk.record(reason="Starting")
    desk.record(reason="BadCard", severity="Warning")
    desk.record("y", reason="Starting")
    desk.record(reason="Running")
    desk.record(reason="OverPromise", severity="Warning")
    desk.record(reason="OverPromise", message="again", severity="Warning")
    async with desk.at_work():
        await eventually(lambda: desk.count("posted") == 5)
    assert sorted(desk.posted) == [
        ("x", "BadCard"), ("x", "OverPromise"), ("x", "OverPromise"), ("x", "Running"), ("y", "Starting"),
    ]  # fmt: skip
    assert desk.count("replaced") == 1
    assert {each.body["count"] for each in api.of(POST)} == {1}, "what replaces another is no repeat of it"


async def test_while_it_waits_an_event_that_adds_to_others_is_not_replaced_and_replaces_none(
    desk: Desk, api: Api
) -> None:
    api.answer(POST, Answer(body={}), Answer(body={}))
    desk.record(reason="Resources")
    desk.record(reason="StartEstimated", adds=True)
    desk.record(reason="Reserved")
    async with desk.at_work():
        await eventually(lambda: desk.count("posted") == 2)
    assert sorted(desk.posted) == [("x", "Reserved"), ("x", "StartEstimated")]
    assert desk.count("replaced") == 1


async def test_repeats_of_a_waiting_event_are_one_event_with_their_count(desk: Desk, api: Api) -> None:
    api.answer(POST, Answer(body={}))
    for second in (0, 1, 60):
        desk.seconds = second
        desk.record(severity="Warning")
    async with desk.at_work():
        await eventually(lambda: desk.count("posted") == 1)
    body = api.of(POST)[0].body
    assert (body["count"], body["firstTimestamp"], body["lastTimestamp"]) == (
        3, "2026-11-22T08:30:00Z", "2026-11-22T08:31:00Z",
    )  # fmt: skip


async def test_repeats_of_a_sent_event_are_not_sent_within_the_interval(client: Client, api: Api) -> None:
    desk = Desk(client, api, limits=EventLimits(max_interval_seconds=300))
    api.answer(POST, *[Answer(body={})] * 2)
    async with desk.at_work():
        desk.record()
        await eventually(lambda: desk.count("posted") == 1)
        for desk.seconds in (100, 200, 300):
            desk.record()
        await eventually(lambda: desk.count("posted") == 2)
    assert desk.count("replaced") == 2
    assert [seen.body["count"] for seen in api.of(POST)] == [1, 3]


async def test_a_flood_about_one_object_is_dropped_beyond_its_burst(client: Client, api: Api) -> None:
    desk = Desk(client, api, limits=EventLimits(burst_size=2))
    api.answer(POST, *[Answer(body={})] * 3)
    for number in range(10):
        desk.record(message=str(number), severity="Warning")
    desk.record("y")
    async with desk.at_work():
        await eventually(lambda: desk.count("posted") == 3)
    assert desk.count("dropped") == 8
    assert sorted(desk.posted) == [("x", "Running"), ("x", "Running"), ("y", "Running")]


async def test_while_the_process_is_busy_events_come_slowly_and_a_moment_longer(client: Client, api: Api) -> None:
    desk = Desk(client, api, pace=Pace(pause_seconds=0.02, busy_pause_seconds=0.2, calm_seconds=1.0))
    assert desk.recorder.pause_seconds() == 0.02
    desk.busy, desk.seconds = True, 100.0
    assert desk.recorder.pause_seconds() == 0.2
    desk.busy, desk.seconds = False, 100.9
    assert desk.recorder.pause_seconds() == 0.2
    desk.seconds = 101.1
    assert desk.recorder.pause_seconds() == 0.02


@pytest.mark.parametrize(("status", "posted"), [(200, 2), (503, 1)])
async def test_newer_news_that_comes_while_an_event_is_sent_is_posted(
    desk: Desk, api: Api, status: int, posted: int
) -> None:
    """Where sending the older one fails, that one is not tried again."""
    released = asyncio.Event()
    api.answer(POST, Answer(status=status, body={}, released=released), Answer(body={}))
    async with desk.at_work():
        desk.record(reason="Starting")
        await eventually(lambda: len(api.of(POST)) == 1)
        desk.record(reason="Running")
        released.set()
        await eventually(lambda: desk.count("posted") == posted)
    assert desk.posted == [("x", "Starting"), ("x", "Running")]
    assert not desk.recorder._waiting


async def test_an_event_is_tried_again_when_the_trouble_passes(desk: Desk, api: Api) -> None:
    api.answer(POST, refusal(503), refusal(429), Answer(body={}))
    desk.record()
    async with desk.at_work():
        await eventually(lambda: desk.count("posted") == 1)
    assert desk.count("dropped") == 0


async def test_an_event_that_cannot_be_posted_delays_no_other(desk: Desk, api: Api) -> None:
    # Of a namespace that is going; then an API server that is never well.
    api.answer(POST, refusal(403), Answer(body={}), *[refusal(500)] * PACE.max_tries_per_event)
    async with desk.at_work():
        desk.record("a")
        await eventually(lambda: desk.count("dropped") == 1)
        desk.record("b")
        await eventually(lambda: desk.count("posted") == 1)
        desk.record("c")
        await eventually(lambda: desk.count("dropped") == 2)
    assert [name for name, _ in desk.posted] == ["a", "b", *["c"] * PACE.max_tries_per_event]


async def test_of_too_many_waiting_events_the_oldest_are_dropped(client: Client, api: Api) -> None:
    desk = Desk(client, api, pace=Pace(pause_seconds=0.0, max_queued_events=2))
    api.answer(POST, *[Answer(body={})] * 2)
    for name in "abc":
        desk.record(name)
    assert desk.count("dropped") == 1
    async with desk.at_work():
        await eventually(lambda: desk.count("posted") == 2)
    assert sorted(name for name, _ in desk.posted) == ["b", "c"]


@pytest.mark.parametrize("severity", ["Normal", "Warning"])
async def test_objects_of_one_name_have_their_own_events_and_their_own_budgets(
    client: Client, api: Api, severity: Severity
) -> None:
    """In two namespaces, of two kinds, and one after the other."""
    desk = Desk(client, api, limits=EventLimits(burst_size=1))
    others = [("Pod", "team", "u1"), ("Pod", "lab", "u2"), ("Job", "team", "u3"), ("Pod", "team", "u4")]
    for namespace in ("team", "lab"):
        api.answer(f"POST /api/v1/namespaces/{namespace}/events", *[Answer(body={})] * 3)
    for kind, namespace, uid in others:
        about = ObjectReference(api_version="v1", kind=kind, name="x", namespace=namespace, uid=uid)
        desk.recorder.event(about, severity=severity, reason="R", message="m")
    async with desk.at_work():
        await eventually(lambda: desk.count("posted") == 4)
    assert sorted(seen.body["involvedObject"]["uid"] for seen in api.seen) == ["u1", "u2", "u3", "u4"]
    assert {(seen.path, seen.body["involvedObject"]["namespace"]) for seen in api.seen} == {
        (f"/api/v1/namespaces/{namespace}/events", namespace) for namespace in ("team", "lab")
    }
