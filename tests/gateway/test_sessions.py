"""Sessions of browsers: how they open and end, and what requests of other sites get."""

import base64
import json
from typing import Any

import pytest

from dovetail_gateway.access.callers import caller_of
from dovetail_gateway.access.sessions import IDLE_SECONDS, TICKET_SECONDS, Sessions
from dovetail_gateway.access.tokens import token_of
from dovetail_gateway.routing.browser import CONSOLE_HEADER
from tests.gateway.served import Face, Reply

PAGE = {"Sec-Fetch-Site": "same-origin", CONSOLE_HEADER: "1"}
RED = caller_of(token_of("red-token"))


class Clock:
    """Seconds that the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def expiring(at: float) -> str:
    """A token that says when it ends."""
    payload = base64.urlsafe_b64encode(json.dumps({"exp": at}).encode()).decode().rstrip("=")
    return f"a.{payload}.c"


def test_a_session_ends_after_idle_time_and_every_use_counts() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    session = sessions.open(RED)
    clock.now += IDLE_SECONDS
    assert sessions.caller_of(session) == RED
    clock.now += IDLE_SECONDS
    assert sessions.caller_of(session) == RED
    clock.now += IDLE_SECONDS + 1
    assert sessions.caller_of(session) is None


def test_a_session_ends_with_its_token() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    session = sessions.open(caller_of(token_of(expiring(1010))))
    clock.now = 1009.0
    assert sessions.caller_of(session) is not None
    clock.now = 1010.0
    assert sessions.caller_of(session) is None


def test_a_ticket_is_good_once_and_for_a_while() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    first, second = sessions.issue_ticket(RED), sessions.issue_ticket(RED)
    assert (sessions.redeem(first), sessions.redeem(first), sessions.redeem("x")) == (RED, None, None)
    clock.now += TICKET_SECONDS
    assert sessions.redeem(second) is None


def test_a_caller_has_32_sessions_at_most_and_the_oldest_ends() -> None:
    sessions = Sessions()
    opened = [sessions.open(RED) for _ in range(33)]
    assert [sessions.caller_of(each) is None for each in opened] == [True] + [False] * 32


async def sign_in(face: Face, *, headers: dict[str, str] = PAGE, **body: Any) -> Reply:
    return await face.ask("POST", "/console/session", headers=headers, json=body)


async def cookie_of(face: Face, **body: Any) -> dict[str, str]:
    """The header of a browser that has signed in. aiohttp's client keeps no cookies of an address without a name."""
    said = await sign_in(face, **body)
    assert said.status == 200, said.text
    return {"Cookie": said.headers["Set-Cookie"].partition(";")[0]}


async def test_a_pasted_token_opens_a_session_in_a_cookie_that_scripts_cannot_read(face: Face) -> None:
    said = await sign_in(face, token="red-token")
    cookie = said.headers["Set-Cookie"]
    port = face.url.rpartition(":")[2]
    assert (said.status, said.json["signedIn"], cookie.partition("=")[0]) == (200, True, f"dovetail-{port}")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "red-token" not in cookie + said.text
    sent = {**PAGE, "Cookie": cookie.partition(";")[0]}
    assert (await face.get("/api/v3/me", headers=sent)).json["username"] == "rita"


