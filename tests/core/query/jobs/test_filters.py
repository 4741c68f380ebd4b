"""Which jobs a list has, and in which order."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.answers.owners import project_of
from dovetail.api.gpujob import GPUJob
from dovetail.query.errors import InvalidQueryError, NotFoundError
from dovetail.query.jobs.columns import View, parse_sort
from dovetail.query.jobs.filters import JobQuery, choose
from dovetail.query.jobs.projects import check_project, parse_projects
from dovetail.query.jobs.selection import parse_ids
from dovetail.query.jobs.states import parse_states
from tests.cli.builders import NOW, ago, make_job


def owned(job: GPUJob, *, user: str, project: str) -> GPUJob:
    annotations, labels = {names.USER: user}, {names.LABEL_PROJECT: project}
    meta = msgspec.structs.replace(job.metadata, annotations=annotations, labels=labels)
    return msgspec.structs.replace(job, metadata=meta)


JOBS = [
    make_job("done", number=1, phase="Succeeded", start_time=ago(minutes=10), completion_time=ago(minutes=8)),
    make_job("broken", number=2, phase="Failed", completion_time=ago(hours=3)),
    owned(
        make_job("run", number=3, phase="Running", priority=20, start_time=ago(hours=1)), user="ada", project="vision"
    ),
    make_job("host", number=4, phase="Running", start_time=ago(seconds=5)),
    owned(make_job("wait", number=5, phase="Queued"), user="bob", project="speech"),
    make_job("held", number=6, phase="Held"),
    make_job("new"),
]


def chosen(**query: Any) -> list[int | None]:
    return [job.status.number for job in choose(JOBS, query=JobQuery(**query), view=View(now=NOW))]


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ({}, [3, 4, 5, 6, None]),
        ({"everything": True}, [1, 2, 3, 4, 5, 6, None]),
        ({"completed": True}, [1, 2]),
        ({"states": parse_states("PD")}, [5, None]),
        ({"states": parse_states("cd,Failed")}, [1, 2]),
        ({"states": parse_states("starting,HELD")}, [5, 6, None]),
        ({"ids": parse_ids(["1-3"], field="ids")}, [1, 2, 3]),
        ({"names": {"done", "wait"}}, [1, 5]),
        ({"users": {"ada", "eve"}}, [3]),
        ({"projects": parse_projects(["speech,vision"], field="project")}, [3, 5]),
        ({"since": ago(hours=1)}, [1, 3, 4, 5, 6, None]),
        ({"since": ago(minutes=8), "completed": True}, [1]),
        ({"since": ago(minutes=7, seconds=59), "completed": True}, []),
        ({"sort": parse_sort("-priority,jobid")}, [3, None, 4, 5, 6]),
        ({"sort": parse_sort("-TIME")}, [3, 4, 5, 6, None]),
        ({"sort": parse_sort("st,-name")}, [6, 5, None, 3, 4]),
        ({"limit": 2}, [3, 4]),
        ({"limit": -2}, [6, None]),
    ],
)
def test_a_query_chooses_and_orders(query: dict[str, Any], numbers: list[int | None]) -> None:
    assert chosen(**query) == numbers


def test_a_job_that_a_query_names_must_exist() -> None:
    with pytest.raises(NotFoundError, match="no jobs 77, missing"):
        chosen(ids=parse_ids(["77,missing"], field="ids"))


def test_an_unknown_state_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidQueryError, match='-s "zz": unknown state, allowed are QUEUED PD, HOLD H'):
        parse_states("PD,zz", field="-s")


@pytest.mark.parametrize("text", ["a b", "-a", "a-", "ä", "a/b", "x" * 64, ""])
def test_a_project_that_no_label_can_have_is_refused(text: str) -> None:
    with pytest.raises(InvalidQueryError, match=f'--project "{text}": write at most 63 letters'):
        check_project(text, field="--project")


def test_a_job_without_a_label_has_no_project() -> None:
    assert (project_of(JOBS[2]), project_of(JOBS[0])) == ("vision", "")
