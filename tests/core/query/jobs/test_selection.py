import pytest

from dovetail.query.errors import InvalidQueryError
from dovetail.query.jobs import selection
from tests.cli.builders import make_job

JOBS = [make_job(name, number=number) for number, name in ((1, "a"), (2, "b"), (3, "c"), (7, "train"))]


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["1"], [1]),
        (["1,3"], [1, 3]),
        (["2-9"], [2, 3, 7]),
        (["train"], [7]),
        (["3", "1-2,b"], [1, 2, 3]),
        (["5-6"], []),
    ],
)
def test_numbers_ranges_and_names_choose_jobs(texts: list[str], numbers: list[int]) -> None:
    chosen, missing = selection.select(JOBS, selection.parse_ids(texts, field="-j"))
    assert [job.status.number for job in chosen] == numbers
    assert missing == []


def test_what_names_one_job_must_exist() -> None:
    chosen, missing = selection.select(JOBS, selection.parse_ids(["1,99,nobody,4-5"], field="-j"))
    assert [job.status.number for job in chosen] == [1]
    assert missing == ["99", "nobody"]


def test_a_job_without_a_number_is_found_by_its_name_only() -> None:
    jobs = [make_job("new")]
    assert selection.select(jobs, selection.parse_ids(["1-5"], field="-j"))[0] == []
    assert selection.select(jobs, selection.parse_ids(["new"], field="-j"))[0] == jobs


@pytest.mark.parametrize("text", ["0", "5-1", "0-3", "", ",", "A", "1..5", "1-999999999"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(InvalidQueryError, match="-j"):
        selection.parse_ids([text], field="-j")


@pytest.mark.parametrize(("missing", "text"), [(["7"], "no job 7"), (["7", "x"], "no jobs 7, x")])
def test_the_missing_are_named(missing: list[str], text: str) -> None:
    assert selection.none_such(missing) == text
