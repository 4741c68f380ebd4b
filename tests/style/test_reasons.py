"""A reason has one table: its page follows it, and no module sets a code or a sentence of its own."""

import ast
import json
import re
from typing import get_args

import pytest

from dovetail.api import gpujob
from dovetail.api.reasons import arrays, capacity, end, explain, nodes, problems, queue, refusals, remedies, start
from dovetail.api.reasons.catalog import clauses_of, every_clause, every_subject
from dovetail.api.reasons.codes import REASONS
from dovetail.engine.model.refusals import RefusalKind
from tests.style import reasons
from tests.style.packages import ROOT


def test_the_page_shows_the_table_as_it_is() -> None:
    assert reasons.PAGE.read_text(encoding="utf-8") == reasons.page(), "run `python -m tests.style.reasons`"


def test_every_code_has_one_home() -> None:
    codes = [each.code for subject in every_subject() for each in clauses_of(subject)]
    assert sorted(codes) == sorted(every_clause())
    assert len(REASONS) == len({each.code for each in REASONS.values()})


def test_the_table_has_each_reason_of_the_api() -> None:
    assert set(get_args(gpujob.Reason)) <= REASONS.keys()


def test_the_table_has_each_refusal_of_a_node() -> None:
    assert refusals.KINDS.keys() == set(get_args(RefusalKind))


def test_no_module_outside_the_table_sets_a_reason_or_a_sentence_of_its_own() -> None:
    found = [
        place
        for path, tree in reasons.modules()
        for place in reasons.set_elsewhere(path=str(path.relative_to(ROOT)), tree=tree)
    ]
    assert found == []


def test_every_clause_is_called_with_the_parameters_of_its_template() -> None:
    names = reasons.parameters()
    found = [
        place
        for path, tree in reasons.modules()
        for place in reasons.misused(names, path=str(path.relative_to(ROOT)), tree=tree)
    ]
    assert found == []


# Texts of refused requests outside the table, by module. A number may only fall: write a row instead. The grammar of a
# request is below the table, and what msgspec says of a template is its own text.
_LITERAL_PROBLEMS = {
    "core/dovetail/gpu/request.py": 25,
    "core/dovetail/gpu/memory_strategy.py": 1,
    "core/dovetail/pods/errors.py": 1,
}


def test_why_a_request_is_refused_is_in_the_table_but_for_the_grammar_of_its_text() -> None:
    found = {str(path.relative_to(ROOT)): len(list(reasons.literal_problems(tree))) for path, tree in reasons.modules()}
    assert {path: count for path, count in found.items() if count > _LITERAL_PROBLEMS.get(path, 0)} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('raise RequestError(text, problem="no")', [1]),
        ('raise RequestError(text, problem=f"no {x}")', [1]),
        ('raise RequestError(text, problem="a" if x else says.NO())', [1]),
        ('raise self._error("no")', [1]),
        ("raise RequestError(text, problem=says.NO(x=1))", []),
        ("raise RequestError(text, problem=error.said)", []),
        ('raise Other(text, problem="no")', []),
    ],
)
def test_a_problem_that_is_a_text_is_found(source: str, lines: list[int]) -> None:
    assert list(reasons.literal_problems(ast.parse(source))) == lines


def console() -> dict[str, str]:
    """The Chinese template of each clause that the console translates."""
    folder = ROOT / "console" / "src" / "reasons"
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.ts")))
    rows = re.findall(r'^  (\w+): (".*"),$', text, flags=re.MULTILINE)
    return {code: str(json.loads(template)) for code, template in rows}


def test_the_console_translates_every_message_of_a_job_every_explanation_and_every_problem() -> None:
    messages = (capacity, nodes, queue, start, arrays, end, explain, remedies, refusals, problems)
    assert {each.code for subject in messages for each in clauses_of(subject)} - console().keys() == set()


def test_a_translation_has_the_parameters_of_its_template() -> None:
    names = {code: frozenset(re.findall(r"\{(\w+)\}", chinese)) for code, chinese in console().items()}
    assert names == {code: every_clause()[code].names for code in names}


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        ("NEED(count=1, profile='')", 1),
        ("says.NEED(count=1, available=2, profile='')", 0),
        ("says.NEED(count=1, available=2, profile='', more=3)", 1),
        ("says.WITH_HOST(**host)", 0),
        ("says.TOGETHER_WITH_HOST(other=1, **host)", 1),
        ("COLON(': ')", 1),
    ],
    ids=["one is missing", "all of them", "one too many", "a mapping", "a mapping and a wrong one", "by position"],
)
def test_a_wrong_parameter_is_found(source: str, problems: int) -> None:
    assert len(list(reasons.misused(reasons.parameters(), path="m", tree=ast.parse(source)))) == problems


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        ("Refused(reason='Quota', message=f'{user} may run 1')", 2),
        ("Obstacle.of(BEGINS(time=now))", 0),
        ("Stage(phase='Queued', why=starts.NEXT_CYCLE())", 0),
        ("Waits(key=key, reason=why.reason, message='')", 0),
    ],
    ids=["words of its own", "of the table", "of the table in a stage", "passed on"],
)
def test_words_of_its_own_are_found(source: str, problems: int) -> None:
    assert len(list(reasons.set_elsewhere(path="m", tree=ast.parse(source)))) == problems
