"""Signing in at an OpenID provider: what is asked of it, each way in which it fails, and the renewal of tokens."""

import argparse
import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dovetail.config.errors import ConfigError
from dovetail_gateway.app import Options
from dovetail_gateway.oidc import options as oidc_options
from dovetail_gateway.oidc.provider import ProviderOptions
from dovetail_gateway.routing.browser import CONSOLE_HEADER
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.openid import CLIENT, OpenIdProvider, options_for, provider
from tests.gateway.served import Face, Reply, serving

PAGE = {"Sec-Fetch-Site": "same-origin", CONSOLE_HEADER: "1"}
RITA = User("https://id#rita", {"red": EDIT})


@dataclass
class Door:
    """A gateway, its provider, and a browser with its cookies."""

    face: Face
    api: GatewayApiServer
    provider: OpenIdProvider
    cookies: dict[str, str]

    async def ask(self, method: str, path: str, **options: Any) -> Reply:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        said = await self.face.ask(method, path, headers={**PAGE, "Cookie": cookie}, **options)
        for each in said.headers.getall("Set-Cookie", []):
            name, _, value = each.partition(";")[0].partition("=")
            self.cookies[name] = value
        return said

    async def begin(self) -> Reply:
        return await self.ask("POST", "/console/login", json={})

    async def finish(self, sent: dict[str, str]) -> Reply:
        return await self.ask("POST", "/console/callback", json=sent)

    async def sign_in(self) -> Reply:
        """The whole way; the API server knows the ID token as Rita's."""
        begun = await self.begin()
        assert begun.status == 200, begun.text
        self.api.users = _Known(self.api.users, provider=self.provider)
        return await self.finish(self.provider.answered(begun.json["url"]))


class _Known(dict[str, User]):
    """The API server's users: whoever has a token of the provider is Rita."""

    def __init__(self, users: dict[str, User], *, provider: OpenIdProvider) -> None:
        super().__init__(users)
        self.provider = provider

    def get(self, token: str, default: Any = None) -> Any:
        return RITA if token in self.provider.tokens else super().get(token, default)


@pytest.fixture
async def door(api: GatewayApiServer, tmp_path: Path) -> AsyncIterator[Door]:
    # The gateway's address is known only once it listens, and the provider's options have it.
    async with provider(tmp_path) as said:
        options = options_for(said, folder=tmp_path, public_url="http://127.0.0.1")
        async with serving(api, options=Options(rates=None, provider=options)) as face:
            _call(face, options=options)
            yield Door(face, api, said, {})


def _call(face: Face, *, options: ProviderOptions) -> None:
    """Make the gateway's address the public one."""
    assert face.made.logins is not None
    face.made.logins.provider.options = replace(options, public_url=face.url)


async def test_a_sign_in_asks_for_a_code_with_pkce(door: Door) -> None:
    begun = await door.begin()
    url = urlsplit(begun.json["url"])
    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert f"{url.scheme}://{url.netloc}{url.path}" == f"{door.provider.issuer}/authorize"
    assert (asked["response_type"], asked["client_id"], asked["code_challenge_method"]) == ("code", CLIENT, "S256")
    assert asked["redirect_uri"] == f"{door.face.url}/console/callback"
    assert asked["scope"].split() == ["openid", "profile", "email", "offline_access"]
    cookie = begun.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Max-Age=600"} <= set(cookie.split("; "))
    door.api.users = _Known(door.api.users, provider=door.provider)
    done = await door.finish(door.provider.answered(begun.json["url"]))
    assert (done.status, done.json["signedIn"]) == (200, True)
    assert (await door.ask("GET", "/api/v3/me")).json["username"] == RITA.name
    form = door.provider.forms[0]
    challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
    assert (form["grant_type"], form["code"], challenge) == ("authorization_code", "the-code", asked["code_challenge"])
    # RFC 6749, 2.3.1: the secret is encoded as in a form.
    assert door.provider.headers[0] == "Basic " + base64.b64encode(b"web:s%3Aecret").decode()
    assert not [each for each in door.provider.tokens if each in begun.text + done.text + str(done.headers)]


