"""ID tokens at their exact bounds, and the renewal of a session's token: once, whoever hangs up meanwhile."""

import asyncio
from typing import Any

import pytest

from dovetail.api.reasons import problems as says
from dovetail_gateway.access.callers import caller_of
from dovetail_gateway.access.places import Holder
from dovetail_gateway.access.sessions import Sessions
from dovetail_gateway.access.tokens import token_of
from dovetail_gateway.oidc import id_token
from dovetail_gateway.oidc.errors import AwayError, RefusedError
from dovetail_gateway.oidc.id_token import LEEWAY_SECONDS
from dovetail_gateway.oidc.provider import ProviderOptions, Tokens
from dovetail_gateway.oidc.renewal import RETRY_SECONDS, RenewedSessions
from tests.faults import at_each_await, left_at_each_turn
from tests.gateway.openid import jwt

ISSUER, CLIENT, NOW = "https://id.example", "web", 10_000.0
CLAIMS: dict[str, Any] = {"iss": ISSUER, "sub": "u1", "aud": CLIENT, "exp": NOW + 100, "nonce": "n"}
AWAY = says.PROVIDER_STATUS(issuer=ISSUER, status=503)
RITA = Holder(user="rita", address="10.0.0.1")


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({}, ""),
        ({"iss": ISSUER + "/"}, "of the issuer"),
        ({"aud": "other"}, 'is for "other"'),
        ({"aud": ["other", CLIENT]}, ""),
        ({"aud": []}, "is for"),
        ({"aud": ["other", CLIENT], "azp": CLIENT}, ""),
        ({"aud": ["other", CLIENT], "azp": "other"}, "is for"),
        ({"azp": "other"}, "is for"),
        ({"nonce": "m"}, "its nonce differs"),
        ({"nonce": ""}, "its nonce differs"),
        ({"exp": NOW - LEEWAY_SECONDS + 1}, ""),
        ({"exp": NOW - LEEWAY_SECONDS}, "expired 60 s ago"),
        ({"iat": NOW + LEEWAY_SECONDS}, ""),
        ({"iat": NOW + LEEWAY_SECONDS + 1}, "valid only in 61 s"),
        ({"nbf": NOW + LEEWAY_SECONDS + 1, "iat": NOW}, "valid only in 61 s"),
        ({"nbf": NOW, "iat": NOW + LEEWAY_SECONDS + 1}, "valid only in 61 s"),
    ],
)
def test_an_id_token_is_of_its_issuer_for_this_client_and_sign_in_and_valid_now(
    claims: dict[str, Any], problem: str
) -> None:
    def check() -> None:
        id_token.check(jwt(CLAIMS | claims), issuer=ISSUER, client_id=CLIENT, now=NOW, nonce="n")

    if problem:
        with pytest.raises(RefusedError, match=problem):
            check()
    else:
        check()


@pytest.mark.parametrize("before", [{}, {"sub": "u2"}])
def test_a_renewed_token_is_of_the_user_of_the_one_before_and_needs_no_nonce(before: dict[str, Any]) -> None:
    new, old = jwt(CLAIMS | {"nonce": "", "exp": NOW + 200}), jwt(CLAIMS | before)
    if not before:
        id_token.check(new, issuer=ISSUER, client_id=CLIENT, now=NOW, renewed=old)
        return
    with pytest.raises(RefusedError, match="of another user"):
        id_token.check(new, issuer=ISSUER, client_id=CLIENT, now=NOW, renewed=old)


class World:
    """A session whose token is due, and a provider that takes each refresh token once."""

    def __init__(self) -> None:
        self.now = NOW
        self.options = ProviderOptions(issuer=ISSUER, client_id=CLIENT, public_url="https://console.example")
        self.fails: Exception | None = None
        self.used: list[str] = []
        self.sessions = Sessions(clock=lambda: self.now)
        self.renewed = RenewedSessions(self.sessions, provider=self, clock=lambda: self.now)  # type: ignore[arg-type]
        self.session = self.sessions.open(self.caller(0), holder=RITA, refresh_token="r0")
        self.now += 50

    def caller(self, number: int) -> Any:
        return caller_of(token_of(jwt(CLAIMS | {"jti": number, "exp": NOW + 100 * (number + 1)})))

    async def renew(self, refresh_token: str) -> Tokens:
        await asyncio.sleep(0)
        assert refresh_token not in self.used, "a refresh token is good once"
        self.used.append(refresh_token)
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        number = len(self.used)
        token = self.caller(number).token
        return Tokens(id_token=token.text, refresh_token=f"r{number}")

    async def ask(self) -> Any:
        return await self.renewed.caller_of(self.session)

    async def end(self) -> Any:
        while self.renewed._renewing:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        held = self.sessions.find(self.session)
        return held and (held.caller, held.refresh_token, held.holder), self.used


async def test_a_token_is_renewed_once_whoever_hangs_up_meanwhile() -> None:
    async def make() -> World:
        return World()

    assert await at_each_await(make, journey=World.ask, end=World.end) >= 1


async def test_one_of_two_who_wait_for_a_token_may_leave_at_any_moment() -> None:
    async def make() -> World:
        return World()

    assert await left_at_each_turn(make, journey=World.ask, end=World.end) >= 3


async def test_all_who_ask_meanwhile_get_the_new_token() -> None:
    world = World()
    assert await asyncio.gather(*(world.ask() for _ in range(5))) == [world.caller(1)] * 5
    assert world.used == ["r0"]
    assert await world.ask() == world.caller(1), "not due again"


async def test_a_refusal_ends_the_session_with_its_token_and_an_absence_is_tried_again_after_a_while() -> None:
    refused, away = World(), World()
    refused.fails, away.fails = RefusedError(says.ID_TOKEN_OTHER_USER()), AwayError(AWAY)
    for world in (refused, away):
        assert await world.ask() == world.caller(0)
        world.fails = None
        world.used.clear()
        world.now += RETRY_SECONDS - 1
        assert (await world.ask(), world.used) == (world.caller(0), [])
        world.now += 1
    assert (await refused.ask(), refused.used) == (refused.caller(0), [])
    assert (await away.ask(), away.used) == (away.caller(1), ["r0"])
    refused.now = NOW + 100
    assert await refused.ask() is None


@pytest.mark.parametrize("fails", [None, RefusedError(says.ID_TOKEN_OTHER_USER()), AwayError(AWAY)])
async def test_a_session_that_is_closed_while_its_token_is_renewed_stays_closed(fails: Exception | None) -> None:
    world = World()
    world.fails = fails
    asking = asyncio.ensure_future(world.ask())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.sessions.close(world.session)
    assert (await asking, world.sessions.find(world.session), len(world.sessions._sessions)) == (None, None, 0)


async def test_what_counts_a_request_for_its_user_uses_no_session_and_renews_no_token() -> None:
    world = World()
    assert (world.renewed.holder_of(world.session), world.renewed.holder_of("")) == (world.caller(0), None)
    found = world.sessions.find(world.session)
    assert found is not None
    assert (found.used_at, world.used) == (NOW, [])
