"""Projects: given with gbatch -P, asked for by gqueue and gstats."""

import json

import msgspec
import pytest

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail_cli.app import run
from dovetail_cli.jobs import details, history, statistics
from dovetail_cli.jobs.listing import Question
from dovetail_cli.submit import manifest
from dovetail_cli.ui import projects
from dovetail_cli.ui.errors import UsageError
from tests.cli.builders import ago, make_job
from tests.cli.jobs.test_history import record
from tests.cli.jobs.test_queue import VIEW


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
    assert projects.of(manifest.build(submission, namespace="default")) == "vision"


def test_gqueue_lists_projects_and_chooses_by_them() -> None:
    question = Question(fields=("NAME", "PROJECT"), projects=projects.read(["speech,vision"], option="-P"))
    assert question.answer(JOBS, VIEW, form="csv") == "NAME,PROJECT\nsee,vision\nhear,speech"
    assert Question(fields=("PROJECT",)).answer(JOBS[2:], VIEW, form="csv") == "PROJECT\n-"
    told = json.loads(Question().answer(JOBS, VIEW, form="json"))
    assert [each["project"] for each in told] == ["vision", "speech", ""]


def test_gjob_shows_the_project_also_of_a_job_that_is_gone() -> None:
    assert "  Project=vision" in details.text(details.sections(JOBS[0]))
    assert "Project" not in details.text(details.sections(JOBS[2]))
    assert "  Project=vision" in details.text(details.recorded_sections(record(project="vision")))
    assert projects.of(history.as_job(record(project="vision"))) == "vision"
    assert projects.of(history.as_job(record())) == ""


def test_gstats_asks_by_project() -> None:
    asked = statistics.question(since=ago(days=1), users=(), names=(), projects={"vision"}, by="PROJECT")
    assert (asked.projects, asked.group_by) == (["vision"], "Project")


@pytest.mark.parametrize("text", ["a b", "-a", "a-", "ä", "a/b", "x" * 64, ""])
def test_a_name_that_no_label_can_have_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f'--project "{text}": write at most 63 letters'):
        projects.check(text, option="--project")


def test_gqueue_and_gstats_refuse_such_names_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gqueue", ["-P", "a b"], prog="gqueue") == run("gstats", ["-P", "a b"], prog="gstats") == 2
    assert capsys.readouterr().err.count('-P "a b": write at most 63 letters') == 2
