"""What kube-scheduler says of a pod that it cannot place, in words of the user's request."""

import pytest

from dovetail_operator.job.plan_doubts import why_unplaced

AFTER = " no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (f"0/1 nodes are available: 1 Insufficient cpu.{AFTER}", "Waits until enough CPU is free"),
        (
            f"0/3 nodes are available: 1 Insufficient memory, 2 Insufficient cpu.{AFTER}",
            "Waits until enough memory and CPU is free",
        ),
        (
            "0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient pods.",
            "kube-scheduler: 0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient pods.",
        ),
        ("0/3 nodes are available: 3 busy.", "kube-scheduler: 0/3 nodes are available: 3 busy."),
        ("no nodes available", "kube-scheduler: no nodes available"),
        ("", "The scheduler finds no place for a worker"),
    ],
    ids=["CPU", "CPU or memory", "more than these", "another cause", "another message", "no message"],
)
def test_only_what_is_short_is_named_where_nothing_else_is(message: str, said: str) -> None:
    found = why_unplaced(message)
    assert (found.message, found.reason) == (said, "Resources")
