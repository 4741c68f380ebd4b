from dataclasses import replace

import msgspec
import pytest

from dovetail import names
from dovetail.api.gpujob import GPUJob
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
    chosen, missing = selection.select(JOBS, wanted=selection.parse_ids(texts, field="-j"))
    assert [job.status.number for job in chosen] == numbers
    assert missing == []


def test_what_names_one_job_must_exist() -> None:
    chosen, missing = selection.select(JOBS, wanted=selection.parse_ids(["1,99,nobody,4-5"], field="-j"))
    assert [job.status.number for job in chosen] == [1]
    assert missing == ["99", "nobody"]


def owned(name: str, *, number: int | None, user: str = "ada", **labels: str) -> GPUJob:
    job = make_job(name, number=number)
    metadata = msgspec.structs.replace(job.metadata, annotations={names.USER: user}, labels=labels)
    return msgspec.structs.replace(job, metadata=metadata)


@pytest.mark.parametrize(
    ("text", "found"), [("@", ["new"]), ("@~1", ["array"]), ("@~2,5", ["first", "theirs"]), ("@~3", [])]
)
def test_the_last_jobs_are_the_users_by_number_and_arrays_without_tasks(text: str, found: list[str]) -> None:
    jobs = [
        owned("new", number=None),
        owned("task", number=9, **{names.LABEL_ARRAY: "array"}),
        owned("array", number=8),
        owned("first", number=2),
        owned("theirs", number=5, user="mona"),
    ]
    wanted = [replace(each, user="ada") for each in selection.parse_ids([text], field="-j")]
    chosen, missing = selection.select(jobs, wanted=wanted)
    assert [job.metadata.name for job in chosen] == found
    assert missing == ([] if found else ["@~3 of ada"])


def test_a_job_without_a_number_is_found_by_its_name_only() -> None:
    jobs = [make_job("new")]
    assert selection.select(jobs, wanted=selection.parse_ids(["1-5"], field="-j"))[0] == []
    assert selection.select(jobs, wanted=selection.parse_ids(["new"], field="-j"))[0] == jobs


@pytest.mark.parametrize(
    "text", ["0", "5-1", "0-3", "", ",", "-5", "1..5", "1-999999999", "@~", "@~x", "@~99999", "@x", "@1"]
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(InvalidQueryError, match="-j"):
        selection.parse_ids([text], field="-j")


def called(text: str, *, object_name: str, number: int) -> GPUJob:
    job = make_job(object_name, number=number)
    metadata = msgspec.structs.replace(job.metadata, annotations={names.DISPLAY_NAME: text})
    return msgspec.structs.replace(job, metadata=metadata)


def test_a_job_is_found_by_what_people_call_it_and_by_its_object() -> None:
    job = called("lr0.001_bs32", object_name="lr0-001-bs32-1f0c6a", number=3)
    for word in ("lr0.001_bs32", "lr0-001-bs32-1f0c6a"):
        assert selection.select([*JOBS, job], wanted=selection.parse_ids([word], field="-j")) == ([job], [])


def test_a_name_that_several_jobs_have_is_refused_with_their_numbers() -> None:
    twins = [called("My Run", object_name=f"my-run-{number}", number=number) for number in (3, 8)]
    with pytest.raises(InvalidQueryError, match='"My Run" is the name of jobs 3, 8: use a number'):
        selection.select(twins, wanted=selection.parse_ids(["My Run"], field="-j"))


def test_an_objects_own_name_comes_before_what_people_call_another() -> None:
    other = called("train", object_name="train-5d1e0a", number=9)
    assert selection.select([*JOBS, other], wanted=selection.parse_ids(["train"], field="-j"))[0] == [JOBS[-1]]


@pytest.mark.parametrize(("missing", "text"), [(["7"], "no job 7"), (["7", "x"], "no jobs 7, x")])
def test_the_missing_are_named(missing: list[str], text: str) -> None:
    assert selection.none_such(missing) == text
