"""What workers print: whose lines, for whom, and how an answer that stays open ends."""

import asyncio
from contextlib import AsyncExitStack

import aiohttp
import pytest

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail_gateway.access.reviews import USER_REVIEWS
from dovetail_gateway.app import Options
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.open_streams import MOST_STREAMS, Times
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_bound_pod, make_job
from tests.gateway.served import Face, serving

LOGS = "/api/v3/jobs/red/train/logs"
RED = {"Authorization": "Bearer red-token"}
REVIEWED_OFTEN = Options(rates=None, stream_times=Times(review_seconds=0.05))


async def test_the_lines_come_with_the_callers_token_as_text_that_no_browser_runs(
    api: GatewayApiServer, face: Face
) -> None:
    found = await face.get(LOGS, token="red-token")
    assert (found.status, found.text) == (200, "lines of train-0\n")
    assert (found.headers["Content-Type"], found.headers["X-Content-Type-Options"]) == (
        "text/plain; charset=utf-8",
        "nosniff",
    )
    assert api.requests[-1] == ("rita", "get", "red/train-0")


async def test_the_last_lines_of_the_first_container_are_asked_for(api: GatewayApiServer, face: Face) -> None:
    await face.get(f"{LOGS}?tail=5", token="red-token")
    assert api.log_queries == [{"container": "main", "tailLines": "5", "follow": "false"}]


async def test_a_log_is_followed_until_the_worker_ends(api: GatewayApiServer, face: Face) -> None:
    async with asyncio.timeout(20), face.session.get(f"{face.url}{LOGS}?follow=true", headers=RED) as response:
        assert await response.content.readline() == b"lines of train-0\n"
        api.log_ends.set()
        assert await response.content.read() == b"the last line\n"


async def test_each_worker_has_its_own_log_and_the_newest_pod_counts(api: GatewayApiServer, face: Face) -> None:
    api.put("gpujobs", make_job("two", namespace="red", number=2, workers=2))
    for name, worker, hour in (("two-0", 0, 1), ("two-1-old", 1, 1), ("two-1", 1, 3), ("two-1-z", 1, 2)):
        pod = make_bound_pod(name, namespace="red", job="two", number=2, device="a-3")
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = str(worker)
        pod["metadata"]["creationTimestamp"] = f"2026-11-01T0{hour}:00:00Z"
        api.put("pods", pod)
    await face.until_like(api)
    found = await face.get("/api/v3/jobs/red/two/logs?worker=1", token="red-token")
    assert found.text == "lines of two-1\n"
    wrong = await face.get("/api/v3/jobs/red/two/logs?worker=2", token="red-token")
    assert (wrong.status, wrong.json["detail"]) == (422, "worker=2: this job has 2, counted from 0")


async def test_several_workers_come_as_one_text_of_whole_lines(api: GatewayApiServer, face: Face) -> None:
    api.put("gpujobs", make_job("three", namespace="red", number=2, workers=3))
    for worker in (0, 2):
        pod = make_bound_pod(f"three-{worker}", namespace="red", job="three", number=2, device="a-3")
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = str(worker)
        api.put("pods", pod)
    path = "/api/v3/jobs/red/three/logs?workers=64"
    async with asyncio.timeout(20):
        while "2│" not in (found := await face.get(path, token="red-token")).text:
            pass
    # Worker 1 has no pod yet.
    assert sorted(found.text.splitlines()) == ["0│ lines of three-0", "2│ lines of three-2"]
    api.log_refusal = (400, "container is waiting to start")
    found = await face.get(path, token="red-token")
    assert sorted(found.text.splitlines()) == [f"{worker}│ no log: container is waiting to start" for worker in (0, 2)]
    assert (await face.get(f"{LOGS}?workers=65", token="red-token")).status == 422


async def test_a_hidden_job_has_no_log_and_a_reader_of_jobs_may_not_read_logs(face: Face) -> None:
    hidden = await face.get("/api/v3/jobs/canaryns/canaryjob/logs", token="red-token")
    none = await face.get("/api/v3/jobs/canaryns/none/logs", token="red-token")
    assert (hidden.status, none.status) == (404, 404)
    assert (await face.get(LOGS, token="reader-token")).status == 403


