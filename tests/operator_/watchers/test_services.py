"""A gang's Service that somebody deleted is made again, on a scripted API server."""

import asyncio
import json
import random
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.kube.client import Client
from dovetail.kube.retry import Backoff
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.manifests.rendezvous import service_of
from dovetail_operator.state.state import State
from dovetail_operator.watchers.services import ServiceKeeper, needs_service
from tests.background import running
from tests.core.kube.api import Answer, Api, Stream, refusal
from tests.operator_.builders import at, condition, make_child, make_job, make_state

LIST = "GET /api/v1/services"
WATCH = "WATCH /api/v1/services"
SERVICES = "/api/v1/namespaces/team/services"
SOMEBODYS = {"metadata": {"name": "x", "namespace": "team", "uid": "uid-other", "resourceVersion": "3"}}


class Rig:
    """A keeper that knows one gang at work."""

    def __init__(self, api: Api, client: Client) -> None:
        self.api, self.job = api, gang()
        self.state: State = make_state(a=2)
        self.state.store.job_changed(self.job)
        self.state.store.child_changed(make_child(self.job))
        self.events: asyncio.Queue[Announcement] = asyncio.Queue()
        self.keeper = ServiceKeeper(
            client,
            state=self.state,
            post=self.events.put_nowait,
            rng=random.Random(7),
            settle_seconds=0.0,
            backoff=Backoff(first_seconds=0.001, longest_seconds=0.001),
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        return running(self.keeper.run())


@pytest.fixture
def rig(api: Api, client: Client) -> Rig:
    return Rig(api, client)


def gang(**status: Any) -> GPUJob:
    return make_job(workers=2, status={"number": 1, "phase": "Running", **status})


def service(job: GPUJob, *, version: int = 3) -> dict[str, Any]:
    made = service_of(job)
    return {**made, "metadata": {**made["metadata"], "uid": f"uid-s{version}", "resourceVersion": str(version)}}


def page(*items: dict[str, Any]) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "5"}, "items": list(items)})


def deleted(found: dict[str, Any]) -> Stream:
    gone = {**found, "metadata": {**found["metadata"], "resourceVersion": "6"}}
    return Stream(chunks=[json.dumps({"type": "DELETED", "object": gone}).encode() + b"\n"])


async def test_a_service_that_went_while_nobody_looked_is_made_again_at_the_start(rig: Rig, api: Api) -> None:
    api.answer(LIST, page())
    api.answer(f"POST {SERVICES}", Answer(body=service(rig.job)))
    async with rig.running():
        await api.until(f"POST {SERVICES}", count=1)
    assert api.of(f"POST {SERVICES}")[0].body == service_of(rig.job)
    assert api.of(LIST)[0].query["labelSelector"] == "dovetail.dev/job"


async def test_a_service_that_is_deleted_is_made_again(rig: Rig, api: Api) -> None:
    api.answer(LIST, page(service(rig.job)))
    api.answer(WATCH, deleted(service(rig.job)))
    api.answer(f"POST {SERVICES}", Answer(body=service(rig.job, version=7)))
    async with rig.running():
        await api.until(f"POST {SERVICES}", count=1)
    assert rig.events.empty()


async def test_what_the_api_server_cannot_take_now_is_tried_again(rig: Rig, api: Api) -> None:
    api.answer(LIST, page())
    api.answer(f"POST {SERVICES}", *[refusal(503)] * 20, Answer(body=service(rig.job)))
    async with rig.running():
        await api.until(f"POST {SERVICES}", count=21)


async def test_a_strangers_service_of_that_name_is_left_alone_and_told_of_once_until_it_has_gone(
    rig: Rig, api: Api
) -> None:
    exists = refusal(409, reason="AlreadyExists")
    api.answer(LIST, page())
    api.answer(f"POST {SERVICES}", exists, exists, Answer(body=service(rig.job)))
    api.answer(f"GET {SERVICES}/x", Answer(body=SOMEBODYS), Answer(body=SOMEBODYS))
    async with rig.running():
        await api.until(f"POST {SERVICES}", count=3)
    told = rig.events.get_nowait()
    assert (told.severity, told.reason, told.about.name) == ("Warning", "ServiceMissing", "x")
    assert told.message.startswith("Its workers cannot find each other: A Service named x exists")
    assert rig.events.empty()


