"""The rules of preemption as configured, and what of the hour's budget is left."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.config.groups import PreemptionRules
from dovetail.formats.timestamps import timestamp
from dovetail.query.preemption_rules import rules_of
from dovetail.queue.preemption.policy import Rules, rules_now

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def preempted(*, minutes_ago: float | None = None, about_to: bool = False) -> GPUJob:
    """A job that made way so many minutes ago, or is about to."""
    said: dict[str, object] = {"count": 1}
    if minutes_ago is not None:
        said["lastTime"] = timestamp(NOW - timedelta(minutes=minutes_ago))
    if about_to:
        said["at"] = timestamp(NOW + timedelta(seconds=30))
    return msgspec.convert({"metadata": {}, "spec": {}, "status": {"preemption": said}}, GPUJob)


def never_preempted() -> GPUJob:
    return msgspec.convert({"metadata": {}, "spec": {}}, GPUJob)


def test_each_rule_is_the_configured_one() -> None:
    said = PreemptionRules(priority_gap=7, min_run=61, grace=11, per_job=5, per_hour=13)
    assert rules_of(said) == Rules(gap=7, min_run_seconds=61, grace_seconds=11, per_job=5, left=13)


@pytest.mark.parametrize(
    ("jobs", "left"),
    [
        ([], 3),
        ([never_preempted()], 3),
        ([preempted(minutes_ago=59)], 2),
        ([preempted(minutes_ago=60)], 3),
        ([preempted(minutes_ago=61)], 3),
        ([preempted(about_to=True)], 2),
        ([preempted(minutes_ago=10, about_to=True)], 1),
        ([preempted(minutes_ago=10)] * 2 + [preempted(about_to=True)], 0),
        ([preempted(minutes_ago=10)] * 5, 0),
    ],
    ids=[
        "no job", "one that never made way", "within the hour", "an hour ago", "longer ago", "one that is about to",
        "twice: lately, and again now", "as many as the hour allows", "more than the hour allows",
    ],
)  # fmt: skip
def test_what_the_hour_has_left(jobs: list[GPUJob], left: int) -> None:
    assert rules_now(Rules(gap=1, left=3), jobs=jobs, now=NOW).left == left


def test_where_preemption_is_off_nothing_is_counted() -> None:
    rules = Rules(gap=0, left=3)
    assert rules_now(rules, jobs=[preempted(minutes_ago=1)], now=NOW) is rules
