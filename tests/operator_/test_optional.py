"""Optional parts of the operator: nothing of them runs until something asks for them, and then all of it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.reasons.problems import NO_HISTORY
from dovetail.kube.client import Client
from dovetail.queue.reshaping.decision import ReshapeRules
from dovetail_operator import optional
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.optional import OptionalNotifications, OptionalReshaping, load_history
from dovetail_operator.options import Options
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.state import State
from tests.background import eventually, running
from tests.core.kube.api import Answer, Api
from tests.operator_.builders import NOW, at, make_job, make_state
from tests.operator_.notifications.test_notifier import ALL, ENDED, STATUS, body, with_noted
from tests.operator_.queue.reshaping.test_decisions import gpunode

QUERIES = "GET /apis/dovetail.dev/v1beta1/historyqueries"
ANSWER = "PATCH /apis/dovetail.dev/v1beta1/namespaces/team/historyqueries/q/status"


def notifications(client: Client, *, url: str = "", events: list[Announcement]) -> OptionalNotifications:
    options = Options(namespace="gpu", notify_url=url)
    return OptionalNotifications(
        client, options=options, post=events.append, registry=CollectorRegistry(), rng=optional.random.Random(1)
    )


async def test_without_a_history_each_question_is_answered_with_the_sentence_that_none_is_kept(
    client: Client, api: Api
) -> None:
    meta = {"name": "q", "namespace": "team", "uid": "uid-q", "resourceVersion": "5"}
    question = {"metadata": meta, "spec": {}}
    api.answer(QUERIES, Answer(body={"metadata": {"resourceVersion": "5"}, "items": [question]}))
    api.answer(ANSWER, Answer(body=question))
    part = load_history(
        client,
        options=Options(namespace="gpu", history_url="none"),
        state=make_state(),
        dues=Dues(),
        registry=CollectorRegistry(),
        now=lambda: NOW,
        rng=optional.random.Random(1),
    )
    async with running(part.run()):
        await api.until(ANSWER, count=1)
    said = NO_HISTORY()
    (answered,) = api.of(ANSWER)
    assert answered.body["status"] == {
        "answered": True,
        "message": said.message,
        "details": [{"code": "NoHistory", "parameters": {}}],
    }


async def test_the_first_job_that_asks_for_notifications_loads_them(client: Client, api: Api) -> None:
    asks = make_job(notify=ALL, status=ENDED)
    api.answer(STATUS, body(with_noted("Started/1.0", "Succeeded", job=asks)))
    events = list[Announcement]()
    part = notifications(client, events=events)
    async with running(part.run()):
        part.observe(make_job(status=ENDED))
        part.drop(make_job(status=ENDED))
        assert part._notifier is None
        part.observe(asks)
        await api.until(STATUS, count=1)
    assert {"no SMTP server or webhook is configured (notify_url)" in event.message for event in events} == {True}


async def test_a_deleted_job_is_still_told_of(client: Client, api: Api) -> None:
    asks = make_job(notify=ALL, status=ENDED)
    events = list[Announcement]()
    part = notifications(client, events=events)
    part.observe(asks)
    part.drop(asks)
    async with running(part.run()):
        await eventually(lambda: len(events) == 2)
    assert api.of(STATUS) == []


async def test_a_server_that_cannot_be_used_is_refused_at_the_start(client: Client) -> None:
    with pytest.raises(ValueError, match="notify_url cannot be used: allowed are smtp://HOST:PORT"):
        notifications(client, url="ftp://mail", events=[])


def enabled(state: State) -> None:
    state.reshape = ReshapeRules(enabled=True)


def requested(state: State) -> None:
    request = {"profiles": ["7g.80gb"], "requestedTime": at(0), "job": ""}
    state.store.gpunode_changed(gpunode("1g.10gb", spec={"reshape": {"GPU-0": request}}))


@pytest.mark.parametrize("ask", [enabled, requested])
async def test_changes_of_gpus_begin_once_they_are_enabled_or_one_is_to_be_finished(
    client: Client, ask: Callable[[State], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, loaded = make_state(a=1), asyncio.Event()
    looks = 0

    async def rest(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            ask(state)

    class Loaded:
        async def run(self) -> None:
            loaded.set()

    part = OptionalReshaping(
        client, options=Options(namespace="gpu"), state=state, changed=print, post=print, now=lambda: NOW
    )
    monkeypatch.setattr(optional.asyncio, "sleep", rest)
    monkeypatch.setattr(part, "load", Loaded)
    await part.run()
    assert (looks, loaded.is_set()) == (3, True)
