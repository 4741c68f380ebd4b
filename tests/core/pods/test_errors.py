"""A request that is refused, as clauses of the table."""

import pytest

from dovetail.api.reasons import start as says
from dovetail.api.reasons.catalog import rendered
from dovetail.gpu.request import RequestError, parse
from dovetail.pods.containers import mode_of
from dovetail.pods.errors import sentence_of


def of(error: RequestError) -> list[str]:
    """The codes of its clauses, which say the same as the error."""
    sentence = sentence_of(error)
    assert rendered(sentence.clauses) == sentence
    assert (sentence.message, sentence.reason) == (str(error), "")
    return [each.code for each in sentence.clauses]


def test_the_field_the_problem_and_the_example_are_clauses() -> None:
    with pytest.raises(RequestError) as refused:
        mode_of("Fast", request=parse("1"))
    assert of(refused.value) == ["RequestField", "NoSuchWord", "WriteForExample"]
    assert sentence_of(refused.value).clauses[1].parameters == {"kind": "mode"}


def test_the_grammar_of_a_text_has_its_place_and_its_own_words() -> None:
    with pytest.raises(RequestError) as refused:
        parse("8X,0.5")
    assert of(refused.value) == ["RequestField", "RequestProblem", "AtCharacter", "WriteForExample"]


def test_a_problem_that_is_not_shown_whole_is_a_text() -> None:
    long = RequestError("x", problem=says.NO_OPTION(names="x" * 2000), example="nothing there")
    assert of(long) == ["RequestField", "RequestProblem", "WriteForExample"]
    assert str(long).endswith("…; write for example nothing there")
