"""What the API server is asked about users, how long an answer counts, and what that costs at most."""

import asyncio
from typing import Any

import pytest

from dovetail.api.access_reviews import Act
from dovetail.kube.errors import Unauthorized
from dovetail_gateway.access.callers import Caller, caller_of
from dovetail_gateway.access.fair_queue import CrowdedError
from dovetail_gateway.access.identities import KNOWN_SECONDS, UNKNOWN_SECONDS, Identity, UserInfo
from dovetail_gateway.access.reviews import (
    ALLOWED_SECONDS,
    DENIED_SECONDS,
    MOST_DENIED,
    SETTLING_SECONDS,
    SHORT_DENIED_SECONDS,
    USER_REVIEWS,
    Reviews,
)
from dovetail_gateway.access.tokens import token_of
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.builders import make_job
from tests.gateway.served import Face

JOBS = "/api/v3/jobs"
READ = Act(verb="list")
READ_RED = Act(verb="list", namespace="red")


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def reviews(face: Face, clock: Clock) -> Reviews:
    return Reviews(face.made.clients, clock=clock)


def caller(token: str) -> Caller:
    return caller_of(token_of(token))


def asked_about(api: GatewayApiServer, user: str) -> list[str]:
    return [namespace for name, verb, namespace in api.reviews if (name, verb) == (user, "list")]


def many_tokens(api: GatewayApiServer, user: User, *, number: int) -> list[str]:
    tokens = [f"{user.name}-{at}" for at in range(number)]
    api.users |= dict.fromkeys(tokens, user)
    return tokens


async def test_all_namespaces_are_asked_for_first_and_single_ones_only_if_that_is_denied(
    api: GatewayApiServer, face: Face
) -> None:
    await face.get(JOBS, token="admin-token")
    assert api.reviews == [("admin", "list", "")]
    await face.get(JOBS, token="red-token")
    assert sorted(asked_about(api, "rita")) == ["", "canaryns", "default", "red"]


async def test_a_namespace_without_jobs_is_seen_by_those_whom_a_rolebinding_of_it_names(
    api: GatewayApiServer, face: Face
) -> None:
    api.users["new-token"] = User("nora", {"new": EDIT, "team": EDIT}, groups=["team-a"])
    assert (await face.get(JOBS, token="new-token")).status == 403
    api.bind("new", user="nora")
    api.bind("team", group="team-a")
    api.bind("everyone", group="system:authenticated")
    async with asyncio.timeout(10):
        while len((me := await face.get("/api/v3/me", token="new-token")).json.get("namespaces", [])) < 2:  # noqa: ASYNC110 - it watches
            await asyncio.sleep(0.01)
    assert me.json["namespaces"] == ["new", "team"]
    assert "everyone" not in asked_about(api, "nora")
    assert (await face.get(JOBS, token="new-token")).json["items"] == []


async def test_a_rolebinding_orders_the_questions_and_answers_none(api: GatewayApiServer, face: Face) -> None:
    api.bind("canaryns", user="rita")
    async with asyncio.timeout(10):
        while not face.made.cache._bindings.namespaces_of(Identity(username="rita")):  # noqa: ASYNC110 - it watches
            await asyncio.sleep(0.01)
    assert (await face.get("/api/v3/me", token="red-token")).json["namespaces"] == ["red"]
    assert asked_about(api, "rita")[:2] == ["", "canaryns"]


async def test_a_namespace_without_jobs_or_bindings_is_asked_about_on_request(
    api: GatewayApiServer, face: Face
) -> None:
    api.users["far-token"] = User("fay", {"far": EDIT})
    refused = await face.get(JOBS, token="far-token")
    assert (refused.status, "?namespace=NAME" in refused.json["detail"]) == (403, True)
    assert "far" not in asked_about(api, "fay")
    assert (await face.get(f"{JOBS}?namespace=far", token="far-token")).status == 200
    assert (await face.get(JOBS, token="far-token")).status == 200, "what was allowed once is asked about again"


