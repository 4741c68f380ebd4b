"""Limits of requests by user and by address, also behind proxies."""

import asyncio
import ipaddress
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from multidict import CIMultiDict

from dovetail.process.rate_limit import Allowance
from dovetail_gateway.access.limits import MOST_USERS, Addresses, Budgets, RateLimit, Rates, source
from dovetail_gateway.app import Options
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.served import serving

JOBS = "/api/v3/jobs"
PROXIES = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8"))
LOCAL_PROXY = (ipaddress.ip_network("127.0.0.0/8"),)


def test_one_address_cannot_use_up_the_requests_of_another_but_all_share_a_limit() -> None:
    limit = RateLimit(Rates(each=1.0, all=1.5), clock=lambda: 0.0)
    assert [limit.wait_of_address("a") > 0 for _ in range(4)] == [False, False, True, True]
    assert limit.wait_of_address("b") == 0
    assert limit.wait_of_address("b") > 0, "together they have sent three at once"


def test_a_rate_below_one_in_two_seconds_lets_one_request_through() -> None:
    now = [0.0]
    limit = RateLimit(Rates(each=0.25, all=0.25), clock=lambda: now[0])
    assert [limit.wait_of_user("rita"), limit.wait_of_user("rita")] == [0, 4]
    now[0] = 4.0
    assert limit.wait_of_user("rita") == 0


def test_users_have_a_limit_of_their_own_that_no_address_uses_up() -> None:
    limit = RateLimit(Rates(each=1.0, all=1.0), clock=lambda: 0.0)
    assert [limit.wait_of_address("a") > 0 for _ in range(3)] == [False, False, True]
    assert [limit.wait_of_user("rita") > 0 for _ in range(3)] == [False, False, True]
    assert limit.wait_of_user("rob") == 0


def test_more_service_accounts_of_a_namespace_send_no_more_requests() -> None:
    limit = RateLimit(Rates(each=1.0, all=1.0), clock=lambda: 0.0)
    waits = [limit.wait_of_user(f"system:serviceaccount:red:{at}") for at in range(2 * MOST_USERS + 1)]
    assert [wait > 0 for wait in waits] == [False] * 2 * MOST_USERS + [True]
    assert limit.wait_of_user("system:serviceaccount:blue:0") == limit.wait_of_user("rita") == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_request_counts_once_for_each_limit_and_a_refused_one_for_none(seed: int) -> None:
    rng, now = Random(seed), 0.0
    limit = RateLimit(Rates(each=1.0, all=2.0), clock=lambda: now)
    # Of each bucket: its tokens, and when they were counted.
    each, every = (2.0, 1.0), (4.0, 2.0)
    buckets: dict[str, tuple[float, float]] = {}

    def tokens(key: str, *, burst: float, rate: float) -> float:
        left, at = buckets.get(key, (burst, now))
        return min(burst, left + (now - at) * rate)

    for _ in range(400):
        now += rng.choice([0.0, 0.0, 0.125, 0.5])
        user, address = rng.choice([("ann", ""), ("bob", ""), ("", "a"), ("", "b"), ("", "c"), ("", "d")])
        if user:
            counted = {f"user {user}": each}
            found = limit.wait_of_user(user)
        else:
            counted = {f"address {address}": each, "all": every}
            found = limit.wait_of_address(address)
        left = {key: tokens(key, burst=of[0], rate=of[1]) for key, of in counted.items()}
        is_taken = all(amount >= 1 for amount in left.values())
        wanted = max((1 - amount) / counted[key][1] for key, amount in left.items())
        assert found == pytest.approx(0.0 if is_taken else wanted), (user, address)
        if is_taken:
            buckets |= {key: (amount - 1, now) for key, amount in left.items()}


def test_of_more_users_than_are_counted_those_who_spent_last_keep_their_debt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_gateway.access.limits._MOST_KEYS", 2)
    budgets = Budgets(Allowance(burst=2, every_seconds=10.0), clock=lambda: 0.0)
    for user in ("ann", "bob", "ann", "carl"):
        budgets.spend(user)
    assert [budgets.wait_seconds(user) for user in ("ann", "bob", "carl")] == [10.0, 0.0, 0.0]
    assert len(budgets._spendings) == 2