async def test_behind_tls_the_cookie_is_of_one_host_alone(face: Face) -> None:
    said = await sign_in(face, headers={**PAGE, "Origin": "https://127.0.0.1"}, token="red-token")
    cookie = said.headers["Set-Cookie"]
    assert cookie.startswith("__Host-dovetail=")
    assert {"Secure", "Path=/"} <= set(cookie.split("; "))


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Sec-Fetch-Site": "cross-site", CONSOLE_HEADER: "1"}, "does not come from a page of this gateway"),
        ({"Sec-Fetch-Site": "same-site", CONSOLE_HEADER: "1"}, "does not come from a page of this gateway"),
        ({"Origin": "http://evil.example", CONSOLE_HEADER: "1"}, "does not come from a page of this gateway"),
        ({CONSOLE_HEADER: "1"}, "does not come from a page of this gateway"),
        ({"Sec-Fetch-Site": "none", CONSOLE_HEADER: "1"}, "does not come from a page of this gateway"),
        ({"Sec-Fetch-Site": "same-origin"}, f"needs the header {CONSOLE_HEADER}"),
    ],
    ids=["another site", "a sibling", "a foreign origin", "no page", "typed", "no header"],
)
async def test_what_another_site_sends_changes_nothing(face: Face, headers: dict[str, str], words: str) -> None:
    sent = {**headers, **await cookie_of(face, token="red-token")}
    for said in (
        await face.ask("POST", "/api/v3/jobs/red/train/cancel", headers=sent),
        await sign_in(face, headers=sent, token="admin-token"),
        await face.ask("DELETE", "/console/session", headers=sent),
    ):
        assert (said.status, words in said.json["detail"]) == (403, True), said.text
    assert not face.made.cache.jobs["red/train"].spec.cancel


async def test_another_site_reads_nothing(face: Face) -> None:
    cookie = await cookie_of(face, token="red-token")
    said = await face.get("/api/v3/jobs", headers={**cookie, "Sec-Fetch-Site": "cross-site"})
    assert said.status == 403
    # An address that a person types carries the cookie too, and shows what it would show.
    assert (await face.get("/api/v3/jobs", headers={**cookie, "Sec-Fetch-Site": "none"})).status == 200
    # A browser without Sec-Fetch-Site.
    assert (await face.get("/api/v3/jobs", headers={**cookie, "Origin": face.url})).status == 200


async def test_signing_out_ends_the_session(face: Face) -> None:
    sent = {**PAGE, **await cookie_of(face, token="red-token")}
    assert (await face.ask("DELETE", "/console/session", headers=sent)).status == 200
    assert (await face.get("/api/v3/me", headers=sent)).status == 401
    assert (await face.get("/console/session", headers=sent)).json["signedIn"] is False


async def test_the_bearer_of_a_token_gets_a_ticket_that_opens_one_session(face: Face) -> None:
    given = await face.ask("POST", "/console/tickets", token="red-token")
    assert given.json["seconds"] == TICKET_SECONDS
    sent = {**PAGE, **await cookie_of(face, ticket=given.json["ticket"])}
    assert (await face.get("/api/v3/me", headers=sent)).json["username"] == "rita"
    said = await sign_in(face, ticket=given.json["ticket"])
    assert (said.status, "used already" in said.json["detail"]) == (401, True)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 422, "send either ticket or token"),
        ({"ticket": "a", "token": "b"}, 422, "send either ticket or token"),
        ({"password": "x"}, 422, "the request cannot be read"),
        ({"token": "two words"}, 401, "this is no bearer token"),
        ({"token": "unknown-token"}, 401, "the API server does not accept the token"),
    ],
    ids=["nothing", "both", "a password", "no token", "an unknown token"],
)
async def test_a_sign_in_that_fails_says_why(face: Face, body: dict[str, Any], status: int, words: str) -> None:
    said = await sign_in(face, **body)
    assert (said.status, words in said.json["detail"], "Set-Cookie" in said.headers) == (status, True, False), said.text


@pytest.mark.parametrize("token", ["", "unknown-token"])
async def test_a_ticket_needs_a_token_that_is_known(face: Face, token: str) -> None:
    assert (await face.ask("POST", "/console/tickets", token=token)).status == 401


async def test_a_host_that_is_not_the_gateways_gets_neither_page_nor_session(face: Face) -> None:
    for path in ("/console/", "/console/session"):
        assert (await face.get(path, headers={"Host": "evil.example"})).status == 421


async def test_the_page_has_a_policy_that_lets_nothing_else_in(face: Face) -> None:
    said = await face.get("/console/queue")
    assert said.status in {200, 503}, "503: it is not built"
    if said.status == 200:
        policy = said.headers["Content-Security-Policy"]
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy.split("; "))
        assert "unsafe" not in policy
