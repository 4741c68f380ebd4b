"""What jobs take of the limits is counted anew where something has changed of which it is made, and else kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.api.gpuquota import GPUQuota
from dovetail.engine.model.claims import Claim
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.verdicts import Admitted
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import Counts, children_of_jobs, counted_jobs
from tests.operator_.builders import at, make_child, make_job, make_pod, make_state


def quota(name: str = "q", *, pools: Sequence[str] = ()) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"limit": {"gpus": 8}, "pools": list(pools)}}, GPUQuota)


@lru_cache(maxsize=1)
def cache_of(_state: State) -> Counts:
    """The cache of one test, from one count to the next."""
    return Counts()


def count(state: State, *, waiting: Sequence[str] = ("uid-x",)) -> list[Counted]:
    """What is counted, which has to be as by an operator that has just begun."""
    found = counted_jobs(state, waiting=waiting, cache=cache_of(state))
    assert counted_jobs(state, waiting=waiting) == found
    return found


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happens to a job that waits, and what it takes then; None where that is nothing."""

    says: str
    happens: Callable[[State, GPUJob], object]
    milli: int | None = 2000
    queued: bool = True
    refused: bool = False
    waiting: Sequence[str] = ("uid-x",)


def let_go(state: State, job: GPUJob) -> None:
    claims = (Claim(key="uid-x/0", node="a"),)
    state.decisions.set_verdict(job.metadata.uid, verdict=Admitted(key=job.metadata.uid, claims=claims))


def with_a_child(state: State, job: GPUJob) -> None:
    state.store.child_changed(make_child(job, parallelism=1, completions=1))


def with_a_pod(state: State, job: GPUJob) -> None:
    with_a_child(state, job)
    count(state)
    state.store.pod_event("ADDED", make_pod(node="a", devices=2))


CHANGES = (
    Change(
        says="it is edited",
        happens=lambda state, _: state.store.job_changed(
            make_job(meta={"resourceVersion": "11", "generation": 2}, gpu=4)
        ),
        milli=4000,
    ),
    Change(says="it is let go, with fewer workers", happens=let_go, milli=1000, queued=False),
    Change(says="a batch Job is at work", happens=with_a_child, milli=1000, queued=False),
    Change(says="a pod of its batch Job holds more than was planned", happens=with_a_pod, milli=2000, queued=False),
    Change(says="it does not wait any more", happens=lambda *_: None, waiting=(), milli=None),
    Change(says="a quota allows no pool of its", happens=lambda state, _: forbid(state), refused=True),
)


def forbid(state: State) -> None:
    state.store.quotas.update(quota("one", pools=["slow"]))
    state.store.quotas.update(quota("other", pools=["fast"]))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.says)
def test_a_job_is_counted_anew_when(change: Change) -> None:
    state = make_state(a=8)
    state.store.quotas.update(quota())
    job = make_job(workers=2, minWorkers=1)
    state.store.job_changed(job)
    count(state)
    (before,) = count(state)
    assert (before.milli, before.queued, before.refused) == (2000, True, None)
    change.happens(state, job)
    found = [(each.milli, each.queued, each.refused is not None) for each in count(state, waiting=change.waiting)]
    assert found == ([] if change.milli is None else [(change.milli, change.queued, change.refused)])


def test_what_has_not_changed_is_not_counted_anew() -> None:
    state = make_state(a=8)
    state.store.quotas.update(quota())
    state.store.job_changed(make_job())
    (first,), (second,) = count(state), count(state)
    assert second is first


def test_nothing_is_kept_of_a_job_that_is_gone() -> None:
    state = make_state(a=8)
    state.store.quotas.update(quota())
    state.store.job_changed(make_job())
    (first,) = count(state)
    state.store.job_deleted("team/x", uid="uid-x")
    assert count(state) == []
    state.store.job_changed(make_job())
    (again,) = count(state)
    assert again == first
    assert again is not first


def test_what_every_quota_has_noted_is_not_counted_any_more() -> None:
    state = make_state(a=8)
    shares = {"metadata": {"name": "s"}, "spec": {"shares": 1}}
    state.store.quotas.update(quota())
    state.store.quotas.update(msgspec.convert(shares, GPUQuota))
    state.store.job_changed(make_job(status={"phase": "Succeeded", "startTime": at(-90), "completionTime": at(-60)}))
    assert len(counted_jobs(state, waiting=())) == 1
    state.store.quotas.update(msgspec.convert(shares | {"status": {"asOf": at(-30)}}, GPUQuota))
    assert counted_jobs(state, waiting=()) == []
    state.store.quotas.update(msgspec.convert(shares, GPUQuota))
    assert len(counted_jobs(state, waiting=())) == 1
    state.store.quotas.drop("s")
    assert counted_jobs(state, waiting=()) == []


def test_without_quotas_only_jobs_of_groups_are_counted_whatever_comes_before_them() -> None:
    state = make_state(a=8)
    for job in (make_job("alone"), make_job("x", group="g"), make_job("last")):
        state.store.job_changed(job)
    found = counted_jobs(state, waiting=("uid-alone", "uid-x", "uid-last"))
    assert [each.uid for each in found] == ["uid-x"]


def test_without_quotas_no_batch_job_is_looked_up() -> None:
    state = make_state(a=8)
    job = make_job()
    state.store.job_changed(job)
    state.store.child_changed(make_child(job))
    assert children_of_jobs(state) == frozenset()
    state.store.quotas.update(quota())
    assert children_of_jobs(state) == {("team", "uid-child")}


def test_a_pod_of_another_namespace_that_names_the_batch_job_as_its_owner_counts_there() -> None:
    state = make_state(a=8)
    state.store.quotas.update(quota())
    job = make_job()
    state.store.job_changed(job)
    state.store.child_changed(make_child(job))
    state.store.pod_event("ADDED", make_pod(node="a", devices=1))
    meta = {"name": "theirs", "namespace": "lab", "uid": "uid-theirs", "labels": {"dovetail.dev/job": "x"}}
    other = make_pod(1, node="a", devices=4)
    metadata = msgspec.convert({**msgspec.to_builtins(other.metadata), **meta}, type(other.metadata))
    state.store.pod_event("ADDED", msgspec.structs.replace(other, metadata=metadata))
    assert [each.milli for each in count(state)] == [1000]