async def test_a_job_that_waits_has_no_log_and_the_answer_says_why(api: GatewayApiServer, face: Face) -> None:
    status = {"phase": "Queued", "number": 3, "reason": "Resources", "message": "Need 8 GPUs, only 6 available"}
    api.put("gpujobs", make_job("waits", namespace="red", number=3, status=status))
    async with asyncio.timeout(20):
        while (found := await face.get("/api/v3/jobs/red/waits/logs", token="red-token")).status == 404:
            pass
    expected = "job 3 has no worker now, and so no log: Queued (Resources: Need 8 GPUs, only 6 available)"
    assert (found.status, found.json["reason"], found.json["detail"]) == (409, "NoLog", expected)


async def test_a_node_without_a_kubelet_keeps_no_log(api: GatewayApiServer, face: Face) -> None:
    api.log_refusal = (500, "no preferred addresses found; known addresses: []")
    found = await face.get(LOGS, token="red-token")
    assert (found.status, found.json["reason"], "simulated nodes" in found.json["detail"]) == (409, "NoLog", True)


async def test_what_the_kubelet_refuses_comes_with_its_sentence(api: GatewayApiServer, face: Face) -> None:
    api.log_refusal = (400, 'container "main" is waiting to start: ContainerCreating')
    found = await face.get(LOGS, token="red-token")
    assert (found.status, "waiting to start" in found.json["detail"]) == (400, True)


@pytest.mark.parametrize("rights", ["end", "cannot be reviewed"])
async def test_a_followed_log_breaks_off_when_the_right_ends(api: GatewayApiServer, rights: str) -> None:
    """Once its text has begun, nothing else can follow: a sentence would be taken for a line of the worker."""
    async with (
        asyncio.timeout(20),
        serving(api, options=REVIEWED_OFTEN) as face,
        face.session.get(f"{face.url}{LOGS}?follow=true", headers=RED) as response,
    ):
        await response.content.readline()
        if rights == "end":
            api.users["red-token"].verbs["red"] = {"list"}
        else:
            for _ in range(2 * USER_REVIEWS.burst):
                face.made.reviews._budgets.spend("rita")
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()


async def test_the_logs_of_one_token_count_among_its_streams(api: GatewayApiServer, face: Face) -> None:
    async with AsyncExitStack() as opened:
        for _ in range(MOST_STREAMS):
            await opened.enter_async_context(face.session.get(f"{face.url}{LOGS}?follow=true", headers=RED))
        found = await face.get(LOGS, token="red-token")
    assert (found.status, found.json["reason"]) == (429, "TooManyStreams")


async def test_a_stopping_gateway_ends_a_followed_log(api: GatewayApiServer) -> None:
    async with (
        serving(api) as face,
        face.session.get(f"{face.url}{LOGS}?follow=true", headers=RED) as response,
    ):
        await response.content.readline()
        async with asyncio.timeout(4):
            await face.made.application.shutdown()
            with pytest.raises(aiohttp.ClientError):
                await response.content.read()


def put_workers(api: GatewayApiServer, job: str, *, workers: int, pods: list[int]) -> None:
    api.put("gpujobs", make_job(job, namespace="red", number=2, workers=workers))
    for worker in pods:
        pod = make_bound_pod(f"{job}-{worker}", namespace="red", job=job, number=2, device="a-3")
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = str(worker)
        api.put("pods", pod)


async def test_several_workers_are_counted_from_the_one_that_is_named(api: GatewayApiServer, face: Face) -> None:
    put_workers(api, "five", workers=5, pods=[0, 1, 2, 3, 4])
    await face.until_like(api)
    for query, workers in (("worker=2&workers=2", [2, 3]), ("worker=3&workers=9", [3, 4]), ("workers=3", [0, 1, 2])):
        found = await face.get(f"/api/v3/jobs/red/five/logs?{query}", token="red-token")
        assert sorted(found.text.splitlines()) == [f"{each}│ lines of five-{each}" for each in workers]


