"""A gateway that is away, busy or something else: one sentence with what was tried."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from dovetail.answers.jobs import JobRow
from dovetail.sdk import AsyncClient, errors
from dovetail.sdk.aio.transport import AsyncTransport
from dovetail.sdk.blocking.transport import Transport
from dovetail.sdk.calls import v1, v3
from dovetail.sdk.connection import connection


@asynccontextmanager
async def answering(*answers: web.Response | None) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that gives these answers one after the other; None closes the connection."""
    asked, rest = list[str](), iter(answers)

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        found = next(rest)
        if found is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return found

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}", asked
    finally:
        await runner.cleanup()


ME = {"username": "rita", "groups": [], "everywhere": True, "namespaces": [], "expiresAt": None}


async def test_a_gateway_that_is_away_is_one_sentence_with_what_was_tried() -> None:
    async with AsyncClient("http://127.0.0.1:1", token="t") as client:
        with pytest.raises(errors.UnreachableError) as caught:
            await client.me()
    message = str(caught.value)
    assert message.startswith("the gateway at http://127.0.0.1:1 does not answer: ")
    assert message.endswith("(tried GET /api/v3/me 3 times)")


async def test_a_read_is_tried_again_after_a_lost_connection() -> None:
    async with answering(None, web.json_response(ME)) as (url, asked), AsyncClient(url, token="t") as client:
        assert (await client.me()).username == "rita"
    assert len(asked) == 2


async def test_a_write_without_a_key_is_not_tried_again_after_a_lost_connection() -> None:
    async with answering(None) as (url, asked), AsyncClient(url, token="t") as client:
        with pytest.raises(errors.UnreachableError, match="tried POST /api/v1/gpu/allocate once"):
            await client.send(v1.allocate({}))
    assert len(asked) == 1


async def test_a_busy_gateway_is_asked_again_after_the_pause_that_it_asks_for() -> None:
    busy = web.json_response({"title": "x", "status": 503, "detail": "not synced"}, status=503)
    busy.headers["Retry-After"] = "0"
    async with answering(busy, web.json_response(ME)) as (url, _), AsyncClient(url, token="t") as client:
        assert (await client.me()).username == "rita"


async def test_a_gateway_that_stays_busy_says_why() -> None:
    answers = [
        web.json_response({"detail": "the view is not complete"}, status=503, headers={"Retry-After": "0"})
        for _ in range(3)
    ]
    async with answering(*answers) as (url, _), AsyncClient(url, token="t") as client:
        with pytest.raises(errors.BusyError, match="the view is not complete"):
            await client.me()


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(text="<html>hello</html>"),
        lambda: web.json_response({"username": 1}),
        lambda: web.Response(text="bad gateway", status=500),
        lambda: web.json_response([], status=500),
    ],
)
async def test_what_is_no_gateway_is_named(answer: object) -> None:
    assert callable(answer)
    async with answering(answer()) as (url, _), AsyncClient(url, token="t") as client:
        with pytest.raises(errors.UnexpectedAnswerError, match="does not answer as a Dovetail gateway does"):
            await client.me()


async def test_a_field_of_a_later_gateway_is_ignored() -> None:
    answer = web.json_response({**ME, "colour": "red"})
    async with answering(answer) as (url, _), AsyncClient(url, token="t") as client:
        assert (await client.me()).username == "rita"


async def test_a_client_works_in_several_loops_one_after_the_other() -> None:
    async def ask(url: str) -> str:
        async with AsyncClient(url, token="t") as client:
            return (await client.send(v3.me())).username

    async with answering(web.json_response(ME), web.json_response(ME)) as (url, _):
        for _ in range(2):
            assert await asyncio.to_thread(asyncio.run, ask(url)) == "rita"


def job(**fields: Any) -> dict[str, Any]:
    known = {field.encode_name: None for field in msgspec.structs.fields(JobRow)}
    texts = dict.fromkeys(("displayName", "uid", "user", "project", "reason", "message", "request"), "")
    texts |= dict.fromkeys(("basis", "submittedAt", "idle"), "")
    numbers = {"gpus": 1, "workers": 1, "priority": 10, "reservation": False, "simulated": False}
    lists = {key: list[Any]() for key in ("details", "basisDetails", "dependencies", "nodes", "devices")}
    return {**known, **texts, **numbers, **lists, "namespace": "red", "name": "new", "phase": "Queued", **fields}


async def test_a_new_job_is_asked_for_until_the_gateways_view_has_it() -> None:
    missing = [web.json_response({"detail": "there is no GPUJob new"}, status=404) for _ in range(3)]
    details = web.json_response({"row": job(phase="Running"), "spec": {}, "status": {}})
    answers = [web.json_response(job(), status=201), *missing[:2], details, missing[2]]
    async with answering(*answers) as (url, asked), AsyncClient(url, token="t") as client:
        made = await client.submit(["true"], image="busybox")
        assert await made.wait("Running", progress=False) == "Running"
        with pytest.raises(errors.NotFoundError, match="there is no GPUJob new"):
            await made.refresh()
    assert len(asked) == 5


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://a", "http://", "http://a:99999", "http://a/?b=c"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(errors.SettingsError, match=r"write for example http://127\.0\.0\.1:8000"):
        connection(url, environment={})


def test_the_environment_serves_what_is_not_passed() -> None:
    known = {"DOVETAIL_GATEWAY": "http://gw:8000/", "DOVETAIL_TOKEN": "t", "DOVETAIL_NAMESPACE": "red"}
    found = connection(environment=known)
    assert (found.url, found.token(), found.namespace) == ("http://gw:8000", "t", "red")
    with pytest.raises(errors.SettingsError, match="set DOVETAIL_GATEWAY"):
        connection(environment={})


@asynccontextmanager
async def printing(*lines: str, pause_seconds: float) -> AsyncIterator[str]:
    """A server whose answer comes line by line, with a pause before each."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await asyncio.sleep(pause_seconds)
            await response.write(f"{line}\n".encode())
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        yield str(server.make_url("")).rstrip("/")


async def test_a_log_may_be_silent_for_longer_than_an_answer_may_take() -> None:
    call = v3.log("red", name="train", worker=0, tail=None, follow=True)

    def read_blocking(url: str) -> list[str]:
        transport = Transport(connection(url, token="t"), timeout_seconds=0.2)
        with closing(transport), transport.lines(call) as lines:
            return list(lines)

    async with printing("one", "two", pause_seconds=0.5) as url:
        transport = AsyncTransport(connection(url, token="t"), timeout_seconds=0.2)
        async with aclosing(transport), transport.lines(call) as lines:
            assert [line async for line in lines] == ["one", "two"]
        assert await asyncio.to_thread(read_blocking, url) == ["one", "two"]
