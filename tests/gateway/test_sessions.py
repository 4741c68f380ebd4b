"""Sessions of browsers: how they open and end, and what requests of other sites get."""

import base64
import ipaddress
import json
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail_gateway.access.callers import caller_of
from dovetail_gateway.access.codes import CODE_SECONDS, Codes
from dovetail_gateway.access.places import Bounds, FullError, Holder
from dovetail_gateway.access.sessions import IDLE_SECONDS, Sessions
from dovetail_gateway.access.tokens import token_of
from dovetail_gateway.app import Options
from dovetail_gateway.routing.browser import CONSOLE_HEADER
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.served import Face, Reply, serving

PAGE = {"Sec-Fetch-Site": "same-origin", CONSOLE_HEADER: "1"}
RED = caller_of(token_of("red-token"))
RITA = Holder(user="rita", address="10.0.0.1")


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
    session = sessions.open(RED, holder=RITA)
    clock.now += IDLE_SECONDS
    assert sessions.caller_of(session) == RED
    clock.now += IDLE_SECONDS
    assert sessions.caller_of(session) == RED
    clock.now += IDLE_SECONDS + 1
    assert sessions.caller_of(session) is None


@pytest.mark.parametrize(("lives", "renewed_after"), [(3600, 3540), (121, 61), (120, 60), (60, 30), (10, 5)])
def test_a_token_is_renewed_a_minute_before_its_end_or_after_half_its_life(lives: int, renewed_after: int) -> None:
    sessions = Sessions(clock=Clock())
    session = sessions.open(caller_of(token_of(expiring(1000 + lives))), holder=RITA, refresh_token="r")
    found = sessions.find(session)
    assert found is not None
    assert found.renew_at == 1000 + renewed_after


def test_a_session_ends_with_its_token() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    session = sessions.open(caller_of(token_of(expiring(1010))), holder=RITA)
    clock.now = 1009.0
    assert sessions.caller_of(session) is not None
    clock.now = 1010.0
    assert sessions.caller_of(session) is None


def test_a_code_is_good_once_for_two_minutes_and_for_the_browser_that_asked_first() -> None:
    clock = Clock()
    codes = Codes(clock=clock)
    code = codes.issue(RED, holder=RITA)
    assert (len(code), code[5]) == (11, "-")
    assert codes.redeem(code, browser="a") is None, "it is bound to no browser yet"
    assert (codes.bind(code, browser="a"), codes.bind(code, browser="b")) == (RED, None)
    assert (codes.redeem(code, browser="b"), codes.redeem(code, browser="a")) == (None, RED)
    assert (codes.redeem(code, browser="a"), codes.bind(code, browser="a"), codes.bind("x", browser="a")) == (None,) * 3


def test_a_code_is_read_as_people_type_it() -> None:
    codes = Codes()
    code = codes.issue(RED, holder=RITA)
    typed = f" {code.lower().replace('-', ' ').replace('0', 'o').replace('1', 'l')} "
    assert codes.bind(typed, browser="a") == RED
    assert codes.redeem(code, browser="a") == RED


@pytest.mark.parametrize("bound", [False, True])
def test_a_code_ends_two_minutes_after_it_was_made_or_bound(bound: bool) -> None:
    """Bound again by its own browser, it does not live longer."""
    clock = Clock()
    codes = Codes(clock=clock)
    code = codes.issue(RED, holder=RITA)
    clock.now += CODE_SECONDS - 1
    if bound:
        assert codes.bind(code, browser="a") == RED
        clock.now += CODE_SECONDS - 1
        assert codes.bind(code, browser="a") == RED
        clock.now += 1
    else:
        clock.now += 1
    assert (codes.bind(code, browser="a"), codes.redeem(code, browser="a")) == (None, None)


def test_the_codes_of_a_user_count_together_whatever_addresses_they_are_shown_at() -> None:
    codes = Codes(clock=Clock())
    for number in range(8):
        codes.issue(RED, holder=Holder(user="rita", address=f"10.0.0.{number}"))
    with pytest.raises(FullError, match="rita has 8 codes that were not used yet"):
        codes.issue(RED, holder=Holder(user="rita", address="10.0.1.1"))


