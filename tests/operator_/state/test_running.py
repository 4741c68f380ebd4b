"""What the queue makes of a job at work is kept as long as nothing has changed of which it is made."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
import pytest

from dovetail_operator.queue.cycle import Cycle, survey
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.state.state import State
from tests.operator_.builders import NOW, at, make_child, make_job, make_pod, make_state

JOB = make_job(workers=2, status={"number": 1})
CHILD = make_child(JOB, status={"startTime": at(-60)})
FIRST, SECOND = make_pod(0, node="a"), make_pod(1, node="a")

# The caches of the queue over a state, from one cycle of a test to the next.
caches_of = lru_cache(maxsize=1)(caches_for)


def look(state: State) -> Cycle:
    """A look of the queue, which has to be as one by an operator that has just begun."""
    found = survey(state, now=NOW, caches=caches_of(state))
    assert survey(state, now=NOW) == found
    return found


def put_child(state: State, **changed: object) -> None:
    metadata = msgspec.structs.replace(CHILD.metadata, resource_version="21")
    state.store.child_changed(msgspec.structs.replace(CHILD, metadata=metadata, **changed))


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happens to a job with two workers of which one has a node; whose pods leave then, and how many come."""

    says: str
    happens: Callable[[State], object]
    leaving: list[str] = field(default_factory=lambda: [FIRST.metadata.uid])
    coming: list[int] = field(default_factory=lambda: [1])
    seconds: float | None = 86_340


CHANGES = (
    Change(
        says="another pod is bound",
        happens=lambda state: state.store.pod_event("ADDED", SECOND),
        leaving=[FIRST.metadata.uid, SECOND.metadata.uid],
        coming=[],
    ),
    Change(
        says="its pod is gone", happens=lambda state: state.store.pod_event("DELETED", FIRST), leaving=[], coming=[2]
    ),
    Change(
        says="its pod has ended",
        happens=lambda state: state.store.pod_event("MODIFIED", make_pod(0, node="a", phase="Succeeded")),
        leaving=[],
    ),
    Change(
        says="its batch Job began later than was known",
        happens=lambda state: put_child(state, status=make_child(JOB, status={"startTime": at(0)}).status),
        seconds=86_400,
    ),
    Change(
        says="its batch Job is suspended, and its pods are about to leave",
        happens=lambda state: put_child(state, spec=msgspec.structs.replace(CHILD.spec, suspend=True)),
        coming=[],
        seconds=60,
    ),
    Change(
        says="the job is given a time limit",
        happens=lambda state: state.store.job_changed(
            make_job(workers=2, status={"number": 1}, meta={"resourceVersion": "11"}, activeDeadlineSeconds=90)
        ),
        seconds=60,
    ),
    Change(
        says="the job is cancelled, and its pods are about to leave",
        happens=lambda state: state.store.job_changed(
            make_job(workers=2, status={"number": 1}, meta={"resourceVersion": "11"}, cancel=True)
        ),
        coming=[],
        seconds=60,
    ),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.says)
def test_a_job_at_work_is_looked_at_again_when(change: Change) -> None:
    state = make_state(a=8)
    state.store.job_changed(JOB)
    state.store.child_changed(CHILD)
    state.store.pod_event("ADDED", FIRST)
    look(state)
    before = look(state)
    assert ([each.at_seconds for each in before.leaving], [each.workers for each in before.on_the_way]) == (
        [86_340],
        [1],
    )
    change.happens(state)
    after = look(state)
    assert [each.key for each in after.leaving] == change.leaving
    assert {each.at_seconds for each in after.leaving} <= {change.seconds}
    assert [each.workers for each in after.on_the_way] == change.coming


def test_when_those_that_run_are_likely_to_end_is_told_to_one_that_foresees() -> None:
    state = make_state(a=8)
    for number in range(10):
        ended = {"phase": "Succeeded", "request": "1", "startTime": at(-900), "completionTime": at(-650)}
        state.store.job_changed(make_job(f"old{number}", status=ended, activeDeadlineSeconds=1000))
    job = make_job(status={"number": 1, "request": "1"}, activeDeadlineSeconds=1000)
    state.store.job_changed(job)
    state.store.child_changed(make_child(job, status={"startTime": at(-60)}))
    state.store.pod_event("ADDED", FIRST)
    assert [each.likely_seconds for each in survey(state, now=NOW).leaving] == [None]
    assert [each.likely_seconds for each in survey(state, now=NOW, foresees=True).leaving] == [190]
