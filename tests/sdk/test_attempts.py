"""What is sent again, when, and for how long: pauses are noted and not waited for."""

from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from dovetail.sdk import errors
from dovetail.sdk.aio import runtime
from dovetail.sdk.aio.transport import AsyncTransport
from dovetail.sdk.calls import v1, v3
from dovetail.sdk.calls.call import Call
from dovetail.sdk.connection import connection
from tests.sdk.test_transport import ME, answering, job


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    noted = list[float]()

    async def sleep(seconds: float) -> None:
        noted.append(seconds)

    monkeypatch.setattr(runtime, "sleep", sleep)
    return noted


def busy(status: int = 503, **headers: str) -> web.Response:
    return web.json_response({"detail": "busy"}, status=status, headers=headers)


async def outcome(url: str, call: Call[Any]) -> Any:
    transport = AsyncTransport(connection(url, token="t"))
    try:
        return await transport.send(call)
    except errors.DovetailError as error:
        return type(error)
    finally:
        await transport.aclose()


@pytest.mark.parametrize("said", [("7", 7.0), ("0", 0.0), ("100", 10.0), ("soon", 1.0), ("", 1.0), ("-5", 1.0)])
async def test_the_pause_that_the_gateway_asks_for_has_a_limit(pauses: list[float], said: tuple[str, float]) -> None:
    headers = {"Retry-After": said[0]} if said[0] else {}
    async with answering(busy(**headers), web.json_response(ME)) as (url, _):
        assert (await outcome(url, v3.me())).username == "rita"
    assert pauses == [said[1]]


KEYED = v3.create({}, key="k")
WRITE = v1.allocate({})


@pytest.mark.parametrize(
    ("call", "answer", "sent"),
    [
        (v3.me(), lambda: busy(429), 3),
        (v3.me(), lambda: busy(502), 3),
        (v3.me(), lambda: busy(503), 3),
        (v3.me(), lambda: busy(504), 3),
        (v3.me(), lambda: busy(500), 1),
        (v3.me(), lambda: busy(404), 1),
        (v3.me(), lambda: None, 3),
        (KEYED, lambda: busy(503), 3),
        (KEYED, lambda: None, 3),
        (v3.delete("red", name="a"), lambda: busy(503), 3),
        (WRITE, lambda: busy(429), 1),
        (WRITE, lambda: busy(503), 1),
        (WRITE, lambda: None, 1),
        (v3.change("red", name="a", body={}), lambda: busy(503), 1),
    ],
)
async def test_only_what_may_be_sent_twice_is(
    pauses: list[float], call: Call[Any], answer: Callable[[], web.Response | None], sent: int
) -> None:
    async with answering(*[answer() for _ in range(4)]) as (url, asked):
        assert issubclass(await outcome(url, call), errors.DovetailError)
    assert (len(asked), len(pauses)) == (sent, sent - 1)


async def test_a_job_whose_creation_got_no_answer_is_asked_for_with_the_same_key(pauses: list[float]) -> None:
    keys = list[str]()
    answers = iter([None, busy(), web.json_response(job(), status=201)])

    async def answer(request: web.Request) -> web.Response:
        keys.append(request.headers["Idempotency-Key"])
        found = next(answers)
        if found is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return found

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        assert (await outcome(f"http://127.0.0.1:{runner.addresses[0][1]}", KEYED)).name == "new"
    finally:
        await runner.cleanup()
    assert keys == ["k", "k", "k"]


@pytest.mark.parametrize("call", [v3.me(), KEYED, WRITE])
async def test_what_did_not_reach_the_gateway_is_sent_again_whatever_it_is(
    pauses: list[float], call: Call[Any]
) -> None:
    assert await outcome("http://127.0.0.1:1", call) is errors.UnreachableError
    assert pauses == [0.2, 0.4]


async def test_a_log_that_is_refused_has_the_error_of_any_answer() -> None:
    call = v3.log("red", name="train", worker=0, tail=None, follow=True)
    async with answering(busy(403)) as (url, _):
        transport = AsyncTransport(connection(url, token="t"))
        with pytest.raises(errors.ForbiddenError, match="busy"):
            async with transport.lines(call):
                raise AssertionError
        await transport.aclose()
    transport = AsyncTransport(connection("http://127.0.0.1:1", token="t"))
    with pytest.raises(errors.UnreachableError, match="logs once"):
        async with transport.lines(call):
            raise AssertionError
    await transport.aclose()


async def test_a_transport_that_was_closed_opens_connections_again() -> None:
    async with answering(web.json_response(ME), web.json_response(ME)) as (url, _):
        transport = AsyncTransport(connection(url, token="t"))
        for _ in range(2):
            assert (await transport.send(v3.me())).username == "rita"
            await transport.aclose()
            await transport.aclose()
