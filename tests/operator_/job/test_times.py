"""Times that people write, at the ends of what can be written."""

import re
from pathlib import Path

import pytest

from dovetail.api.gpujob import MAX_SECONDS
from dovetail.api.historyquery import HistoryQuery, HistoryQuerySpec
from dovetail.api.meta import ObjectMeta
from dovetail.api.text_formats import TIME
from dovetail.formats.timestamps import moment, timestamp
from dovetail.jobs.batch_job import deadline_seconds
from dovetail_operator.history.questions import answer
from dovetail_operator.history.store import HistoryStore
from tests.operator_.builders import at, make_child, make_job


@pytest.mark.parametrize(
    "text",
    [
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-12:00",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+99:99",
    ],
)
def test_what_cannot_be_reckoned_with_is_no_time(text: str) -> None:
    assert re.match(TIME, text) is None


@pytest.mark.parametrize("text", ["1000-01-01T00:00:00+23:59", "2999-12-31T23:59:59.999999-23:59", at(0)])
def test_whatever_is_a_time_can_be_told_in_utc(text: str) -> None:
    assert re.match(TIME, text)
    assert timestamp(moment(text))


def test_a_question_about_a_time_that_no_clock_has_is_answered_with_a_sentence(tmp_path: Path) -> None:
    """One that was asked before the schema refused it: an operator that ends by it would end by it again and again."""
    store = HistoryStore(f"sqlite:///{tmp_path}/history.db")
    query = HistoryQuery(metadata=ObjectMeta(name="q"), spec=HistoryQuerySpec(since="0001-01-01T00:00:00+14:00"))
    assert "out of range" in answer(store, query).message
    store.close()


def test_a_lease_that_is_renewed_centuries_ahead_is_no_limit_that_has_passed() -> None:
    lease = {"durationSeconds": 100, "renewTime": "2999-01-01T00:00:00Z"}
    job = make_job(reservation=lease, template={"spec": {}})
    assert deadline_seconds(job, child=make_child(job, status={"startTime": at(-60)})) == MAX_SECONDS