async def test_the_page_knows_the_providers_host(door: Door) -> None:
    said = (await door.ask("GET", "/console/session")).json
    assert (said["doors"], said["provider"]) == (["oidc", "code", "token"], urlsplit(door.provider.issuer).netloc)


async def test_a_sign_in_is_finished_in_its_browser_alone(door: Door) -> None:
    begun = await door.begin()
    sent = door.provider.answered(begun.json["url"])
    browser, door.cookies = door.cookies, {}
    assert "did not begin in this browser" in (await door.finish(sent)).json["detail"]
    await door.begin()
    assert "did not begin in this browser" in (await door.finish(sent)).json["detail"]
    door.cookies = browser
    assert not door.provider.forms, "a sign-in that is not this browser's reaches no provider"
    door.api.users = _Known(door.api.users, provider=door.provider)
    assert (await door.finish(sent)).status == 200


async def test_what_the_provider_sent_is_good_once(door: Door) -> None:
    begun = await door.begin()
    sent = door.provider.answered(begun.json["url"])
    door.api.users = _Known(door.api.users, provider=door.provider)
    assert (await door.finish(sent)).status == 200
    assert "or is finished already" in (await door.finish(sent)).json["detail"]
    assert len(door.provider.forms) == 1


@pytest.mark.parametrize("part", [0, 1, 2])
async def test_a_state_that_was_changed_is_not_this_sign_in(door: Door, part: int) -> None:
    sent = door.provider.answered((await door.begin()).json["url"])
    parts = sent["state"].split(".")
    parts[part] = {0: parts[0][::-1], 1: "9999999999", 2: parts[2][::-1]}[part]
    for state in (".".join(parts), "", ".", "x", f"{parts[0]}.é"):
        said = await door.finish({**sent, "state": state})
        assert (said.status, "did not begin in this browser" in said.json["detail"]) == (403, True)
    assert not door.provider.forms


async def test_no_number_of_begun_sign_ins_pushes_one_out_or_asks_the_provider_each_time(door: Door) -> None:
    begun = await door.begin()
    sent, own = door.provider.answered(begun.json["url"]), door.cookies
    for _ in range(1_100):
        door.cookies = {}
        assert (await door.begin()).status == 200
    assert door.provider.discoveries < 100
    door.cookies = own
    door.api.users = _Known(door.api.users, provider=door.provider)
    assert (await door.finish(sent)).status == 200


async def test_sign_ins_that_begin_together_ask_the_provider_once(door: Door) -> None:
    said = await asyncio.gather(*(door.face.ask("POST", "/console/login", headers=PAGE, json={}) for _ in range(20)))
    assert ({each.status for each in said}, door.provider.discoveries) == ({200}, 1)


