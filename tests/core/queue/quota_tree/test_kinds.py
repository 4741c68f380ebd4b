"""Jobs that take the same of the same quotas are of one kind, which is compared by identity."""

from dataclasses import replace

import pytest

from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject

JOB = Counted(uid="a", subject=Subject(namespace="ml", user="ada"), milli=2000, workers=2)


def test_equal_jobs_are_of_one_kind() -> None:
    other = replace(JOB, uid="b", subject=Subject(namespace="ml", user="ada"), queued=True)
    assert other.kind is JOB.kind
    assert other != JOB


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": Subject(namespace="ml", user="bob")},
        {"milli": 1000},
        {"memory_mib": 1},
        {"model": "A100"},
        {"workers": 1},
        {"least": 1},
        {"preemptible": False},
    ],
)
def test_jobs_that_take_something_else_are_of_another_kind(changes: dict[str, object]) -> None:
    assert replace(JOB, **changes).kind is not JOB.kind  # type: ignore[arg-type]
