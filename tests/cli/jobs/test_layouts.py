"""gqueue by user, by state and as a tree; and who falls with a job that is cancelled."""

from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import Dependency, GPUJob
from dovetail.query.jobs.columns import View
from dovetail_cli.jobs import cancel, layouts, listing
from dovetail_cli.jobs.listing import Question
from dovetail_cli.ui.errors import UsageError
from tests.cli.builders import NOW, make_job

VIEW = View(now=NOW)


def waiting(name: str, *after: str, number: int, user: str = "", phase: Any = "Queued", **spec: Any) -> GPUJob:
    job = make_job(name, number=number, phase=phase)
    dependencies = [Dependency(name=each) for each in after]
    meta = msgspec.structs.replace(job.metadata, annotations={"dovetail.dev/user": user} if user else {})
    spec = {"dependencies": dependencies, **spec}
    return msgspec.structs.replace(job, metadata=meta, spec=msgspec.structs.replace(job.spec, **spec))


JOBS = [
    waiting("load", number=1, phase="Running", user="ada"),
    waiting("train", "load", number=2, user="ada"),
    waiting("other", number=3, user="bob"),
    waiting("test", "other", "train", number=4, user="bob"),
    waiting("done", number=5, phase="Succeeded"),
]


def shown(**question: Any) -> list[str]:
    text = Question(fields=("JOBID", "NAME"), **question).answer(JOBS, view=VIEW, form="table")
    return [" ".join(line.split()) for line in text.splitlines()]


def test_jobs_stand_below_those_that_they_wait_for() -> None:
    assert shown(tree=True) == ["JOBID NAME", "1 load", "2 └ train", "4 └ test", "3 other"]
    text = layouts.tree(JOBS, ["NAME"], view=VIEW)
    assert "\n  └ test" in text


def test_each_state_has_its_table_and_number() -> None:
    assert shown(by_state=True) == [
        "Queued (PD): 3", "JOBID NAME", "2 train", "3 other", "4 test", "", "Running (R): 1", "JOBID NAME", "1 load",
    ]  # fmt: skip


def test_users_and_completed_jobs_are_chosen() -> None:
    assert shown(users=listing.parse_users("bob,eve"))[1:] == ["3 other", "4 test"]
    assert len(shown(users=listing.parse_users("all"))) == 5
    assert shown(completed=True)[1:] == ["5 done"]


@pytest.mark.parametrize(
    ("by_state", "tree", "form"), [(True, True, "table"), (True, False, "json"), (False, True, "csv")]
)
def test_layouts_that_exclude_each_other_are_refused(by_state: bool, tree: bool, form: str) -> None:
    with pytest.raises(UsageError, match=r"exclude each other|cannot go with -o"):
        layouts.check(by_state=by_state, tree=tree, form=form)


def test_those_that_fall_with_a_cancelled_job_are_named_in_turn() -> None:
    told = list(cancel.those_that_fall(JOBS, chosen=JOBS[:1], dry_run=False))
    assert told == ["Job 2 falls with it: it waits for job 1.", "Job 4 falls with it: it waits for job 2."]
    assert list(cancel.those_that_fall(JOBS, chosen=JOBS[2:3], dry_run=True)) == [
        "Job 4 would fall with it: it waits for job 3."
    ]


def test_of_many_jobs_that_have_ended_already_only_the_number_is_said() -> None:
    over = [waiting(f"over-{number}", number=number, phase="Failed") for number in range(10, 16)]
    assert list(cancel.sentences([*JOBS[:1], *over], dry_run=False)) == [
        "Job 1 cancelled.",
        "6 other jobs have ended already.",
    ]
    assert list(cancel.sentences(over[:2], dry_run=False)) == [
        "Job 10 has ended already (Failed).",
        "Job 11 has ended already (Failed).",
    ]