async def test_the_pods_of_many_workers_are_looked_up_once(
    api: GatewayApiServer, face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, pods_of = list[str](), ClusterCache.pods_of

    def counted(cache: ClusterCache, job: GPUJob) -> list[Pod]:
        asked.append(job.metadata.name)
        return pods_of(cache, job)

    put_workers(api, "many", workers=64, pods=[4, 50])
    await face.until_like(api)
    monkeypatch.setattr(ClusterCache, "pods_of", counted)
    found = await face.get("/api/v3/jobs/red/many/logs?workers=64", token="red-token")
    assert sorted(found.text.splitlines()) == ["4│ lines of many-4", "50│ lines of many-50"]
    assert asked == ["many"]


@pytest.mark.parametrize("there", [[1, 3], [3], []])
async def test_of_several_workers_those_that_have_a_pod_are_read(
    api: GatewayApiServer, face: Face, there: list[int]
) -> None:
    """The first one may be the one whose pod is gone."""
    put_workers(api, "four", workers=4, pods=there)
    await face.until_like(api)
    found = await face.get("/api/v3/jobs/red/four/logs?workers=4", token="red-token")
    if there:
        assert sorted(found.text.splitlines()) == [f"{each}│ lines of four-{each}" for each in there]
    else:
        assert (found.status, found.json["reason"]) == (409, "NoLog")
    alone = await face.get("/api/v3/jobs/red/four/logs?worker=0", token="red-token")
    assert (alone.status, alone.json["reason"]) == (409, "NoLog")
    beyond = await face.get("/api/v3/jobs/red/four/logs?worker=4&workers=2", token="red-token")
    assert (beyond.status, beyond.json["detail"]) == (422, "worker=4: this job has 4, counted from 0")


async def test_of_several_workers_with_one_pod_its_refusal_is_the_answer(api: GatewayApiServer, face: Face) -> None:
    put_workers(api, "two", workers=2, pods=[0])
    await face.until_like(api)
    api.log_refusal = (400, "container is waiting to start")
    found = await face.get("/api/v3/jobs/red/two/logs?workers=2", token="red-token")
    assert (found.status, found.json["detail"]) == (400, "container is waiting to start")


async def test_a_token_that_is_deleted_ends_what_it_follows_at_the_next_review(api: GatewayApiServer) -> None:
    async with (
        asyncio.timeout(20),
        serving(api, options=REVIEWED_OFTEN) as face,
        face.session.get(f"{face.url}{LOGS}?follow=true", headers=RED) as response,
    ):
        await response.content.readline()
        del api.users["red-token"]
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()


@pytest.mark.parametrize(("query", "asked"), [("", None), ("?tail=0", "0"), ("?tail=7", "7")])
async def test_as_many_last_lines_are_asked_for_as_the_query_says(
    api: GatewayApiServer, face: Face, query: str, asked: str | None
) -> None:
    await face.get(f"{LOGS}{query}", token="red-token")
    assert [each.get("tailLines") for each in api.log_queries] == [asked]


@pytest.mark.parametrize("follow", ["false", "true"])
@pytest.mark.parametrize(("query", "breaks"), [("worker=0", "two-0"), ("workers=2", "two-0"), ("workers=2", "two-1")])
async def test_a_log_that_breaks_off_is_not_sent_as_if_it_were_whole(
    api: GatewayApiServer, face: Face, query: str, breaks: str, follow: str
) -> None:
    put_workers(api, "two", workers=2, pods=[0, 1])
    await face.until_like(api)
    path = f"{face.url}/api/v3/jobs/red/two/logs?{query}&follow={follow}"
    api.log_breaks.add(breaks)
    async with asyncio.timeout(20), face.session.get(path, headers=RED) as response:
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()
    api.log_breaks.clear()
    api.log_ends.set()
    async with asyncio.timeout(20), face.session.get(path, headers=RED) as response:
        assert b"lines of two-0" in await response.content.read()
