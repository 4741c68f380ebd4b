"""After a write, a job's next reconcile waits for the watch, but not for ever."""

import pytest

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail_operator.state.pending_writes import MAX_WAIT_SECONDS, PendingWrites
from dovetail_operator.state.store import Store
from tests.clock import Clock
from tests.operator_.builders import make_child, make_job, make_state

KEY = "team/x"


@pytest.fixture
def store() -> Store:
    store = make_state().store
    for name in ("x", "a", "b", "c"):
        store.job_changed(job_at(1, name=name))
    return store


@pytest.fixture
def pending(clock: Clock) -> PendingWrites:
    return PendingWrites(clock=clock)


def job_at(version: int, *, name: str = "x") -> GPUJob:
    return make_job(name, meta={"resourceVersion": str(version)})


def child_at_20() -> Job:
    return make_child(make_job())


def test_a_reconcile_waits_for_the_status_that_was_written_and_goes_on_once_the_watch_brings_it(
    pending: PendingWrites, store: Store
) -> None:
    pending.await_job(KEY, written=job_at(11), store=store, is_status=True)
    assert pending.wait_seconds(KEY) == MAX_WAIT_SECONDS
    assert pending.observed("GPUJob", meta=job_at(11).metadata) == ([KEY], True)
    assert pending.wait_seconds(KEY) == 0


def test_an_older_version_ends_no_wait(pending: PendingWrites, store: Store) -> None:
    pending.await_job(KEY, written=job_at(11), store=store)
    assert pending.observed("GPUJob", meta=job_at(10).metadata) == ([], False)
    assert pending.wait_seconds(KEY) > 0


def test_a_later_version_ends_the_wait_and_is_not_taken_for_the_operators_own_status(
    pending: PendingWrites, store: Store
) -> None:
    pending.await_job(KEY, written=job_at(11), store=store, is_status=True)
    pending.wait_seconds(KEY)
    assert pending.observed("GPUJob", meta=job_at(12).metadata) == ([KEY], False)


def test_a_job_without_a_deferred_reconcile_is_not_reconciled_for_its_own_write(
    pending: PendingWrites, store: Store
) -> None:
    pending.await_job(KEY, written=job_at(11), store=store, is_status=True)
    assert pending.observed("GPUJob", meta=job_at(11).metadata) == ([], True)


def test_a_watch_that_is_silent_ends_the_wait(pending: PendingWrites, store: Store, clock: Clock) -> None:
    pending.await_child(KEY, written=child_at_20(), store=store)
    assert pending.wait_seconds(KEY) == MAX_WAIT_SECONDS
    clock.now += MAX_WAIT_SECONDS
    assert pending.wait_seconds(KEY) == 0
    assert pending.observed("Job", meta=child_at_20().metadata) == ([], False)


def test_what_the_watch_brought_before_the_answer_is_not_awaited(pending: PendingWrites, store: Store) -> None:
    store.job_changed(job_at(12))
    store.child_changed(child_at_20())
    pending.await_job(KEY, written=job_at(11), store=store)
    pending.await_child(KEY, written=child_at_20(), store=store)
    assert pending.wait_seconds(KEY) == 0


def test_after_a_conflict_only_a_later_version_ends_the_wait(pending: PendingWrites, store: Store) -> None:
    store.job_changed(job_at(11))
    pending.await_newer_job(KEY, job=job_at(11), store=store)
    pending.wait_seconds(KEY)
    assert pending.observed("GPUJob", meta=job_at(11).metadata) == ([], False)
    assert pending.observed("GPUJob", meta=job_at(12).metadata) == ([KEY], False)


def test_an_array_waits_for_all_of_its_tasks(pending: PendingWrites, store: Store) -> None:
    for name in ("x-0", "x-1"):
        pending.await_job(KEY, written=job_at(11, name=name), store=store)
    pending.wait_seconds(KEY)
    assert pending.observed("GPUJob", meta=job_at(11, name="x-1").metadata).resumed == []
    assert pending.observed("GPUJob", meta=job_at(11, name="x-0").metadata).resumed == [KEY]