def test_codes_of_one_user_or_address_leave_the_others_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_gateway.access.codes.BOUNDS", Bounds(all=30, address=20))
    clock = Clock()
    codes = Codes(clock=clock)
    first = codes.issue(RED, holder=Holder(user="ann", address="10.0.0.9"))
    for _ in range(8):
        codes.issue(RED, holder=RITA)
    with pytest.raises(FullError, match="rita has 8 codes that were not used yet"):
        codes.issue(RED, holder=RITA)
    for number in range(12):
        codes.issue(RED, holder=Holder(user=f"system:serviceaccount:red:a{number}", address=RITA.address))
    with pytest.raises(FullError, match=r"the address 10\.0\.0\.1 has 20 codes"):
        codes.issue(RED, holder=Holder(user="bert", address=RITA.address))
    for number in range(9):
        codes.issue(RED, holder=Holder(user=f"u{number}", address=f"10.0.1.{number}"))
    with pytest.raises(FullError, match="the gateway has 30 codes"):
        codes.issue(RED, holder=Holder(user="carl", address="10.0.0.3"))
    assert codes.bind(first, browser="a") == RED
    clock.now += CODE_SECONDS
    assert codes.issue(RED, holder=RITA), "codes that have ended take no place"


def test_a_user_has_32_sessions_at_most_whatever_the_tokens_and_the_users_oldest_ends() -> None:
    sessions = Sessions()
    other = sessions.open(RED, holder=Holder(user="ann", address=RITA.address))
    opened = [sessions.open(caller_of(token_of(f"token-{number}")), holder=RITA) for number in range(33)]
    assert [sessions.caller_of(each) is None for each in opened] == [True] + [False] * 32
    assert sessions.caller_of(other) == RED


def accounts(address: str) -> Iterator[Holder]:
    """As many users as somebody can make who may create ServiceAccounts."""
    return (Holder(user=f"system:serviceaccount:red:{number}", address=address) for number in range(1_000))


def fill(sessions: Sessions, *, address: str) -> str:
    """Open sessions until no more can be; why not."""
    for holder in accounts(address):
        try:
            for _ in range(2):
                sessions.open(RED, holder=holder)
        except FullError as error:
            return str(error)
    raise AssertionError("no bound was reached")


def test_no_number_of_sign_ins_ends_a_session_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_gateway.access.sessions.BOUNDS", Bounds(all=50, address=20))
    clock = Clock()
    sessions = Sessions(clock=clock)
    victim = sessions.open(RED, holder=Holder(user="ann", address="10.0.0.1"))
    assert fill(sessions, address="10.0.0.2") == "the address 10.0.0.2 has 20 sessions, as many as one address can have"
    assert sessions.open(RED, holder=Holder(user="bert", address="10.0.0.1")), "others still sign in"
    fill(sessions, address="10.0.0.3")
    assert fill(sessions, address="10.0.0.4") == "the gateway has 50 sessions, as many as it can have"
    assert sessions.caller_of(victim) == RED
    again = sessions.open(RED, holder=Holder(user="ann", address="10.0.0.1"), instead=victim)
    assert (sessions.caller_of(victim), sessions.caller_of(again)) == (None, RED)
    clock.now += IDLE_SECONDS + 1
    assert sessions.open(RED, holder=RITA), "sessions that have ended take no place"


