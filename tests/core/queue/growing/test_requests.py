"""One job's request for new nodes over time."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import Provisioning
from dovetail.queue.growing.autoscaler_answer import Answer
from dovetail.queue.growing.pools import GrowingRules
from dovetail.queue.growing.requests import due_at, explained, following, is_resting
from tests.operator_.builders import NOW, at

RULES = GrowingRules(give_up_seconds=900, back_off_seconds=600)


def asked(**changes: Any) -> Provisioning:
    made = Provisioning(pool="big", nodes=4, workers=8, requested_time=at(-300))
    return msgspec.structs.replace(made, **changes)


def then(
    before: Provisioning | None, *, pool: str = "big", nodes: int = 2, workers: int = 4, **how: Any
) -> Provisioning:
    return following(before, pool=pool, nodes=nodes, workers=workers, rules=RULES, now=NOW, **how)


def test_a_request_under_way_never_shrinks_and_keeps_its_time() -> None:
    assert then(asked()) == asked()
    assert then(asked(), nodes=9, workers=18) == asked(nodes=9, workers=18)
    assert then(asked(), nodes=9, workers=4) == asked(nodes=9)
    assert then(None) == Provisioning(pool="big", nodes=2, workers=4, requested_time=at(0))


@pytest.mark.parametrize(
    "before", [asked(failures=2), asked(failures=2, retry_time=at(-1))], ids=["under way", "was given up"]
)
def test_another_pool_is_a_new_request_that_has_failed_as_often(before: Provisioning) -> None:
    found = then(before, pool="other")
    assert found == Provisioning(pool="other", nodes=2, workers=4, requested_time=at(0), failures=2)


@pytest.mark.parametrize(("failures", "seconds"), [(0, 600), (1, 1200), (3, 4800), (6, 6 * 3600), (500, 6 * 3600)])
def test_a_request_that_brings_no_nodes_is_given_up_and_made_again_ever_later(failures: int, seconds: float) -> None:
    before = asked(failures=failures, requested_time=at(-900))
    found = then(before)
    assert found == msgspec.structs.replace(before, failures=failures + 1, retry_time=at(seconds))
    assert is_resting(found, now=NOW + timedelta(seconds=seconds - 1))
    assert not is_resting(found, now=NOW + timedelta(seconds=seconds))
    again = following(found, pool="big", nodes=2, workers=4, rules=RULES, now=NOW + timedelta(seconds=seconds))
    assert again == Provisioning(pool="big", nodes=2, workers=4, requested_time=at(seconds), failures=failures + 1), (
        "a new request has the size of now"
    )
    young = asked(failures=failures, requested_time=at(-899))
    assert (then(young), is_resting(young, now=NOW), is_resting(None, now=NOW)) == (young, False, False)


def test_the_answer_is_to_the_request_under_way_and_a_refusal_ends_it_at_once() -> None:
    assert then(asked(), answer=Answer(state="Accepted")) == asked(state="Accepted")
    refused = then(asked(), answer=Answer(refusal="Failed (x): no capacity"))
    assert (refused.failures, refused.retry_time, refused.refusal) == (1, at(600), "Failed (x): no capacity")
    assert then(None, answer=Answer(state="Accepted")).state == ""
    assert then(asked(), pool="other", answer=Answer(refusal="no")).refusal == ""
    assert then(asked(state="Accepted")) == asked(state="Accepted"), "an answer that is not known stays"


def test_time_changes_a_request_when_it_is_given_up_and_when_it_is_made_again() -> None:
    assert due_at(asked(), rules=RULES) == NOW + timedelta(seconds=600)
    assert due_at(asked(retry_time=at(77)), rules=RULES) == NOW + timedelta(seconds=77)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (asked(), f"4 nodes of pool big requested at {at(-300)}"),
        (asked(nodes=1, state="Provisioned"),
         f"1 node of pool big requested at {at(-300)}, provisioned by the cluster autoscaler"),
        (asked(retry_time=at(5)),
         f"4 nodes of pool big requested at {at(-300)} did not serve it within 15m; requests again at {at(5)}"),
        (asked(retry_time=at(5), refusal="Failed"),
         f"4 nodes of pool big requested at {at(-300)}: Failed; requests again at {at(5)}"),
    ],
)  # fmt: skip
def test_the_sentence_says_how_far_the_request_is(request_: Provisioning, message: str) -> None:
    assert explained(request_, rules=RULES).message == message