async def test_a_dry_run_asks_about_the_namespace_in_its_body(api: GatewayApiServer, face: Face) -> None:
    api.users["far-token"] = User("fay", {"far": EDIT})
    spec = {"gpu": 1, "template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}}
    found = await face.ask("POST", "/api/v3/dry-run", token="far-token", json={"namespace": "far", "spec": spec})
    assert found.status == 200


async def test_quotas_and_pods_with_devices_make_their_namespace_one_that_is_asked_about(
    api: GatewayApiServer, face: Face
) -> None:
    api.put(
        "gpuquotas", {"metadata": {"name": "q", "uid": "q"}, "spec": {"namespaces": ["limited"], "limit": {"gpus": 1}}}
    )
    plain = {"metadata": {"name": "p", "namespace": "plain", "uid": "p1"}, "spec": {"containers": [{"name": "m"}]}}
    api.put("pods", plain)
    vendor = {"metadata": {"name": "v", "namespace": "vendor", "uid": "v1"}, "spec": {"containers": [{"name": "m"}]}}
    vendor["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    api.put("pods", vendor)
    async with asyncio.timeout(10):
        while len(face.made.cache._namespaces) < 5:  # noqa: ASYNC110 - it watches
            await asyncio.sleep(0.01)
    assert set(face.made.cache._namespaces) == {"default", "red", "canaryns", "limited", "vendor"}
    api.delete("gpuquotas", "q")
    api.delete("pods", "vendor/v")
    for job in ("red/train", "canaryns/canaryjob"):
        api.delete("gpujobs", job)
    api.delete("pods", "red/train-0")
    api.delete("pods", "canaryns/canarypod")
    async with asyncio.timeout(10):
        while len(face.made.cache._namespaces) > 1:  # noqa: ASYNC110 - it watches
            await asyncio.sleep(0.01)


async def test_a_caller_without_rights_costs_a_bounded_number_of_reviews_whatever_number_of_tokens_it_has(
    api: GatewayApiServer, face: Face
) -> None:
    for at in range(3 * MOST_DENIED):
        api.put("gpujobs", make_job("j", namespace=f"ns-{at}"))
    async with asyncio.timeout(10):
        while len(face.made.cache._namespaces) < 3 * MOST_DENIED:  # noqa: ASYNC110 - it watches
            await asyncio.sleep(0.01)
    tokens = many_tokens(api, User("eve"), number=30)
    found = await asyncio.gather(*(face.get(JOBS, token=token) for token in tokens))
    assert {each.status for each in found} == {403}
    assert len(asked_about(api, "eve")) == 1 + MOST_DENIED
    assert api.identified.count("eve") == 30, "once for each token"


MANY = [f"ns-{at}" for at in range(200)]


async def test_a_caller_with_rolebindings_sees_all_their_namespaces_and_costs_little_more(
    api: GatewayApiServer, reviews: Reviews
) -> None:
    api.users["wide-token"] = User("wim", dict.fromkeys(MANY[:100], EDIT))
    found = await reviews.visibility(caller("wide-token"), likely=MANY[:120], others=MANY)
    assert found.namespaces == set(MANY[:100])
    assert len(asked_about(api, "wim")) == 1 + 120 + MOST_DENIED


async def test_a_caller_whose_rights_come_from_elsewhere_sees_them_all(api: GatewayApiServer, reviews: Reviews) -> None:
    api.users["wide-token"] = User("wim", dict.fromkeys(MANY[1::2], EDIT))
    found = await reviews.visibility(caller("wide-token"), likely=(), others=MANY)
    assert found.namespaces == set(MANY[1::2])


async def test_one_namespace_on_request_shows_that_rights_come_from_elsewhere(
    api: GatewayApiServer, reviews: Reviews
) -> None:
    api.users["far-token"] = User("fay", dict.fromkeys(MANY[150:], EDIT))
    fay = caller("far-token")
    assert (await reviews.visibility(fay, likely=(), others=MANY)).namespaces == frozenset()
    assert (await reviews.visibility(fay, likely=["ns-199"], others=MANY)).namespaces == {"ns-199"}
    assert (await reviews.visibility(fay, likely=(), others=MANY)).namespaces == set(MANY[150:])


async def test_what_was_allowed_once_is_asked_about_whatever_rolebindings_say(
    api: GatewayApiServer, reviews: Reviews
) -> None:
    api.users["far-token"] = User("fay", dict.fromkeys(MANY[150:], EDIT))
    fay = caller("far-token")
    assert (await reviews.visibility(fay, likely=["ns-199"], others=MANY)).namespaces == {"ns-199"}
    assert (await reviews.visibility(fay, likely=["ns-0"], others=MANY)).namespaces == set(MANY[150:])


async def test_an_answer_counts_for_its_time(api: GatewayApiServer, reviews: Reviews, clock: Clock) -> None:
    for now in (0.0, ALLOWED_SECONDS * 0.8, ALLOWED_SECONDS * 1.01):
        clock.now = now
        assert await reviews.may(caller("red-token"), act=READ_RED)
    assert asked_about(api, "rita") == ["red", "red"]


@pytest.mark.parametrize(
    ("act", "seconds"),
    [
        (READ, SHORT_DENIED_SECONDS),
        (READ_RED, DENIED_SECONDS),
        (Act(verb="watch", namespace="red"), SHORT_DENIED_SECONDS),
        (Act(verb="create", namespace="red"), SHORT_DENIED_SECONDS),
    ],
)
async def test_a_denial_counts_for_its_time(
    api: GatewayApiServer, reviews: Reviews, clock: Clock, act: Act, seconds: float
) -> None:
    for now in (0.0, seconds * 0.8, seconds * 1.01):
        clock.now = now
        assert not await reviews.may(caller("nobody-token"), act=act)
    assert api.reviews == [("nina", act.verb, act.namespace)] * 2


async def test_a_denial_ends_where_rights_change_and_counts_little_until_all_know_of_the_change(
    api: GatewayApiServer, reviews: Reviews, clock: Clock
) -> None:
    assert not await reviews.may(caller("nobody-token"), act=READ_RED)
    clock.now = 1.0
    reviews.rights_changed("red")
    clock.now = 2.0
    assert not await reviews.may(caller("nobody-token"), act=READ_RED), "the authorizer does not know yet"
    api.users["nobody-token"].verbs["red"] = EDIT
    assert not await reviews.may(caller("nobody-token"), act=READ_RED)
    clock.now = 2.0 + SETTLING_SECONDS
    assert await reviews.may(caller("nobody-token"), act=READ_RED)


async def test_two_tokens_of_one_identity_share_answers(api: GatewayApiServer, reviews: Reviews) -> None:
    one, two = many_tokens(api, User("rita", {"red": EDIT}), number=2)
    assert [await reviews.may(caller(token), act=READ_RED) for token in (one, two)] == [True, True]
    assert (len(api.reviews), len(api.identified)) == (1, 2)


@pytest.mark.parametrize("other", [User("rita", groups=["more"]), User("rita", extra={"scope": ["read"]})])
async def test_answers_are_for_the_whole_identity(api: GatewayApiServer, reviews: Reviews, other: User) -> None:
    api.users["other-token"] = other
    assert await reviews.may(caller("red-token"), act=READ_RED)
    assert not await reviews.may(caller("other-token"), act=READ_RED)


def test_an_identity_is_all_but_the_credential_in_any_order() -> None:
    one = UserInfo(username="u", uid="1", groups=["a", "b"], extra={"x": ["1", "2"], "y": ["3"]})
    credential = {"authentication.kubernetes.io/credential-id": ["JTI=1"]}
    same = UserInfo(username="u", uid="1", groups=["b", "a"], extra={"y": ["3"], "x": ["2", "1"], **credential})
    assert Identity.of(one).key == Identity.of(same).key
    others = [
        UserInfo(username="v", uid="1", groups=["a", "b"], extra=one.extra),
        UserInfo(username="u", uid="2", groups=["a", "b"], extra=one.extra),
        UserInfo(username="u", uid="1", groups=["a"], extra=one.extra),
        UserInfo(username="u", uid="1", groups=["a", "b"], extra={"x": ["1", "2"]}),
    ]
    assert len({Identity.of(each).key for each in [one, *others]}) == 5


async def test_a_token_that_is_deleted_ends_although_another_of_its_user_lives(
    api: GatewayApiServer, reviews: Reviews, clock: Clock
) -> None:
    one, two = many_tokens(api, User("rita", {"red": EDIT}), number=2)
    await reviews.may(caller(one), act=READ_RED)
    await reviews.may(caller(two), act=READ_RED)
    del api.users[one]
    clock.now = KNOWN_SECONDS * 0.9
    await reviews.may(caller(two), act=READ_RED, oldest=1.0)
    clock.now = KNOWN_SECONDS * 1.01
    with pytest.raises(Unauthorized):
        await reviews.may(caller(one), act=READ_RED)
    assert await reviews.may(caller(two), act=READ_RED)


async def test_who_was_asked_about_in_the_last_minute_is_known_without_a_question(
    api: GatewayApiServer, reviews: Reviews, clock: Clock
) -> None:
    """Limits count by the name then, so that an old answer would count one user's requests for another one."""
    rita, found = caller("red-token"), list[bool]()
    await reviews.who(rita)
    for seconds in (KNOWN_SECONDS * 0.99, KNOWN_SECONDS):
        clock.now = seconds
        found.append(reviews.identities.known(rita) is not None)
    assert (found, api.identified, reviews.identities.known(caller("no-token"))) == ([True, False], ["rita"], None)


async def test_of_many_tokens_those_used_last_stay_known_of_one_user_and_of_all(
    api: GatewayApiServer, reviews: Reviews, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail_gateway.access.identities._MOST_OF_ONE", 2)
    monkeypatch.setattr("dovetail_gateway.access.identities._MOST", 3)
    ann, bob = many_tokens(api, User("ann"), number=3), many_tokens(api, User("bob"), number=2)

    async def known_after(*tokens: str) -> list[str]:
        for token in tokens:
            await reviews.who(caller(token))
        return [each for each in [*ann, *bob] if reviews.identities.known(caller(each)) is not None]

    assert await known_after(ann[0], ann[1], ann[0], ann[2]) == [ann[0], ann[2]]
    assert await known_after(bob[0], ann[0], bob[1]) == [ann[0], bob[0], bob[1]]
    api.users |= {f"a-{at}": User(f"system:serviceaccount:red:a{at}") for at in range(5)}
    assert await known_after(*(f"a-{at}" for at in range(5))) == [bob[1]], "accounts of one namespace are as one user"


async def test_a_known_user_is_asked_about_again_in_its_own_turn_and_not_in_that_of_its_address(
    api: GatewayApiServer, reviews: Reviews, clock: Clock
) -> None:
    await reviews.who(caller("red-token"), address="192.0.2.1")
    clock.now = KNOWN_SECONDS
    turns = list[str]()
    queue = reviews.identities._queue
    slot = queue.slot

    def slot_of(user: str) -> Any:
        turns.append(user)
        return slot(user)

    queue.slot = slot_of  # type: ignore[method-assign]
    for token in ("red-token", "reader-token"):
        await reviews.who(caller(token), address="192.0.2.1")
    assert turns == ["rita", "address 192.0.2.1"]


async def test_an_unknown_token_is_asked_about_once_in_a_while(
    api: GatewayApiServer, reviews: Reviews, clock: Clock
) -> None:
    for now in (0.0, UNKNOWN_SECONDS * 0.9):
        clock.now = now
        with pytest.raises(Unauthorized):
            await reviews.who(caller("late-token"))
    api.users["late-token"] = User("lea")
    clock.now = UNKNOWN_SECONDS * 1.01
    assert (await reviews.who(caller("late-token"))).username == "lea"


async def test_the_answer_of_a_token_that_ends_meanwhile_is_asked_for_with_the_next(
    api: GatewayApiServer, reviews: Reviews
) -> None:
    one, two = many_tokens(api, User("rita", {"red": EDIT}), number=2)
    for token in (one, two):
        await reviews.who(caller(token))
    del api.users[one]
    asking = [asyncio.ensure_future(reviews.may(caller(token), act=READ_RED)) for token in (one, two)]
    first, second = await asyncio.gather(*asking, return_exceptions=True)
    assert (second, isinstance(first, Unauthorized)) == (True, True)


async def test_a_review_that_no_one_waits_for_ends_and_the_next_asks_anew(
    api: GatewayApiServer, reviews: Reviews
) -> None:
    api.reviewing.clear()
    await reviews.who(caller("red-token"))
    asking = [asyncio.ensure_future(reviews.may(caller("red-token"), act=READ_RED)) for _ in range(2)]
    while not len(reviews._queue):  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.wait(asking[:1])
    assert len(reviews._calls) == 1, "another still waits"
    asking[1].cancel()
    await asyncio.wait(asking)
    await asyncio.sleep(0)
    assert (len(reviews._calls), len(reviews._queue)) == (0, 0)
    api.reviewing.set()
    assert await reviews.may(caller("red-token"), act=READ_RED)


async def test_the_reviews_of_one_user_are_limited_whatever_identities_it_has(
    api: GatewayApiServer, reviews: Reviews, clock: Clock
) -> None:
    api.users |= {f"pod-{at}": User("fleet", extra={"pod": [str(at)]}) for at in range(3)}
    for _ in range(USER_REVIEWS.burst - 1):
        reviews._budgets.spend("fleet")
    assert not await reviews.may(caller("pod-0"), act=READ)
    with pytest.raises(CrowdedError) as refused:
        await reviews.may(caller("pod-1"), act=READ)
    assert 0 < refused.value.wait_seconds <= 1
    assert await reviews.may(caller("red-token"), act=READ_RED), "of others not"
    clock.now = 1.0
    assert not await reviews.may(caller("pod-2"), act=READ)


async def test_the_reviews_of_all_service_accounts_of_a_namespace_are_limited_together(
    api: GatewayApiServer, reviews: Reviews
) -> None:
    api.users |= {f"a-{at}": User(f"system:serviceaccount:red:a{at}") for at in range(2)}
    for _ in range(USER_REVIEWS.burst - 1):
        reviews._budgets.spend("system:serviceaccounts:red")
    assert not await reviews.may(caller("a-0"), act=READ)
    with pytest.raises(CrowdedError):
        await reviews.may(caller("a-1"), act=READ)


async def test_who_is_refused_for_its_reviews_gets_429(api: GatewayApiServer, face: Face) -> None:
    for _ in range(USER_REVIEWS.burst + 1000):
        face.made.reviews._budgets.spend("rita")
    found = await face.get(JOBS, token="red-token")
    assert (found.status, found.json["reason"]) == (429, "TooManyRequests")
    assert int(found.headers["Retry-After"]) >= 1


async def test_a_right_that_is_taken_away_ends_with_the_kept_answer(
    api: GatewayApiServer, reviews: Reviews, clock: Clock
) -> None:
    rita = caller("red-token")
    assert (await reviews.visibility(rita, likely=(), others=["red"])).namespaces == {"red"}
    api.users["red-token"].verbs.clear()
    clock.now = ALLOWED_SECONDS * 1.01
    assert (await reviews.visibility(rita, likely=(), others=["red"])).namespaces == frozenset()


async def test_what_is_kept_has_a_bound(
    api: GatewayApiServer, reviews: Reviews, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail_gateway.access.reviews._MOST_KEPT", 6)
    monkeypatch.setattr("dovetail_gateway.access.reviews._MOST_KEPT_OF_ONE", 4)
    monkeypatch.setattr("dovetail_gateway.access.identities._MOST_OF_ONE", 2)
    monkeypatch.setattr("dovetail_gateway.access.identities._MOST", 3)
    for token in (*many_tokens(api, User("a"), number=5), *many_tokens(api, User("b"), number=2)):
        for at in range(5):
            await reviews.may(caller(token), act=Act(verb="list", namespace=f"n{at}"))
    assert sum(map(len, reviews._kept.values())) == reviews._number <= 6
    tokens = reviews.identities._tokens
    assert len(tokens.kept) == sum(map(len, tokens.of_tenant.values())) <= 3


async def test_of_more_answers_than_are_kept_those_of_who_asked_last_stay(
    api: GatewayApiServer, reviews: Reviews, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail_gateway.access.reviews._MOST_KEPT", 2)
    for token in (many_tokens(api, User(name), number=1)[0] for name in ("a", "b")):
        await reviews.may(caller(token), act=READ_RED)
    first = many_tokens(api, User("a"), number=1)[0]
    await reviews.may(caller(first), act=READ_RED)
    before = len(api.reviews)
    await reviews.may(caller(many_tokens(api, User("c"), number=1)[0]), act=READ_RED)
    await reviews.may(caller(first), act=READ_RED)
    assert [name for name, _, _ in api.reviews[before:]] == ["c"], "b asked longest ago"