async def test_a_sign_in_that_took_too_long_is_said(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = await door.begin()
    assert door.face.made.logins is not None
    monkeypatch.setattr(door.face.made.logins, "_clock", lambda: time.time() + 601)
    said = await door.finish(door.provider.answered(begun.json["url"]))
    assert (said.status, "longer than 10 minutes" in said.json["detail"]) == (403, True)


async def test_a_user_who_cancels_at_the_provider_gets_its_words(door: Door) -> None:
    begun = await door.begin()
    said = await door.finish(door.provider.answered(begun.json["url"], error="access_denied, not today"))
    assert (said.status, said.json["detail"]) == (403, "the provider refuses the sign-in: access_denied, not today")


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"aud": "other"}, 'the ID token is for "other", and this gateway is the client "web"'),
        ({"aud": ["other", "web"], "azp": "other"}, 'the ID token is for "other", "web"'),
        ({"iss": "https://evil.example"}, 'the ID token is of the issuer "https://evil.example"'),
        ({"nonce": "another"}, "answers another sign-in"),
        ({"exp": time.time() - 3600}, "s ago: compare the clocks of the provider and of the gateway"),
        ({"iat": time.time() + 3600}, "s: compare the clocks of the provider and of the gateway"),
        ({"sub": 7}, "the provider's ID token cannot be read"),
    ],
    ids=["audience", "authorized party", "issuer", "nonce", "expired", "clock ahead", "no text"],
)
async def test_an_id_token_that_is_not_for_this_sign_in_is_refused(
    door: Door, claims: dict[str, Any], words: str
) -> None:
    door.provider.claims = claims
    said = await door.sign_in()
    assert (said.status, words in said.json["detail"]) == (403, True), said.text
    assert (await door.ask("GET", "/api/v3/me")).status == 401


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (
            (401, {"error": "invalid_client", "error_description": "no such secret"}),
            403,
            'does not accept this gateway as its client "web" (invalid_client, no such secret)',
        ),
        ((400, {"error": "invalid_grant"}), 403, "the provider refuses the sign-in: invalid_grant"),
        ((200, {"access_token": "x"}), 403, "gave no ID token: the scopes must include openid"),
        ((200, "<html>"), 502, "cannot be read"),
        ((503, "<html>"), 502, "answers with status 503: try again later"),
        ((200, {"id_token": "no-jwt"}), 403, "it is no JWT"),
        ((200, {"id_token": "a.!.c"}), 403, "the provider's ID token cannot be read"),
        ((200, "x" * (2 << 20)), 502, "is larger than 1 MiB"),
    ],
    ids=["client", "code", "no ID token", "no JSON", "overloaded", "no JWT", "no Base64", "endless"],
)
async def test_what_the_token_endpoint_refuses_is_one_sentence(
    door: Door, answer: tuple[int, Any], status: int, words: str
) -> None:
    door.provider.answer = answer
    said = await door.sign_in()
    assert (said.status, words in said.json["detail"]) == (status, True), said.text


@pytest.mark.parametrize(
    ("metadata", "status", "words"),
    [
        ({"issuer": "https://elsewhere.example"}, 403, 'is of the issuer "https://elsewhere.example"'),
        ({"token_endpoint": "http://127.0.0.1/token"}, 403, "endpoints must begin with https://"),
        ({"authorization_endpoint": None}, 502, "cannot be read"),
    ],
    ids=["another issuer", "no TLS", "no endpoint"],
)
async def test_metadata_that_do_not_fit_begin_no_sign_in(
    door: Door, metadata: dict[str, Any], status: int, words: str
) -> None:
    door.provider.metadata = metadata
    said = await door.begin()
    assert (said.status, words in said.json["detail"]) == (status, True), said.text


async def test_a_provider_that_is_away_is_named(door: Door) -> None:
    assert door.face.made.logins is not None
    options = door.face.made.logins.provider.options
    door.face.made.logins.provider.options = replace(options, issuer="https://127.0.0.1:1")
    said = await door.begin()
    assert (said.status, "the provider https://127.0.0.1:1 does not answer" in said.json["detail"]) == (502, True)


async def test_a_token_that_the_api_server_does_not_take_names_its_configuration(door: Door) -> None:
    begun = await door.begin()
    said = await door.finish(door.provider.answered(begun.json["url"]))
    assert said.status == 401
    assert f'AuthenticationConfiguration must have this issuer with the audience "{CLIENT}"' in said.json["detail"]


async def test_a_sign_in_begins_only_at_the_public_address(door: Door) -> None:
    port = door.face.url.rpartition(":")[2]
    headers = {**PAGE, "Host": f"localhost:{port}"}
    said = await door.face.ask("POST", "/console/login", headers=headers, json={})
    assert (said.status, "open the console there" in said.json["detail"]) == (421, True)
    foreign = {"Sec-Fetch-Site": "cross-site", CONSOLE_HEADER: "1"}
    for path in ("/console/login", "/console/callback"):
        assert (await door.face.ask("POST", path, headers=foreign, json={})).status == 403


async def test_a_session_goes_on_with_a_new_token_and_ends_when_the_provider_refuses_one(door: Door) -> None:
    # So short that each request finds the token about to end.
    door.provider.lifetime = 0.0
    assert (await door.sign_in()).status == 200
    assert (await door.ask("GET", "/api/v3/me")).status == 401, "a token of no seconds is renewed, and expired too"
    door.provider.lifetime = 3600.0
    assert (await door.ask("GET", "/api/v3/me")).json["username"] == RITA.name
    assert door.provider.forms[-1]["refresh_token"] == f"refresh-{len(door.provider.tokens) - 1}"
    renewals = len(door.provider.forms)
    assert (await door.ask("GET", "/api/v3/me")).status == 200
    assert len(door.provider.forms) == renewals