def test_a_session_that_cannot_be_opened_ends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_gateway.access.sessions.BOUNDS", Bounds(all=40, address=40))
    sessions = Sessions()
    own = [sessions.open(RED, holder=RITA) for _ in range(32)]
    fill(sessions, address="10.0.0.2")
    assert sessions.caller_of(own[0]) == RED
    assert sessions.open(RED, holder=RITA), "in place of the user's own oldest"
    assert sessions.caller_of(own[1]) is None


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
        ({"Origin": "http://127.0.0.1:1", CONSOLE_HEADER: "1"}, "does not come from a page of this gateway"),
        ({"Origin": "http://127.0.0.1", CONSOLE_HEADER: "1"}, "does not come from a page of this gateway"),
        ({CONSOLE_HEADER: "1"}, "does not come from a page of this gateway"),
        ({"Sec-Fetch-Site": "none", CONSOLE_HEADER: "1"}, "does not come from a page of this gateway"),
        ({"Sec-Fetch-Site": "same-origin"}, f"needs the header {CONSOLE_HEADER}"),
    ],
    ids=["another site", "a sibling", "a foreign origin", "another port", "no port", "no page", "typed", "no header"],
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
    ended = await face.ask("DELETE", "/console/session", headers=sent)
    assert ended.status == 200
    removed = [each.partition("=") for each in ended.headers.getall("Set-Cookie")]
    assert {name for name, _, _ in removed} == {"__Host-dovetail", sent["Cookie"].partition("=")[0]}
    assert all(value.startswith('""; ') and "Max-Age=0" in value for _, _, value in removed)
    assert (await face.get("/api/v3/me", headers=sent)).status == 401
    assert (await face.get("/console/session", headers=sent)).json["signedIn"] is False


async def code_of(face: Face, token: str = "red-token") -> str:
    """A code as `dovetail console` gets one."""
    given = await face.ask("POST", "/console/codes", token=token)
    assert (given.status, given.json["seconds"]) == (200, CODE_SECONDS), given.text
    return str(given.json["code"])


async def arrive(face: Face, code: str, *, cookie: str = "") -> Reply:
    return await face.ask("POST", "/console/arrivals", headers={**PAGE, "Cookie": cookie}, json={"code": code})


def cookie_in(said: Reply) -> str:
    return said.headers["Set-Cookie"].partition(";")[0]


async def test_the_bearer_of_a_token_gets_a_code_that_opens_one_session_in_one_browser(face: Face) -> None:
    code = await code_of(face)
    assert (await sign_in(face, code=code)).status == 401, "no browser has arrived with it"
    arrived = await arrive(face, code)
    assert arrived.json == {"username": "rita", "signedInAs": "", "same": False}
    assert {"HttpOnly", "SameSite=Strict", "Max-Age=600"} <= set(arrived.headers["Set-Cookie"].split("; "))
    thief = await arrive(face, code)
    assert (thief.status, "is of another browser" in thief.json["detail"]) == (401, True)
    assert (await sign_in(face, headers={**PAGE, "Cookie": "dovetail-login=x"}, code=code)).status == 401
    own = {**PAGE, "Cookie": cookie_in(arrived)}
    opened = await sign_in(face, headers=own, code=code)
    sent = {**PAGE, "Cookie": cookie_in(opened)}
    assert (await face.get("/api/v3/me", headers=sent)).json["username"] == "rita"
    for said in (await sign_in(face, headers=own, code=code), await arrive(face, code)):
        assert (said.status, "used already" in said.json["detail"]) == (401, True)


async def test_a_code_ends_no_session_unless_its_user_says_so(face: Face) -> None:
    had = (await cookie_of(face, token="red-token"))["Cookie"]
    code = await code_of(face, "admin-token")
    arrived = await arrive(face, code, cookie=had)
    assert arrived.json == {"username": "admin", "signedInAs": "rita", "same": False}
    both = {**PAGE, "Cookie": f"{had}; {cookie_in(arrived)}"}
    said = await sign_in(face, headers=both, code=code)
    assert (said.status, "you are signed in as rita" in said.json["detail"]) == (409, True)
    assert (await face.get("/api/v3/me", headers=both)).json["username"] == "rita"
    opened = await sign_in(face, headers=both, code=code, instead=True)
    assert (await face.get("/api/v3/me", headers={**PAGE, "Cookie": cookie_in(opened)})).json["username"] == "admin"
    assert (await face.get("/api/v3/me", headers=both)).status == 401


async def test_a_code_of_the_user_who_is_signed_in_asks_nothing(face: Face) -> None:
    had = (await cookie_of(face, token="red-token"))["Cookie"]
    arrived = await arrive(face, await code_of(face), cookie=had)
    assert arrived.json == {"username": "rita", "signedInAs": "rita", "same": True}


