"""Jobs whose pods the API server refuses, of which only an event about the batch Job tells."""

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.kube.client import Client
from dovetail.kube.objects import Event, Job, Pod
from dovetail_operator.admission import decide, survey
from dovetail_operator.plans import Doubt
from dovetail_operator.refusedpods import RefusedPods, doubt_of, lacks_pods, refusal_in
from dovetail_operator.state import State
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import NOW, at, condition, make_child, make_job, make_pod, make_state

EVENTS = "GET /api/v1/namespaces/team/events"
QUOTA = "exceeded quota: two, requested: pods=1, used: pods=2, limited: pods=2"
NO_ACCOUNT = 'error looking up service account team/nope: serviceaccount "nope" not found'


def event(
    message: str, *, seconds: float = 1, about: str = "uid-child", reason: str = "FailedCreate"
) -> dict[str, Any]:
    return {
        "metadata": {"name": f"e{seconds}", "namespace": "team", "resourceVersion": "5"},
        "involvedObject": {"kind": "Job", "name": "x", "uid": about},
        "reason": reason,
        "message": message,
        "lastTimestamp": at(seconds),
    }


def started(**spec: Any) -> Job:
    return make_child(make_job(), status={"startTime": at(0)}, **spec)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([], ""),
        ([event(f'Error creating: pods "x-0-abcde" is forbidden: {QUOTA}')], f"forbidden: {QUOTA}"),
        (
            [event(f'(combined from similar events): Error creating: pods "x-0-abcde" is forbidden: {NO_ACCOUNT}')],
            f"forbidden: {NO_ACCOUNT}",
        ),
        ([event("Error creating: old", seconds=1), event("Error creating: new", seconds=2)], "new"),
        ([event("Error creating: of the start before", seconds=-1)], ""),
        ([event("Created pod: x-0", reason="SuccessfulCreate"), event("Error creating: y", about="uid-y")], ""),
        ([event("Error creating: when?") | {"lastTimestamp": None}], ""),
    ],
    ids=["nothing", "a quota", "several", "the newest", "an earlier start", "something else", "no time"],
)
def test_the_words_are_those_of_the_newest_refusal_since_the_start(events: list[dict[str, Any]], says: str) -> None:
    assert refusal_in([msgspec.convert(each, Event) for each in events], child=started()) == says


def test_of_a_batch_job_that_has_not_begun_nothing_is_told() -> None:
    found = [msgspec.convert(event("Error creating: x"), Event)]
    assert refusal_in(found, child=make_child(make_job())) == ""


@pytest.mark.parametrize(
    ("child", "pods", "lacks"),
    [
        (None, (), False),
        (started(completions=2), (), True),
        (started(completions=2), (make_pod(0),), True),
        (started(completions=2), (make_pod(0), make_pod(1, phase="Pending", node="")), False),
        (started(completions=1), (), True),
        (started(completions=2, suspend=True), (), False),
        (make_child(make_job(), completions=2, status={"startTime": at(0), "succeeded": 2}), (), False),
        (make_child(make_job(), completions=2, status={"conditions": [condition("FailureTarget")]}), (), False),
    ],
    ids=["no Job", "none", "a part", "all", "of fewer workers", "suspended", "done", "failing"],
)
def test_a_job_at_work_lacks_the_pods_that_are_not_there(child: Job | None, pods: tuple[Pod, ...], lacks: bool) -> None:
    assert lacks_pods(make_job(workers=2), child, pods) == lacks


def test_a_job_of_kueue_is_left_to_kueue() -> None:
    job = make_job(workers=2, meta={"labels": {"kueue.x-k8s.io/queue-name": "team"}})
    assert not lacks_pods(job, started(completions=2), ())


def test_a_plan_whose_pods_are_refused_rests_longer_each_time() -> None:
    doubts = [doubt_of(make_job(status={"plans": plans}), words=NO_ACCOUNT) for plans in (0, 1, 2, 3, 90)]
    assert [doubt.rest_seconds for doubt in doubts] == [30, 30, 60, 120, 300]
    assert {doubt.reason for doubt in doubts} == {"Invalid"}
    assert doubt_of(make_job(), words=QUOTA).reason == "Quota"


