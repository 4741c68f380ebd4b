"""Sentences are rendered from the table, with codes and parameters that render them again."""

import pytest

from dovetail.api.meta import MOST_DETAILS, MessageDetail
from dovetail.api.reasons import capacity, queue, start
from dovetail.api.reasons.catalog import CLAUSES, about_pod, opening, rendered
from dovetail.api.reasons.clause import NOTHING, Clause, clause

SENTENCE = (
    capacity.NEED(count=4, available=1, profile="")
    + capacity.COLON()
    + queue.KEPT_FOR(count=1, job="job 7 (train)")
    + queue.OF_PRIORITY(priority=20)
)


def test_a_sentence_has_its_words_its_reason_and_its_clauses() -> None:
    assert SENTENCE.message == "Need 4 GPUs, only 1 available: 1 GPU is kept for job 7 (train), of priority 20"
    assert SENTENCE.reason == "Priority"
    assert SENTENCE.clauses[0] == MessageDetail(code="TooFewGPUs", parameters={"count": "4", "available": "1"})
    assert [each.code for each in SENTENCE.clauses] == ["TooFewGPUs", "Colon", "KeptFor", "OfPriority"]


def test_codes_and_parameters_render_the_sentence_again() -> None:
    assert rendered(SENTENCE.clauses) == SENTENCE
    assert rendered(()) == NOTHING


@pytest.mark.parametrize(("count", "words"), [(1, "1 GPU is kept"), (2, "2 GPUs are kept"), (0, "0 GPUs are kept")])
def test_a_number_has_its_word_in_singular_or_plural(count: int, words: str) -> None:
    assert queue.KEPT_FOR(count=count, job="a").message == f"{words} for a"


def test_instances_have_a_row_of_their_own() -> None:
    found = capacity.NEED(count=2, available=0, profile="1g.10gb")
    assert found.message == "Need 2 instances of 1g.10gb, only 0 available"
    assert found.clauses[0].code == "TooFewInstances"


@pytest.mark.parametrize(("share", "shown"), [(0.5, "0.5"), (1.0, "1"), (0.125, "0.125")])
def test_a_number_is_written_without_needless_digits(share: float, shown: str) -> None:
    assert capacity.SHARE_LEFT(share=share).clauses[0].parameters == {"share": shown}


def test_a_clause_without_one_of_its_parameters_fails() -> None:
    with pytest.raises(KeyError, match="time"):
        start.BEGINS(at="2026-01-01T00:00:00Z")


def test_the_last_clause_that_states_a_reason_decides() -> None:
    assert (start.WORKERS_WAIT(absent=1, workers=2) + start.PODS_UNMADE()).reason == "Evaluating"
    assert (start.WORKERS_WAIT(absent=1, workers=2) + start.PODS_UNMADE().with_reason("")).reason == "GangWaiting"


def test_the_opening_ends_before_the_explanation() -> None:
    need = capacity.NEED(count=4, available=1, profile="") + capacity.ON_ONE_NODE()
    assert opening((need + capacity.LARGEST_EVER(most=2)).clauses).message == need.message
    assert opening(SENTENCE.clauses).message == "Need 4 GPUs, only 1 available"


def test_a_sentence_about_a_pod_names_no_job() -> None:
    limit = queue.USER(name="ada") + queue.MAY_RUN(most="1 GPU", used=1) + queue.NEVER_FITS_AT_LEAST(amount="2")
    assert about_pod(limit).message == ("User ada may run 1 GPU, 1 run, this pod would never fit, it needs at least 2")
    assert about_pod(SENTENCE) is SENTENCE


@pytest.mark.parametrize("row", CLAUSES.values(), ids=lambda row: row.code)
def test_every_row_renders_with_its_parameters(row: Clause) -> None:
    said = row(**dict.fromkeys(row.names, "2")).message
    assert not {"{", "}", "|"} & set(said)


def test_a_template_may_begin_and_end_with_a_parameter() -> None:
    assert clause("X", "{a} and {b}")(a="x", b=1).message == "x and 1"


def test_a_sentence_of_more_clauses_than_a_status_may_have_is_without_them() -> None:
    long = sum([queue.COMMA()] * MOST_DETAILS, start=NOTHING)
    assert len(long.listed) == MOST_DETAILS
    assert (long + queue.COMMA()).listed == []
