"""Kept identities and rights over time, beside the times at which tokens and rights came and went.

No answer may be older than it says, whatever was asked before, with which token, and however slow the API server was.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dovetail.api.access_reviews import Act
from dovetail.api.resources import SELFSUBJECTREVIEWS
from dovetail.kube.errors import Status, Unauthorized
from dovetail_gateway.access.callers import Caller, caller_of
from dovetail_gateway.access.identities import KNOWN_SECONDS, UNKNOWN_SECONDS
from dovetail_gateway.access.reviews import (
    ALLOWED_SECONDS,
    DENIED_SECONDS,
    SETTLING_SECONDS,
    SHORT_DENIED_SECONDS,
    Reviews,
)
from dovetail_gateway.access.tokens import token_of

# By token: a user and a group. Two tokens are of one identity, and two identities have one name.
USERS: Final = {"one": ("ann", ""), "two": ("ann", ""), "more": ("ann", "staff"), "bob": ("bob", "")}
NAMESPACES: Final = ("", "red", "blue")
ACTS: Final = tuple(Act(verb=verb, namespace=name) for verb in ("list", "watch") for name in NAMESPACES)
Right = tuple[tuple[str, str], Act]
LONG_AGO: Final = -1e9


class Cluster:
    """An API server that answers by tokens and rights, as a client for each caller. It decides before it is slow.

    `known` and `granted` say when each token and right came or went last, and whether it is there.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.slow_seconds = 0.0
        self.ends_meanwhile = False
        self.known = dict.fromkeys(USERS, (LONG_AGO, True))
        self.granted = {(user, act): (LONG_AGO, False) for user in USERS.values() for act in ACTS}
        self.requests = 0

    @asynccontextmanager
    async def client_for(self, caller: Caller) -> AsyncIterator["_Client"]:
        assert caller.token is not None
        yield _Client(self, caller.token.text)

    def end(self, token: str) -> None:
        """End the token, and all rights of its user."""
        self.known[token] = (self.now, False)
        for key, (_, there) in self.granted.items():
            if there and key[0] == USERS[token]:
                self.granted[key] = (self.now, False)


class _Client:
    def __init__(self, cluster: Cluster, token: str) -> None:
        self._cluster = cluster
        self._token = token

    async def create(self, resource: Any, *, body: Any, as_type: Any) -> Any:
        cluster, (user, group) = self._cluster, USERS[self._token]
        cluster.requests += 1
        await asyncio.sleep(0)
        known = cluster.known[self._token][1]
        status = {"userInfo": {"username": user, "groups": [group]}}
        if known and resource is not SELFSUBJECTREVIEWS:
            asked = body["spec"]["resourceAttributes"]
            act = Act(verb=asked["verb"], namespace=asked.get("namespace", ""))
            status = {"allowed": cluster.granted[(user, group), act][1]}
        if cluster.slow_seconds and cluster.ends_meanwhile:
            cluster.end(self._token)
        cluster.now += cluster.slow_seconds
        if not known:
            raise Unauthorized(Status(code=401))
        return msgspec.convert({"status": status}, as_type)


def _drawn_from(part: str) -> st.SearchStrategy[Any]:
    """One of those with which this example plays."""
    return st.runner().flatmap(lambda machine: st.sampled_from(getattr(machine, part)))


TOKEN: Final = _drawn_from("tokens")
ACT: Final = _drawn_from("acts")