@pytest.mark.parametrize("path", ["/console/arrivals", "/console/session"])
async def test_a_code_that_another_site_sends_binds_and_opens_nothing(face: Face, path: str) -> None:
    code = await code_of(face)
    for headers in ({"Sec-Fetch-Site": "cross-site", CONSOLE_HEADER: "1"}, {"Sec-Fetch-Site": "same-origin"}):
        assert (await face.ask("POST", path, headers=headers, json={"code": code})).status == 403
    assert (await arrive(face, code)).status == 200


async def test_a_table_that_is_full_says_so_and_when_to_come_again(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_gateway.access.sessions.BOUNDS", Bounds(all=1, address=10))
    first = await cookie_of(face, token="red-token")
    said = await sign_in(face, token="admin-token")
    assert (said.status, said.headers["Retry-After"]) == (429, "60")
    assert "the gateway has 1 sessions, as many as it can have: try again in 60 s" in said.json["detail"]
    assert (await face.get("/api/v3/me", headers={**PAGE, **first})).status == 200
    for _ in range(8):
        await code_of(face)
    refused = await face.ask("POST", "/console/codes", token="red-token")
    assert (refused.status, refused.headers["Retry-After"]) == (429, "120")


async def test_behind_a_trusted_proxy_the_addresses_of_its_clients_count(
    api: GatewayApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail_gateway.access.sessions.BOUNDS", Bounds(all=10, address=1))
    options = Options(rates=None, proxies=(ipaddress.ip_network("127.0.0.1/32"),))
    async with serving(api, options=options) as face:
        statuses = [
            (await sign_in(face, headers={**PAGE, "X-Forwarded-For": client}, token=token)).status
            for client, token in (
                ("203.0.113.1", "red-token"),
                ("203.0.113.1", "admin-token"),
                ("203.0.113.2", "admin-token"),
                ("2001:db8::1", "red-token"),
                ("2001:db8::2", "reader-token"),
            )
        ]
    assert statuses == [200, 429, 200, 200, 429]


@pytest.mark.parametrize(
    ("host", "cookie", "status"),
    [
        ("127.0.0.1:{port}", "dovetail-{port}", 200),
        ("gpu.example:{port}", "dovetail-{port}", 401),
        ("gpu.example", "dovetail-443", 401),
        ("gpu.example", "dovetail-80", 401),
        ("gpu.example", "__Host-dovetail", 200),
    ],
)
async def test_no_session_counts_whose_cookie_a_sibling_host_can_set(
    api: GatewayApiServer, host: str, cookie: str, status: int
) -> None:
    """A page of wiki.example can set any cookie for gpu.example, but for the prefix `__Host-`."""
    async with serving(api, options=Options(rates=None, hosts=("gpu.example",))) as face:
        port = face.url.rpartition(":")[2]
        session = (await cookie_of(face, token="red-token"))["Cookie"].partition("=")[2]
        sent = {**PAGE, "Host": host.format(port=port), "Cookie": f"{cookie.format(port=port)}={session}"}
        assert (await face.get("/api/v3/me", headers=sent)).status == status


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 422, "send either code or token"),
        ({"code": "a", "token": "b"}, 422, "send either code or token"),
        ({"code": "7KXQ2-M4TPD"}, 401, "this code was used already, is too old, or is of another browser"),
        ({"password": "x"}, 422, "the request cannot be read"),
        ({"token": "two words"}, 401, "this is no bearer token"),
        ({"token": "unknown-token"}, 401, "the API server does not accept the token"),
    ],
    ids=["nothing", "both", "an unknown code", "a password", "no token", "an unknown token"],
)
async def test_a_sign_in_that_fails_says_why(face: Face, body: dict[str, Any], status: int, words: str) -> None:
    said = await sign_in(face, **body)
    assert (said.status, words in said.json["detail"], "Set-Cookie" in said.headers) == (status, True, False), said.text