async def test_a_renewed_token_of_another_user_is_not_taken(door: Door) -> None:
    door.provider.lifetime = 0.0
    await door.sign_in()
    door.provider.lifetime, door.provider.claims = 3600.0, {"sub": "mallory"}
    assert (await door.ask("GET", "/api/v3/me")).status == 401
    door.provider.claims = {}
    assert (await door.ask("GET", "/api/v3/me")).status == 401, "the session is over"


async def test_a_provider_that_is_away_does_not_end_a_session_for_good(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.provider.lifetime = 0.0
    await door.sign_in()
    door.provider.lifetime, door.provider.answer = 3600.0, (503, "")
    assert (await door.ask("GET", "/api/v3/me")).status == 401
    asked, door.provider.answer = len(door.provider.forms), None
    assert (await door.ask("GET", "/api/v3/me")).status == 401
    assert len(door.provider.forms) == asked, "it is asked again after a while only"
    monkeypatch.setattr("dovetail_gateway.oidc.renewal.RETRY_SECONDS", 0.0)
    door.face.made.sessions.postpone(door.cookies[f"dovetail-{door.face.url.rpartition(':')[2]}"], seconds=0.0)
    assert (await door.ask("GET", "/api/v3/me")).status == 200


async def test_without_a_refresh_token_the_session_ends_with_its_token(door: Door) -> None:
    door.provider.refreshes, door.provider.lifetime = False, 0.0
    await door.sign_in()
    assert (await door.ask("GET", "/api/v3/me")).status == 401
    assert len(door.provider.forms) == 1


async def test_without_a_provider_there_is_no_such_door(face: Face) -> None:
    said = await face.get("/console/session")
    assert (said.json["doors"], said.json["provider"]) == (["code", "token"], "")
    assert (await face.ask("POST", "/console/login", headers=PAGE, json={})).status == 405


GOOD = ["--oidc-issuer=https://id.example", "--oidc-client-id=web", "--public-url=https://gpu.example.com/"]


def parsed(*words: str) -> ProviderOptions | None:
    parser = argparse.ArgumentParser()
    oidc_options.add_options(parser)
    return oidc_options.provider_of(parser.parse_args(words))


def test_the_command_line_names_the_provider(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden\n")
    found = parsed(*GOOD, f"--oidc-client-secret-file={tmp_path / 'secret'}", "--oidc-scopes=openid groups")
    assert found is not None
    assert (found.redirect_uri, found.client_secret) == ("https://gpu.example.com/console/callback", "hidden")
    assert found.scopes == ("openid", "groups")
    assert "hidden" not in repr(found)
    assert parsed() is None


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("--oidc-issuer=http://id.example", '--oidc-issuer "http://id.example": must begin with https://'),
        ("--oidc-client-id=", '--oidc-client-id "": it is required with --oidc-issuer'),
        ("--oidc-scopes=profile", '--oidc-scopes "profile": openid must be one of the scopes'),
        ("--public-url=http://gpu.example.com", '--public-url "http://gpu.example.com": with --oidc-issuer'),
        ("--public-url=https://gpu.example.com/console", "it must be https://HOST"),
        ("--public-url=", '--public-url "": with --oidc-issuer'),
        ("--oidc-client-secret-file=/nowhere", '--oidc-client-secret-file "/nowhere": cannot be read'),
        ("--oidc-client-secret-file=/dev/null", '--oidc-client-secret-file "/dev/null": the file is empty'),
        ("--oidc-ca-file=/nowhere", '--oidc-ca-file "/nowhere": cannot be used'),
        ("--oidc-ca-file=/dev/null", '--oidc-ca-file "/dev/null": cannot be used'),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(word: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(*GOOD, word)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("secret", "methods", "header", "form"),
    [
        ("s:ecret", None, "Basic " + base64.b64encode(b"web:s%3Aecret").decode(), {}),
        ("s:ecret", ["client_secret_post", "client_secret_basic"], "Basic d2ViOnMlM0FlY3JldA==", {}),
        ("s:ecret", ["client_secret_post"], "", {"client_id": CLIENT, "client_secret": "s:ecret"}),
        ("", None, "", {"client_id": CLIENT}),
    ],
    ids=["by default", "either", "in the form", "a public client"],
)
async def test_the_client_says_who_it_is_in_the_way_that_the_provider_takes(
    door: Door, secret: str, methods: list[str] | None, header: str, form: dict[str, str]
) -> None:
    """With the code, and with each refresh token."""
    assert door.face.made.logins is not None
    asked = door.face.made.logins.provider
    asked.options = replace(asked.options, client_secret=secret)
    if methods is not None:
        door.provider.metadata = {"token_endpoint_auth_methods_supported": methods}
    door.provider.lifetime = 0.0
    assert (await door.sign_in()).status == 200
    await door.ask("GET", "/api/v3/me")
    assert [each["grant_type"] for each in door.provider.forms] == ["authorization_code", "refresh_token"]
    assert door.provider.headers == [header] * 2
    for sent in door.provider.forms:
        assert {name: value for name, value in sent.items() if name.startswith("client_")} == form


async def test_a_refresh_token_that_is_not_replaced_goes_on_to_be_used(door: Door) -> None:
    door.provider.lifetime = 0.0
    await door.sign_in()
    door.provider.refreshes = False
    for _ in range(2):
        await door.ask("GET", "/api/v3/me")
    assert [each.get("refresh_token") for each in door.provider.forms] == [None, "refresh-1", "refresh-1"]


async def test_a_provider_that_comes_back_is_asked_again_at_the_next_sign_in(door: Door) -> None:
    door.provider.metadata = {"authorization_endpoint": None}
    assert (await door.begin()).status == 502
    door.provider.metadata = {}
    assert (await door.begin()).status == 200


async def test_a_first_sign_in_that_hangs_up_leaves_the_answer_to_the_others(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.face.made.logins is not None
    asked, answers = door.face.made.logins.provider, asyncio.Event()
    read = asked._read_metadata

    async def slowly() -> Any:
        await answers.wait()
        return await read()

    monkeypatch.setattr(asked, "_read_metadata", slowly)
    first, second = (asyncio.ensure_future(asked._fresh()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    answers.set()
    assert (await second).issuer == door.provider.issuer
    assert (first.cancelled(), door.provider.discoveries, asked._reading) == (True, 1, None)


@pytest.mark.parametrize(
    ("url", "back"),
    [
        ("https://gpu.example.com", "https://gpu.example.com/console/callback"),
        ("https://GPU.example.com:8443/", "https://GPU.example.com:8443/console/callback"),
        ("http://localhost:8000", "http://localhost:8000/console/callback"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/console/callback"),
        ("http://[::1]:8000", "http://[::1]:8000/console/callback"),
    ],
)
def test_the_provider_sends_browsers_back_to_the_public_address(url: str, back: str) -> None:
    found = parsed(*GOOD[:2], f"--public-url={url}")
    assert found is not None
    assert found.redirect_uri == back


@pytest.mark.parametrize(
    "url",
    [
        "https://gpu.example.com/?a=1",
        "https://gpu.example.com/#a",
        "https://",
        "ftp://gpu.example.com",
        "gpu.example.com",
        "http://10.0.0.1",
    ],
)
def test_no_other_address_is_public(url: str) -> None:
    with pytest.raises(ConfigError, match="--public-url"):
        parsed(*GOOD[:2], f"--public-url={url}")


@pytest.mark.parametrize("status", [302, 307])
async def test_the_provider_s_answer_leads_nowhere_else(door: Door, status: int) -> None:
    """The secret and the refresh token are for the endpoint of the metadata alone."""
    door.provider.answer, door.provider.leads_to = (status, ""), "/token"
    said = await door.sign_in()
    assert (said.status, f"answers with status {status}" in said.json["detail"]) == (502, True), said.text
    assert len(door.provider.forms) == 1
