"""Which events are sent: repeats in an interval are counted, and each object has a budget."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dovetail.api.builtin import ObjectReference
from dovetail.kube.event_correlator import EventCorrelator, EventLimits, Occurrence
from tests.containers import items_by_attribute

AT = datetime(2026, 11, 22, 8, 30, tzinfo=UTC)
POD = ObjectReference(api_version="v1", kind="Pod", name="a", namespace="team", uid="uid-a")


def seen(message: str = "m", *, uid: str = "uid-a", after: float = 0.0) -> Occurrence:
    at = AT + timedelta(seconds=after)
    about = msgspec.structs.replace(POD, uid=uid)
    return Occurrence(about=about, severity="Warning", reason="R", message=message, first=at, last=at)


def correlator(**limits: float) -> EventCorrelator:
    return EventCorrelator(EventLimits(**limits))  # type: ignore[arg-type]  # the sizes are whole in every test


def test_a_repeat_within_the_interval_is_not_sent() -> None:
    correlate = correlator(max_interval_seconds=300).correlate
    assert correlate(seen(), now=0) == seen()
    assert correlate(seen(after=299), now=299) == "repeated"


def test_the_first_one_after_the_interval_has_the_count_and_the_time_of_the_repeats() -> None:
    correlate = correlator(max_interval_seconds=300).correlate
    for second in (0, 10, 20):
        correlate(seen(after=second), now=second)
    sent = correlate(seen(after=300), now=300)
    assert sent == replace(seen(after=300), first=AT + timedelta(seconds=10), count=3)


def test_the_count_starts_again_with_each_event_that_is_sent() -> None:
    correlate = correlator(max_interval_seconds=300).correlate
    for second in (0, 10, 300):
        correlate(seen(after=second), now=second)
    assert correlate(seen(after=600), now=600) == seen(after=600)


@pytest.mark.parametrize(
    "other",
    [
        seen("another"),
        seen(uid="uid-b"),
        replace(seen(), reason="Other"),
        replace(seen(), severity="Normal"),
    ],
)
def test_another_text_reason_severity_or_object_is_no_repeat(other: Occurrence) -> None:
    correlate = correlator(max_interval_seconds=300).correlate
    correlate(seen(), now=0)
    assert correlate(other, now=0) == other


def test_without_an_interval_each_repeat_is_sent() -> None:
    correlate = correlator(max_interval_seconds=0).correlate
    assert [correlate(seen(), now=0) for _ in range(3)] == [seen()] * 3


def test_an_object_has_a_burst_of_events_and_then_one_in_a_while() -> None:
    correlate = correlator(burst_size=3, qps=1 / 300).correlate
    sent = [correlate(seen(str(number)), now=0) for number in range(5)]
    assert sent[:3] == [seen("0"), seen("1"), seen("2")]
    assert sent[3:] == ["limited", "limited"]
    assert correlate(seen("late"), now=299) == "limited"
    assert correlate(seen("late"), now=300) == seen("late")
    assert correlate(seen("later"), now=300) == "limited"


def test_a_quiet_object_has_no_more_than_one_burst() -> None:
    correlate = correlator(burst_size=2, qps=1).correlate
    correlate(seen("first"), now=0)
    assert [correlate(seen(str(number)), now=1000) for number in range(3)] == [seen("0"), seen("1"), "limited"]


def test_one_object_s_flood_costs_no_other_object_an_event() -> None:
    correlate = correlator(burst_size=1).correlate
    assert [correlate(seen(str(number)), now=0) for number in range(2)] == [seen("0"), "limited"]
    assert correlate(seen(uid="uid-b"), now=0) == seen(uid="uid-b")


def test_repeats_cost_nothing_of_an_object_s_budget() -> None:
    correlate = correlator(burst_size=2, max_interval_seconds=300).correlate
    for _ in range(10):
        correlate(seen(), now=0)
    assert correlate(seen("another"), now=0) == seen("another")


def test_an_event_that_was_limited_counts_among_the_repeats_of_none() -> None:
    correlate = correlator(burst_size=1, qps=1, max_interval_seconds=300).correlate
    correlate(seen("first"), now=0)
    assert correlate(seen(), now=0) == "limited"
    assert correlate(seen(after=5), now=5) == seen(after=5)


def test_the_objects_that_were_seen_longest_ago_are_forgotten() -> None:
    correlate = correlator(burst_size=1, lru_cache_size=2).correlate
    for uid in ("a", "b", "a", "c"):
        correlate(seen(uid=uid), now=0)
    assert correlate(seen(uid="a"), now=0) == "limited"
    assert correlate(seen(uid="b"), now=0) == seen(uid="b")


def test_the_defaults_are_those_of_client_go() -> None:
    limits = EventLimits()
    assert (limits.burst_size, limits.qps, limits.lru_cache_size) == (25, 1 / 300, 4096)


def test_an_object_whose_budget_is_full_again_is_not_remembered() -> None:
    recent = correlator(burst_size=2, qps=1)
    for second in range(100):
        recent.correlate(seen(uid=f"uid-{second}"), now=second)
    # One event costs a token, which takes a second to come back.
    assert items_by_attribute(recent)["EventCorrelator._budgets"] == 0
    recent.correlate(seen(uid="a"), now=200)
    recent.correlate(seen("another", uid="a"), now=200)
    assert recent.correlate(seen("a third", uid="a"), now=200.5) == "limited"


def test_two_counts_are_added_up_over_the_time_of_both() -> None:
    first, later = replace(seen(), count=3), replace(seen(after=9), first=AT + timedelta(seconds=5), count=4)
    assert first.followed_by(later) == replace(later, first=AT, count=7)