@pytest.mark.parametrize("token", ["", "unknown-token"])
async def test_a_code_needs_a_token_that_is_known(face: Face, token: str) -> None:
    assert (await face.ask("POST", "/console/codes", token=token)).status == 401


async def test_a_host_that_is_not_the_gateways_gets_neither_page_nor_session(face: Face) -> None:
    for path in ("/console/", "/console/session"):
        assert (await face.get(path, headers={"Host": "evil.example"})).status == 421


async def test_the_page_has_a_policy_that_lets_nothing_else_in(face: Face) -> None:
    said = await face.get("/console/jobs")
    assert said.status in {200, 503}, "503: it is not built"
    if said.status == 200:
        policy = said.headers["Content-Security-Policy"]
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy.split("; "))
        assert "unsafe" not in policy


async def test_the_addresses_of_one_ipv6_network_have_the_places_of_one(
    api: GatewayApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail_gateway.access.sessions.BOUNDS", Bounds(all=10, address=1))
    options = Options(rates=None, proxies=(ipaddress.ip_network("127.0.0.1/32"),))
    async with serving(api, options=options) as face:
        found = [
            (await sign_in(face, headers={**PAGE, "X-Forwarded-For": client}, token=token)).status
            for client, token in (
                ("2001:db8::1", "red-token"),
                ("2001:db8::2", "reader-token"),
                ("2001:db8:0:1::2", "reader-token"),
            )
        ]
    assert found == [200, 429, 200]


async def test_a_session_that_is_opened_takes_the_place_of_the_one_that_the_browser_has(face: Face) -> None:
    first = await cookie_of(face, token="red-token")
    opened = await sign_in(face, headers={**PAGE, **first}, token="admin-token")
    assert (await face.get("/api/v3/me", headers={**PAGE, "Cookie": cookie_in(opened)})).json["username"] == "admin"
    assert (await face.get("/api/v3/me", headers={**PAGE, **first})).status == 401
    assert len(face.made.sessions._sessions) == 1


async def test_a_code_of_another_identity_of_that_name_is_asked_about(api: GatewayApiServer, face: Face) -> None:
    """The same user with other groups has other rights."""
    api.users["staff-token"] = User("rita", {"red": EDIT}, groups=["staff"])
    had = (await cookie_of(face, token="red-token"))["Cookie"]
    arrived = await arrive(face, await code_of(face, "staff-token"), cookie=had)
    assert arrived.json == {"username": "rita", "signedInAs": "rita", "same": False}


async def test_a_session_whose_token_the_api_server_does_not_know_any_more_is_none(
    api: GatewayApiServer, face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    had = (await cookie_of(face, token="red-token"))["Cookie"]
    code = await code_of(face, "admin-token")
    del api.users["red-token"]
    monkeypatch.setattr("dovetail_gateway.access.identities.KNOWN_SECONDS", 0.0)
    arrived = await arrive(face, code, cookie=had)
    assert arrived.json == {"username": "admin", "signedInAs": "", "same": False}
    both = {**PAGE, "Cookie": f"{had}; {cookie_in(arrived)}"}
    opened = await sign_in(face, headers=both, code=code)
    assert (opened.status, len(face.made.sessions._sessions)) == (200, 1)


async def test_signing_in_by_the_name_of_another_machine_needs_https(api: GatewayApiServer) -> None:
    async with serving(api, options=Options(rates=None, hosts=("gpu.example.com",))) as face:
        code, port = await code_of(face), face.url.rpartition(":")[2]
        for host, scheme, status in (
            (f"localhost:{port}", "http", 200),
            ("gpu.example.com", "http", 403),
            ("gpu.example.com", "https", 200),
        ):
            headers = {CONSOLE_HEADER: "1", "Host": host, "Origin": f"{scheme}://{host}"}
            said = await sign_in(face, headers=headers, token="red-token")
            assert said.status == status, said.text
            if status == 403:
                assert said.json["detail"] == "signing in needs https, except on this machine"
                arrived = await face.ask("POST", "/console/arrivals", headers=headers, json={"code": code})
                assert arrived.status == 403
