"""Attempts under an operator that may be killed between any two writes: none is lost, and none is made twice."""

from collections import Counter
from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.jobs.start_times import resting
from dovetail_operator.job.actions import CreateJob, DeleteJob
from dovetail_operator.lifecycle.reconcile import reconcile
from tests.operator_.builders import LET_GO, NOW, condition, make_child, make_job, see

RETRIES = 3
# What may happen at a step: the operator works, or is killed after its actions and before it writes the status, or what
# it did was decided on a status that somebody else had written by then, or the Job fails.
EVENTS = st.sampled_from(["works", "works", "is killed", "meets a conflict", "a worker fails", "a worker is evicted"])
FAILURES = {
    "a worker fails": condition("Failed", reason="BackoffLimitExceeded"),
    "a worker is evicted": condition(
        "Failed",
        reason="PodFailurePolicy",
        message="Pod x has condition DisruptionTarget matching FailJob rule at index 0",
    ),
}


class Cluster:
    """A GPUJob and its batch Job as the API server has them."""

    def __init__(self) -> None:
        self.job: GPUJob = make_job(backoffLimit=RETRIES, workers=3)
        self.child: Job | None = None
        self.made: Counter[int] = Counter()
        self.evictions = 0
        self.now = NOW

    def step(self, event: str) -> None:
        self.now += timedelta(seconds=400)
        if event in FAILURES:
            self.fail(event)
            return
        if event == "meets a conflict":
            # The status is written first by another: nothing of this look comes about but what it read.
            return
        seen = see(self.job, child=self.child, verdict=LET_GO, now=self.now, obstacle=resting(self.job, now=self.now))
        outcome = reconcile(seen)
        for action in outcome.actions:
            self.act(action)
        if event == "works":
            self.job = msgspec.structs.replace(self.job, status=outcome.status)

    def act(self, action: object) -> None:
        if isinstance(action, CreateJob):
            assert self.child is None, "a second Job beside the first"
            number = int(action.manifest["metadata"]["annotations"]["dovetail.dev/attempt"])
            self.made[number] += 1
            child = make_child(self.job)
            marked = msgspec.structs.replace(child.metadata, annotations={"dovetail.dev/attempt": str(number)})
            self.child = msgspec.structs.replace(child, metadata=marked)
        elif isinstance(action, DeleteJob):
            self.child = None

    def fail(self, event: str) -> None:
        if self.child is None or self.child.status.conditions:
            return
        self.evictions += event == "a worker is evicted"
        status = msgspec.convert({"conditions": [FAILURES[event]]}, type(self.child.status))
        self.child = msgspec.structs.replace(self.child, status=status)


@given(st.lists(EVENTS, max_size=60))
def test_each_attempt_is_made_once_and_only_what_counts_is_counted(events: list[str]) -> None:
    cluster = Cluster()
    for event in events:
        cluster.step(event)
        status = cluster.job.status
        assert set(cluster.made.values()) <= {1}
        assert status.retries <= RETRIES
        assert 0 <= status.attempt - 1 - status.retries <= cluster.evictions
    for _ in range(100):
        cluster.step("a worker fails")
        cluster.step("works")
        if is_finished(cluster.job):
            break
    assert cluster.job.status.phase == "Failed"
    assert sorted(cluster.made) == list(range(1, RETRIES + 1 + cluster.evictions + 1))