def test_nothing_is_awaited_for_a_job_that_is_deleted(pending: PendingWrites, store: Store) -> None:
    pending.await_child(KEY, written=child_at_20(), store=store)
    pending.forget(KEY)
    assert pending.wait_seconds(KEY) == 0


def test_a_job_that_was_deleted_during_its_write_awaits_nothing(pending: PendingWrites, store: Store) -> None:
    store.job_deleted(KEY, uid="uid-x")
    pending.await_child(KEY, written=child_at_20(), store=store)
    pending.await_job(KEY, written=job_at(11), store=store)
    pending.await_newer_child(KEY, child=child_at_20(), store=store)
    pending.await_newer_job(KEY, job=job_at(11), store=store)
    assert pending.wait_seconds(KEY) == 0


def test_a_write_that_is_no_status_is_not_taken_for_one(pending: PendingWrites, store: Store) -> None:
    pending.await_job(KEY, written=job_at(11), store=store)
    assert pending.observed("GPUJob", meta=job_at(11).metadata) == ([], False)


def test_the_latest_of_several_writes_is_awaited_whatever_their_order(pending: PendingWrites, store: Store) -> None:
    for version in (12, 13, 11):
        pending.await_job(KEY, written=job_at(version), store=store)
    pending.wait_seconds(KEY)
    assert [pending.observed("GPUJob", meta=job_at(version).metadata).resumed for version in (12, 13)] == [[], [KEY]]


def test_a_job_that_waits_for_two_objects_goes_on_with_the_second(pending: PendingWrites, store: Store) -> None:
    pending.await_job(KEY, written=job_at(11), store=store)
    pending.await_child(KEY, written=child_at_20(), store=store)
    pending.wait_seconds(KEY)
    assert pending.observed("GPUJob", meta=job_at(11).metadata).resumed == []
    assert pending.observed("Job", meta=child_at_20().metadata).resumed == [KEY]


def test_owners_of_one_object_go_on_together_but_for_one_that_is_forgotten(
    pending: PendingWrites, store: Store
) -> None:
    for owner in ("team/a", "team/b", "team/c"):
        pending.await_job(owner, written=job_at(11), store=store)
        pending.wait_seconds(owner)
    pending.forget("team/b")
    pending.forget("team/b")
    assert sorted(pending.observed("GPUJob", meta=job_at(11).metadata).resumed) == ["team/a", "team/c"]


def test_the_last_write_decides_how_long_the_job_waits(pending: PendingWrites, store: Store, clock: Clock) -> None:
    pending.await_job(KEY, written=job_at(11), store=store)
    clock.now += 2
    pending.await_child(KEY, written=child_at_20(), store=store)
    assert pending.wait_seconds(KEY) == MAX_WAIT_SECONDS
    clock.now += MAX_WAIT_SECONDS
    assert pending.wait_seconds(KEY) == 0
    assert pending.observed("GPUJob", meta=job_at(11).metadata).resumed == [], "it has gone on already"


def test_a_version_that_the_store_has_is_awaited_only_after_a_conflict(pending: PendingWrites, store: Store) -> None:
    store.job_changed(job_at(11))
    store.child_changed(child_at_20())
    pending.await_job(KEY, written=job_at(11), store=store)
    pending.await_child(KEY, written=child_at_20(), store=store)
    assert pending.wait_seconds(KEY) == 0
    pending.await_newer_job(KEY, job=job_at(10), store=store)
    assert pending.wait_seconds(KEY) == 0, "the watch was first"
    pending.await_newer_job(KEY, job=job_at(11), store=store)
    pending.await_newer_child(KEY, child=child_at_20(), store=store)
    assert pending.wait_seconds(KEY) == MAX_WAIT_SECONDS
