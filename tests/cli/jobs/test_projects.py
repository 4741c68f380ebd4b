"""Projects: given with gbatch -P, asked for by gqueue and gstats."""

import json

import msgspec
import pytest

from dovetail import names
from dovetail.answers.owners import project_of
from dovetail.api.gpujob import GPUJob
from dovetail.query.jobs.projects import parse_projects
from dovetail.query.jobs.records import as_job
from dovetail_cli.app import run
from dovetail_cli.jobs import details, statistics
from dovetail_cli.jobs.listing import Question
from dovetail_cli.submit import manifest
from tests.cli.builders import NOW, ago, make_job
from tests.cli.jobs.test_queue import VIEW
from tests.core.query.jobs.test_records import record


def of_project(project: str, job: GPUJob) -> GPUJob:
    labels = {names.LABEL_PROJECT: project}
    return msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, labels=labels))


JOBS = [
    of_project("vision", make_job("see", number=1, phase="Queued")),
    of_project("speech", make_job("hear", number=2, phase="Queued")),
    make_job("none", number=3, phase="Queued"),
]


def test_gbatch_labels_the_job_with_its_project() -> None:
    submission = manifest.Submission(name="a", command=["a"], request=None, image="busybox", project="vision")
    assert project_of(manifest.build(submission, namespace="default")) == "vision"


def test_gqueue_lists_projects_and_chooses_by_them() -> None:
    question = Question(fields=("NAME", "PROJECT"), projects=parse_projects(["speech,vision"], field="-P"))
    assert question.answer(JOBS, view=VIEW, form="csv") == "NAME,PROJECT\nsee,vision\nhear,speech"
    assert Question(fields=("PROJECT",)).answer(JOBS[2:], view=VIEW, form="csv") == "PROJECT\n-"
    told = json.loads(Question().answer(JOBS, view=VIEW, form="json"))
    assert [each["project"] for each in told] == ["vision", "speech", ""]


def test_gjob_shows_the_project_also_of_a_job_that_is_gone() -> None:
    assert "  Project=vision" in details.text(details.sections(JOBS[0], now=NOW))
    assert "Project" not in details.text(details.sections(JOBS[2], now=NOW))
    assert "  Project=vision" in details.text(details.recorded_sections(record(project="vision")))
    assert project_of(as_job(record(project="vision"))) == "vision"
    assert project_of(as_job(record())) == ""


def test_gstats_asks_by_project() -> None:
    asked = statistics.question(since=ago(days=1), users=(), names=(), projects={"vision"}, by="PROJECT")
    assert (asked.projects, asked.group_by) == (["vision"], "Project")


def test_gqueue_and_gstats_refuse_such_names_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run("gqueue", arguments=["-P", "a b"], prog="gqueue")
        == run("gstats", arguments=["-P", "a b"], prog="gstats")
        == 2
    )
    assert capsys.readouterr().err.count('-P "a b": write at most 63 letters') == 2