def test_a_limit_counts_all_addresses_of_an_ipv6_network_as_one() -> None:
    assert source("2001:db8::1") == source("2001:db8::ffff:1") == "2001:db8::/64"
    assert source("2001:db8:0:1::1") != source("2001:db8::1")
    assert (source("192.0.2.1"), source("::ffff:192.0.2.1"), source("")) == ("192.0.2.1", "::ffff:192.0.2.1", "")


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", [], "203.0.113.9"),
        ("203.0.113.9", ["192.0.2.1"], "203.0.113.9"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["198.51.100.7, 192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["198.51.100.7, 192.0.2.1, 10.0.0.2"], "192.0.2.1"),
        ("10.0.0.1", ["198.51.100.7", "192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["192.0.2.1, x"], "10.0.0.1"),
        ("10.0.0.1", ["x, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["10.0.0.3"], "10.0.0.3"),
        ("::ffff:10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("fd00::1", ["2001:db8::1"], "2001:db8::1"),
        ("", ["192.0.2.1"], ""),
    ],
)
def test_a_forwarded_address_counts_only_as_far_as_trusted_proxies_wrote_it(
    peer: str, forwarded: Sequence[str], client: str
) -> None:
    assert Addresses(PROXIES).client(peer, forwarded=forwarded) == client


async def test_too_many_requests_are_refused_before_authentication(api: GatewayApiServer) -> None:
    async with serving(api, options=Options(rates=Rates(each=1, all=100))) as face:
        found = [await face.get(JOBS) for _ in range(3)]
    assert [each.status for each in found] == [401, 401, 429]
    assert int(found[-1].headers["Retry-After"]) >= 1


async def test_who_is_known_is_not_refused_for_what_others_of_the_address_send(api: GatewayApiServer) -> None:
    async with serving(api, options=Options(rates=Rates(each=2, all=100))) as face:
        assert (await face.get(JOBS, token="red-token")).status == 200
        crowd = await asyncio.gather(*(face.get("/console/session") for _ in range(5)))
        assert 429 in [each.status for each in crowd]
        assert (await face.get(JOBS, token="red-token")).status == 200


async def test_a_session_is_known_as_its_user(api: GatewayApiServer) -> None:
    async with serving(api, options=Options(rates=Rates(each=3, all=100))) as face:
        page = {"Sec-Fetch-Site": "same-origin", "X-Dovetail-Console": "1"}
        signed = await face.ask("POST", "/console/session", headers=page, json={"token": "red-token"})
        assert signed.status == 200
        crowd = await asyncio.gather(*(face.get("/console/session", headers={"Cookie": ""}) for _ in range(9)))
        assert 429 in [each.status for each in crowd]
        cookie = signed.headers["Set-Cookie"].partition(";")[0]
        assert (await face.get("/console/session", headers=page | {"Cookie": cookie})).json["signedIn"]


async def test_many_tokens_of_one_user_share_the_users_limit(api: GatewayApiServer) -> None:
    api.users |= {f"red-{at}": User("rita", {"red": EDIT}) for at in range(6)}
    async with serving(api, options=Options(rates=Rates(each=3, all=1000), proxies=LOCAL_PROXY)) as face:

        async def status(at: int) -> int:
            sent = {"X-Forwarded-For": f"192.0.2.{at}"}
            return (await face.get(JOBS, token=f"red-{at}", headers=sent)).status

        first = await asyncio.gather(*map(status, range(6)))
        second = await asyncio.gather(*map(status, [*range(6)] * 4))
    assert first == [200] * 6
    assert second.count(429) >= 12, "a burst of six was theirs, and three a second"


async def test_clients_behind_a_trusted_proxy_have_limits_of_their_own(api: GatewayApiServer) -> None:
    async with serving(api, options=Options(rates=Rates(each=1, all=100), proxies=LOCAL_PROXY)) as face:
        one = await asyncio.gather(*(face.get(JOBS, headers={"X-Forwarded-For": "192.0.2.1"}) for _ in range(3)))
        two = await face.get(JOBS, headers={"X-Forwarded-For": "192.0.2.2"})
    assert (sorted(each.status for each in one), two.status) == ([401, 401, 429], 401)


async def test_a_header_of_a_client_that_is_no_proxy_changes_no_limit(api: GatewayApiServer) -> None:
    async with serving(api, options=Options(rates=Rates(each=1, all=100))) as face:
        sent = [{"X-Forwarded-For": f"192.0.2.{at}"} for at in range(3)]
        found = await asyncio.gather(*(face.get(JOBS, headers=headers) for headers in sent))
    assert sorted(each.status for each in found) == [401, 401, 429]


async def test_a_request_that_a_proxy_of_this_machine_passes_on_is_no_request_of_this_machine(
    api: GatewayApiServer,
) -> None:
    api.users[""] = api.users["admin-token"]
    options = Options(rates=None, anonymous_loopback=True, proxies=LOCAL_PROXY)
    async with serving(api, options=options) as face:
        assert (await face.get(JOBS)).status == 200
        assert (await face.get(JOBS, headers={"X-Forwarded-For": "192.0.2.1"})).status == 401


async def test_a_proxy_that_adds_a_header_of_its_own_is_read_to_the_last_one(api: GatewayApiServer) -> None:
    """Several values are one list: what the client has sent itself comes first."""
    async with serving(api, options=Options(rates=Rates(each=1, all=100), proxies=LOCAL_PROXY)) as face:
        found = []
        for at in range(3):
            sent = CIMultiDict([("X-Forwarded-For", f"198.51.100.{at}"), ("X-Forwarded-For", "192.0.2.1")])
            async with face.session.get(face.url + JOBS, headers=sent) as response:
                found.append(response.status)
    assert found == [401, 401, 429]


async def test_who_is_not_known_yet_takes_its_turn_by_its_address(api: GatewayApiServer) -> None:
    async with serving(api, options=Options(rates=None, proxies=LOCAL_PROXY)) as face:
        queue, turns = face.made.reviews.identities._queue, list[str]()
        slot = queue.slot

        def slot_of(user: str) -> Any:
            turns.append(user)
            return slot(user)

        queue.slot = slot_of  # type: ignore[method-assign]
        for token, address in (("red-token", "192.0.2.1"), ("admin-token", "2001:db8::1")):
            await face.get(JOBS, token=token, headers={"X-Forwarded-For": address})
    assert turns == ["address 192.0.2.1", "address 2001:db8::1"]