class ReviewsMachine(RuleBasedStateMachine):
    """Callers ask while their tokens and rights come and go.

    An example plays with some tokens and acts alone: so many a step is the second or third about the same one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.runner = asyncio.Runner()
        self.reviews = Reviews(self.cluster, clock=lambda: self.cluster.now)  # type: ignore[arg-type]
        self.bound: dict[Right, float] = {}

    def teardown(self) -> None:
        self.runner.close()

    @initialize(
        tokens=st.one_of(st.just(sorted(USERS)), st.lists(st.sampled_from(sorted(USERS)), min_size=1, max_size=2)),
        acts=st.one_of(st.just(ACTS), st.lists(st.sampled_from(ACTS), min_size=1, max_size=2)),
    )
    def plays_with(self, tokens: list[str], acts: list[Act]) -> None:
        self.tokens, self.acts = tokens, acts

    @rule(token=TOKEN)
    def token_comes_or_goes(self, token: str) -> None:
        self.cluster.known[token] = (self.cluster.now, not self.cluster.known[token][1])

    @rule(token=TOKEN, act=ACT, by_binding=st.booleans())
    def right_changes(self, token: str, act: Act, by_binding: bool) -> None:
        key = (USERS[token], act)
        self.cluster.granted[key] = (self.cluster.now, not self.cluster.granted[key][1])
        self.bound.pop(key, None)
        if by_binding:
            self.reviews.rights_changed(act.namespace)
            self.bound[key] = self.cluster.now
        self.cluster.now += 0.001

    @rule(seconds=st.sampled_from([1.0, 14.0, 30.0, 59.0, 61.0, 250.0]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.now += seconds

    @rule(seconds=st.sampled_from([0.0, 0.0, 4.0]), ends_meanwhile=st.booleans())
    def server_answers_after(self, seconds: float, ends_meanwhile: bool) -> None:
        self.cluster.slow_seconds, self.cluster.ends_meanwhile = seconds, ends_meanwhile

    @rule(token=TOKEN, oldest=st.sampled_from([5.0, KNOWN_SECONDS]))
    def who_is_it(self, token: str, oldest: float) -> None:
        began, caller = self.cluster.now, caller_of(token_of(token))
        changed_at, there = self.cluster.known[token]
        try:
            found = self.runner.run(self.reviews.identities.of(caller, oldest=oldest))
        except Unauthorized:
            assert not there or changed_at > began - UNKNOWN_SECONDS
            assert self.reviews.identities.known(caller) is None
            return
        assert there or changed_at > began - min(KNOWN_SECONDS, oldest)
        assert (found.username, found.groups) == (USERS[token][0], (USERS[token][1],))

    @rule(token=TOKEN, act=ACT, oldest=st.sampled_from([5.0, ALLOWED_SECONDS]))
    def may_it(self, token: str, act: Act, oldest: float) -> None:
        began = self.cluster.now
        try:
            allowed = self.runner.run(self.reviews.may(caller_of(token_of(token)), act=act, oldest=oldest))
        except Unauthorized:
            return
        self._judge(token, act=act, allowed=allowed, began=began, oldest=oldest)

    @rule(act=ACT)
    def all_ask_at_once(self, act: Act) -> None:
        """Those of one name too: each gets the answer of its own identity."""
        began = self.cluster.now

        async def ask() -> list[bool | BaseException]:
            asking = (self.reviews.may(caller_of(token_of(token)), act=act) for token in USERS)
            return await asyncio.gather(*asking, return_exceptions=True)

        for token, found in zip(USERS, self.runner.run(ask()), strict=True):
            if isinstance(found, bool):
                self._judge(token, act=act, allowed=found, began=began, oldest=ALLOWED_SECONDS)
            else:
                assert isinstance(found, Unauthorized)

    @rule(token=TOKEN, act=ACT)
    def a_binding_that_gives_a_right_counts_soon(self, token: str, act: Act) -> None:
        """However often rights in the namespace have changed before, and whatever was denied meanwhile."""
        if self.cluster.granted[USERS[token], act][1]:
            self.right_changes(token, act, by_binding=True)
            self.cluster.now += ALLOWED_SECONDS
        self.may_it(token, act, oldest=ALLOWED_SECONDS)
        self.right_changes(token, act, by_binding=True)
        self.cluster.now += 2 * SETTLING_SECONDS
        self.may_it(token, act, oldest=ALLOWED_SECONDS)

    @rule(token=TOKEN)
    def a_right_that_ends_counts_no_longer_than_asked(self, token: str) -> None:
        act = Act(verb="list", namespace="red")
        if not self.cluster.granted[USERS[token], act][1]:
            self.a_binding_that_gives_a_right_counts_soon(token, act)
        self.what_does_it_see(token, oldest=ALLOWED_SECONDS)
        self.right_changes(token, act, by_binding=False)
        self.cluster.now += 10.0
        self.what_does_it_see(token, oldest=5.0)

    def _judge(self, token: str, *, act: Act, allowed: bool, began: float, oldest: float) -> None:
        key = (USERS[token], act)
        changed_at, there = self.cluster.granted[key]
        if allowed:
            assert there or changed_at > began - min(ALLOWED_SECONDS, oldest), "allowed by an old answer"
        elif there:
            counts = DENIED_SECONDS if act.verb == "list" and act.namespace else SHORT_DENIED_SECONDS
            if key in self.bound:
                counts = 2 * SETTLING_SECONDS
            assert changed_at > began - counts, "denied by an old answer"

    @rule(token=TOKEN, act=ACT)
    def asked_again_at_once_it_costs_nothing(self, token: str, act: Act) -> None:
        caller, self.cluster.slow_seconds = caller_of(token_of(token)), 0.0
        try:
            first = self.runner.run(self.reviews.may(caller, act=act))
            requests = self.cluster.requests
            assert self.runner.run(self.reviews.may(caller, act=act)) == first
        except Unauthorized:
            return
        assert self.cluster.requests == requests

    @rule(token=TOKEN, oldest=st.sampled_from([5.0, ALLOWED_SECONDS]))
    def what_does_it_see(self, token: str, oldest: float) -> None:
        began, caller = self.cluster.now, caller_of(token_of(token))
        try:
            found = self.runner.run(
                self.reviews.visibility(caller, likely=["red"], others=NAMESPACES[1:], oldest=oldest)
            )
        except Unauthorized:
            return
        for name in NAMESPACES:
            changed_at, there = self.cluster.granted[USERS[token], Act(verb="list", namespace=name)]
            if found.everything if not name else name in (found.namespaces or ()):
                assert there or changed_at > began - min(ALLOWED_SECONDS, oldest), "seen by an old answer"

    @invariant()
    def nothing_is_left(self) -> None:
        reviews, tokens = self.reviews, self.reviews.identities._tokens
        assert (len(reviews._queue), len(reviews._calls), len(reviews.identities._calls)) == (0, 0, 0)
        assert reviews._number == sum(map(len, reviews._kept.values()))
        assert sorted(tokens.kept) == sorted(key for own in tokens.of_tenant.values() for key in own)


def test_an_answer_is_as_old_as_its_question() -> None:
    """What ends while the API server's answer is under way counts no longer for that."""
    cluster, act, caller = Cluster(), Act(verb="list", namespace="red"), caller_of(token_of("one"))
    reviews = Reviews(cluster, clock=lambda: cluster.now)  # type: ignore[arg-type]
    with asyncio.Runner() as runner:
        cluster.slow_seconds, cluster.ends_meanwhile = 4.0, True
        assert runner.run(reviews.who(caller)).username == "ann"
        cluster.now = KNOWN_SECONDS + 1.0
        with pytest.raises(Unauthorized):
            runner.run(reviews.who(caller))
        cluster.now += UNKNOWN_SECONDS
        cluster.known["one"] = (cluster.now, True)
        cluster.granted[USERS["one"], act] = (cluster.now, True)
        cluster.slow_seconds = 0.0
        assert runner.run(reviews.who(caller)).username == "ann"
        cluster.slow_seconds = 4.0
        assert runner.run(reviews.may(caller, act=act))
        cluster.known["one"] = (cluster.now, True)
        cluster.now += 1.5
        cluster.slow_seconds = 0.0
        assert not runner.run(reviews.may(caller, act=act, oldest=5.0))


TestReviewsMachine = ReviewsMachine.TestCase
TestReviewsMachine.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