@pytest.mark.parametrize("how", ["it can be made", "the gang has ended"])
async def test_a_trouble_that_comes_again_is_told_again(rig: Rig, api: Api, how: str) -> None:
    """And one that is over is forgotten, however it ended."""
    exists, key = refusal(409, reason="AlreadyExists"), "team/x"

    for number in (1, 2):
        api.answer(f"POST {SERVICES}", exists)
        api.answer(f"GET {SERVICES}/x", Answer(body=SOMEBODYS))
        with pytest.raises(Exception, match="A Service named x exists"):
            await rig.keeper._keep(key)
        assert rig.events.qsize() == number
        if how == "it can be made":
            api.answer(f"POST {SERVICES}", Answer(body=service(rig.job)))
            await rig.keeper._keep(key)
        else:
            rig.state.store._children[key] = make_child(rig.job, status=ENDED)
            await rig.keeper._keep(key)
            rig.state.store._children[key] = make_child(rig.job)
        assert rig.keeper._announced == set()


async def test_at_the_start_only_what_is_missing_is_made_and_an_earlier_jobs_is_as_good_as_missing(
    rig: Rig, api: Api
) -> None:
    second = another(rig)
    earlier = make_job("y", workers=2, meta={"uid": "uid-earlier"})
    api.answer(LIST, page(service(rig.job), service(earlier)))
    api.answer(f"POST {SERVICES}", Answer(body=service(second)))
    async with rig.running():
        await api.until(f"POST {SERVICES}", count=1)
    assert [seen.body["metadata"]["name"] for seen in api.of(f"POST {SERVICES}")] == ["y"]


def another(rig: Rig) -> GPUJob:
    """Another gang at work."""
    meta = msgspec.structs.replace(rig.job.metadata, name="y", uid="uid-y")
    job = msgspec.structs.replace(rig.job, metadata=meta)
    rig.state.store.job_changed(job)
    rig.state.store.child_changed(make_child(job, uid="uid-child-y"))
    return job


async def test_of_a_job_that_has_gone_with_its_service_nothing_is_made(rig: Rig, api: Api) -> None:
    """The other gang's request, which comes behind it, shows that it was passed over."""
    second = another(rig)
    rig.state.store.job_deleted("team/x", uid="uid-x")
    api.answer(LIST, page(service(rig.job), service(second)))
    both = Stream(chunks=[*deleted(service(rig.job)).chunks, *deleted(service(second)).chunks])
    api.answer(WATCH, both)
    api.answer(f"POST {SERVICES}", Answer(body=service(second)))
    async with rig.running():
        await api.until(f"POST {SERVICES}", count=1)
    assert [seen.body["metadata"]["name"] for seen in api.of(f"POST {SERVICES}")] == ["y"]


ENDED = {"conditions": [condition("Complete")]}


@pytest.mark.parametrize(
    ("job", "child"),
    [
        (gang(), {}),
        (gang(), {"suspend": True}),
        (gang(phase="Starting"), None),
        (make_job(workers=2, minWorkers=1, status={"phase": "Running"}), {}),
    ],
)
def test_workers_that_run_or_may_run_need_it(job: GPUJob, child: dict[str, Any] | None) -> None:
    assert needs_service(job, child=None if child is None else make_child(job, **child))


@pytest.mark.parametrize(
    ("job", "child"),
    [
        (make_job(status={"phase": "Running"}), {}),
        (make_job(workers=2, distributed={"framework": "None"}, status={"phase": "Running"}), {}),
        (make_job(workers=2, managedBy="example.org/other", status={"phase": "Running"}), {}),
        (make_job(workers=2, meta={"deletionTimestamp": at(0)}, status={"phase": "Running"}), {}),
        (gang(phase="Queued"), None),
        (gang(phase="Succeeded"), {"status": ENDED}),
        (gang(), {"status": ENDED}),
        (gang(attempt=2), {}),
    ],
)
def test_whoever_has_nobody_to_find_needs_none(job: GPUJob, child: dict[str, Any] | None) -> None:
    assert not needs_service(job, child=None if child is None else make_child(job, **child))
