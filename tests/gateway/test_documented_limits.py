"""The numbers that the pages promise are those of the code: each sentence is built of the constants."""

from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from dovetail.process.connections import Bounds as ConnectionBounds
from dovetail_gateway import app
from dovetail_gateway.access import codes, identities, reviews, sessions
from dovetail_gateway.access.limits import MOST_USERS, Rates
from dovetail_gateway.access.sessions import IDLE_SECONDS
from dovetail_gateway.cluster import answers, pacing, prepared
from dovetail_gateway.oidc import logins, renewal
from dovetail_gateway.routing import browser, server
from dovetail_gateway.routing.open_streams import MOST_STREAMS, Times
from dovetail_gateway.samples import bounds
from dovetail_gateway.samples.usage import MOST_MODELS, MOST_OF_A_DAY
from dovetail_gateway.stream import feed
from dovetail_gateway.v1 import allocations, request
from dovetail_gateway.v2 import tasks
from dovetail_gateway.v3 import jobs
from dovetail_gateway.v3.past import history

DOCS: Final = Path(__file__).parents[2] / "docs"
USERS: Final = reviews.USER_REVIEWS
SENTENCES: Final = {
    "history.md": [
        (
            f"curves of {bounds.MOST_PROJECTS} projects within 31 days, and {MOST_OF_A_DAY} sums of GPU time a day. "
            f"What is beyond that counts together, as `{bounds.OTHERS}`; "
            f"of GPU time, {MOST_MODELS} models still count apart. "
            f"Of one node, {bounds.MOST_DEVICES} devices are kept"
        ),
    ],
    "rest.md": [
        (
            f"An answer that allows counts for {reviews.ALLOWED_SECONDS:g} s. "
            f"A denial counts for {reviews.DENIED_SECONDS / 60:g} minutes"
        ),
        f"it asks about {reviews.MOST_DENIED}, and about all of them once one of these is yours",
        f"the body is larger than {server.MAX_BODY_BYTES / (1 << 20):g} MiB, or slower than {server._BODY_SECONDS:g} s",
        (
            f"{server.MAX_BODY_BYTES / (1 << 20):g} MiB, complete within {server._BODY_SECONDS:g} s; "
            f"all bodies together {server._BODIES_BYTES / (1 << 20):g} MiB"
        ),
        f"8,190 bytes; {server.HEADER_BYTES / 1024:g} KiB.",
        f"`gateway.requestsPerSecond` ({Rates().each:g}), and a burst of twice as many",
        f"| connections of one user | {app._MOST_OF_ONE} |",
        f"| an answer | {server._ANSWER_SECONDS:g} s |",
        f"| streams, and logs that are being read | {MOST_STREAMS} for each user |",
        (
            f"one at a time for each user and {answers._AT_ONCE} of all users, in turns; "
            f"{answers._MOST_WAITING} more of a user wait. A user has {pacing.BURST_SECONDS:g} s of CPU at once, "
            "and then a quarter of the time"
        ),
        (
            f"{USERS.burst:,} at once, and {1 / USERS.every_seconds:g} each second after that; "
            f"{reviews._AT_ONCE_OF_ONE} at a time, and {reviews._AT_ONCE} of all users, in turns"
        ),
        f"`allocate` waits {allocations.WAIT_SECONDS:g} s for a place",
        f"reserves GPUs for {request.LEASE_SECONDS / 3600:g} hours",
        f"the answer waits {tasks.WAIT_SECONDS:g} s for its device",
        (
            f"If the queue takes more than {prepared.CHEAP_SECONDS * 1000:g} ms to prepare, a dry run can answer about "
            f"the cluster of up to {prepared.OLDEST_SECONDS:g} s ago"
        ),
        f"It asks every {Times().review_seconds:g} s whether you still have it",
        f"you were away for more than {feed.KEPT_SECONDS:g} s, or your rights have changed",
        (
            f"Your rights are reviewed every {Times().review_seconds:g} s. "
            f"A silent stream sends a comment every {Times().heartbeat_seconds:g} s"
        ),
    ],
    "console.md": [
        f"works once, for {codes.CODE_SECONDS / 60:g} minutes, and only in the first browser that asks with it",
        f"A user has at most {sessions._MOST_OF_ONE} sessions",
        f"at most {sessions.BOUNDS.all:,} sessions, {sessions.BOUNDS.address:,} of them from one",
        f"after {IDLE_SECONDS / 3600:g} hours without use",
    ],
}


@pytest.mark.parametrize(("page", "sentence"), [(page, each) for page, its in SENTENCES.items() for each in its])
def test_a_page_has_the_number_of_the_code(page: str, sentence: str) -> None:
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    assert " ".join(sentence.split()) in text


def test_what_waits_for_something_ends_before_the_answer_that_waits_for_it() -> None:
    """So that the answer has its own sentence instead of a timeout's."""
    answer = server._ANSWER_SECONDS
    for seconds in (
        history.SECONDS,
        allocations.WAIT_SECONDS,
        tasks.WAIT_SECONDS,
        jobs._SHOWN_SECONDS,
        server._BODY_SECONDS,
    ):
        assert seconds < answer
    assert pacing.SHARE == 1 / 4
    assert prepared.FRESH_SECONDS < prepared._LONGEST_REST_SECONDS < prepared.OLDEST_SECONDS
    assert Times().send_seconds < Times().heartbeat_seconds < Times().review_seconds


def test_a_cookie_of_a_sign_in_lives_as_long_as_the_sign_in() -> None:
    assert browser._LOGIN_SECONDS == logins.LOGIN_SECONDS == timedelta(minutes=10).total_seconds()
    assert codes.CODE_SECONDS < browser._LOGIN_SECONDS


def test_who_somebody_is_counts_no_longer_than_what_it_may() -> None:
    assert identities.UNKNOWN_SECONDS < identities.KNOWN_SECONDS <= reviews.ALLOWED_SECONDS == 60
    assert reviews.SETTLING_SECONDS < reviews.SHORT_DENIED_SECONDS < reviews.DENIED_SECONDS
    assert renewal.RETRY_SECONDS < sessions._RENEW_SECONDS, "a provider that is away for a moment ends no session"


def test_as_many_connections_are_open_as_bounds_say() -> None:
    found: ConnectionBounds = app.bounds(())
    assert (found.of_user, found.of_address, found.most) == (128, 128, 2048)
    assert found.of_tenant == MOST_USERS * 128 == 512
