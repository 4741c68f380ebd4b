"""Jobs by state, below those that they wait for, and cancelled in turn."""

from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import Dependency, GPUJob
from dovetail.query.jobs.dependents import falling
from dovetail.query.jobs.groups import by_state, dependency_tree
from tests.cli.builders import make_job


def waiting(name: str, *after: str, phase: Any = "Queued", **spec: Any) -> GPUJob:
    job = make_job(name, phase=phase)
    spec = {"dependencies": [Dependency(name=each) for each in after], **spec}
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **spec))


JOBS = [
    waiting("load", phase="Running"),
    waiting("train", "load"),
    waiting("other"),
    waiting("test", "other", "train"),
    waiting("done", phase="Succeeded"),
]


def tree(*jobs: GPUJob) -> list[tuple[str, int]]:
    return [(job.metadata.name, depth) for job, depth in dependency_tree(jobs)]


def test_a_job_comes_below_the_last_one_that_it_waits_for() -> None:
    assert tree(*JOBS[:4]) == [("load", 0), ("train", 1), ("test", 2), ("other", 0)]


def test_jobs_in_a_circle_come_last_and_once() -> None:
    circle = [waiting("a", "b"), waiting("b", "a"), waiting("c", "c")]
    assert tree(*circle) == [("c", 0), ("a", 0), ("b", 1)]


def test_states_come_in_the_order_in_which_jobs_pass_through_them() -> None:
    found = {short: [job.metadata.name for job in jobs] for short, jobs in by_state(JOBS).items()}
    assert list(found.items()) == [("PD", ["train", "other", "test"]), ("R", ["load"]), ("CD", ["done"])]


@pytest.mark.parametrize(
    ("cancelled", "found"),
    [({"load"}, {"train": "load", "test": "train"}), ({"other"}, {"test": "other"}), ({"test"}, {})],
)
def test_jobs_are_cancelled_in_turn_because_of_one_that_they_wait_for(
    cancelled: set[str], found: dict[str, str]
) -> None:
    assert falling(JOBS, cancelled=cancelled) == found


def test_a_held_job_is_cancelled_too_and_one_that_is_being_cancelled_is_not_named_again() -> None:
    held = waiting("held", "load", phase="Held")
    going = waiting("going", "load", cancel=True)
    assert falling([JOBS[0], held, going], cancelled={"load"}) == {"held": "load"}


def test_jobs_that_keep_waiting_or_have_another_choice_or_run_are_not_cancelled() -> None:
    patient = waiting("patient", "load", on_dependency_failure="Wait")
    either = waiting("either", "load", "other", dependency_policy="Any")
    runs = waiting("runs", "load", phase="Running")
    assert falling([JOBS[0], JOBS[2], patient, either, runs], cancelled={"load"}) == {}