class Rig:
    """A job of three workers of which two have a pod, and a clock that stands still until it is moved."""

    def __init__(self, client: Client) -> None:
        self.state: State = make_state(a=4)
        self.seconds, self.looks = 0.0, 0
        self.refused = RefusedPods(client, self.state, look_again=self._looked, clock=lambda: self.seconds)
        placement = {"generation": 1, "nodes": [{"name": "a", "workers": 3}], "worker": {"request": "1"}}
        job = make_job(workers=3, status={"number": 1, "plans": 1, "placement": placement})
        self.state.put_job(job)
        self.state.put_child(make_child(job, completions=3, status={"startTime": at(0)}))
        for worker in range(2):
            self.state.pod_changed("ADDED", make_pod(worker, node="a", devices=1))

    def _looked(self) -> None:
        self.looks += 1

    async def look(self, *, after: float) -> None:
        seen = self.state.observe("team/x", now=NOW)
        assert seen is not None
        self.refused.watch(seen)
        self.seconds += after
        await self.refused.look()

    def doubts(self) -> dict[str, Doubt]:
        cycle = survey(self.state, now=NOW)
        list(decide(self.state, cycle))
        return cycle.doubts


async def test_a_gang_of_which_some_pods_are_refused_is_doubted_in_the_api_servers_words(
    client: Client, api: Api
) -> None:
    rig = Rig(client)
    message = f'Error creating: pods "x-2-abcde" is forbidden: {QUOTA}'
    api.answer(EVENTS, Answer(body={"metadata": {"resourceVersion": "5"}, "items": [event(message)]}))
    await rig.look(after=0)
    assert rig.doubts() == {}
    await rig.look(after=5)
    doubt = rig.doubts()["uid-x"]
    assert (doubt.reason, doubt.words) == ("Quota", f"the API server refuses its pods: forbidden: {QUOTA}")
    assert rig.looks == 1
    # Once it has all its pods nothing is doubted any more.
    rig.state.pod_changed("ADDED", make_pod(2, node="a", devices=1))
    await rig.look(after=60)
    assert rig.doubts() == {}


async def test_whoever_may_not_read_events_goes_on_without(client: Client, api: Api) -> None:
    rig = Rig(client)
    api.answer(EVENTS, refusal(403))
    await rig.look(after=0)
    await rig.look(after=5)
    assert rig.doubts() == {}


async def test_a_job_that_is_gone_is_asked_about_no_more(client: Client, api: Api) -> None:
    rig = Rig(client)
    await rig.look(after=0)
    rig.state.drop_job("team/x", uid="uid-x")
    rig.seconds += 5
    await asyncio.wait_for(rig.refused.look(), timeout=5)
    assert api.of(EVENTS) == []


async def test_what_refused_the_pods_of_one_run_does_not_stop_the_next(client: Client, api: Api) -> None:
    rig = Rig(client)
    message = f'Error creating: pods "x-2-abcde" is forbidden: {QUOTA}'
    api.answer(EVENTS, Answer(body={"metadata": {"resourceVersion": "5"}, "items": [event(message)]}))
    await rig.look(after=5)
    await rig.look(after=0)
    assert list(rig.state.refused_pods) == ["uid-x"]
    job = rig.state.jobs["team/x"]
    taken_back = make_child(job, completions=3, suspend=True)
    meta = msgspec.structs.replace(taken_back.metadata, resource_version="21")
    rig.state.put_child(msgspec.structs.replace(taken_back, metadata=meta))
    await rig.look(after=0)
    assert rig.state.refused_pods == {}


async def test_of_a_job_that_goes_while_it_is_asked_about_nothing_is_kept(client: Client, api: Api) -> None:
    rig, released = Rig(client), asyncio.Event()
    items = [event(f'Error creating: pods "x-2-abcde" is forbidden: {QUOTA}')]
    api.answer(EVENTS, Answer(body={"metadata": {"resourceVersion": "5"}, "items": items}, released=released))
    look = asyncio.create_task(rig.look(after=5))
    await api.until(EVENTS, count=1)
    rig.state.drop_job("team/x", uid="uid-x")
    released.set()
    await look
    assert (rig.state.refused_pods, rig.looks) == ({}, 0)
