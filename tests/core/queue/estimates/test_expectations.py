"""What waiting jobs may expect, out of the GPUJobs that are there."""

from dataclasses import replace
from itertools import islice
from math import exp, floor

import pytest

from dovetail.api.gpujob import QueuePlace
from dovetail.api.reasons.catalog import rendered
from dovetail.api.reasons.queue import ITS_TURN
from dovetail.queue.estimates.calibration import Factors, Held
from dovetail.queue.estimates.expectations import REMEMBERED, Expectations, groups_of
from dovetail.queue.estimates.simulation import Start
from dovetail_operator.queue.cycle import survey
from dovetail_operator.queue.start_estimates import estimates
from dovetail_operator.state.state import State
from tests.core.queue.backfill.test_backfill import make_job as make_candidate
from tests.operator_.builders import NOW, at, make_child, make_job, make_pod, make_state
from tests.world.tables import tables


def has_run(expectations: Expectations, number: int, *, seconds: float, phase: str = "Succeeded") -> None:
    status = {"phase": phase, "startTime": at(0), "completionTime": at(seconds), "request": "1"}
    expectations.observe(make_job(f"r{number}", status=status, activeDeadlineSeconds=1000))


def test_jobs_that_have_ended_tell_how_long_those_like_them_run() -> None:
    expectations = Expectations()
    job = make_job(status={"request": "1"}, activeDeadlineSeconds=2000)
    assert expectations.run_seconds(job) is None
    for number in range(10):
        has_run(expectations, number, seconds=250)
    assert expectations.run_seconds(job) == 500
    assert expectations.run_seconds(make_job(status={"request": "1"})) is None


@pytest.mark.parametrize(("limit", "expected"), [(100_000, 80_000), (130_000, 104_000), (20_000, 2_000)])
def test_jobs_with_about_the_same_limit_tell_more_than_those_with_another(limit: int, expected: float) -> None:
    expectations = Expectations()
    for number in range(20):
        # Each with a limit and a request of its own: a half of 24 to 35 hours, the others of 4 to 5 hours.
        long = number % 2
        own = (90_000 if long else 15_000) + 1_500 * number // (1 if long else 10)
        ran = own * (0.8 if long else 0.1)
        status = {"phase": "Succeeded", "startTime": at(0), "completionTime": at(ran), "request": f"{number}"}
        expectations.observe(make_job(f"r{number}-x", status=status, activeDeadlineSeconds=own))
    asked = make_job("another", status={"request": "1(V100)"}, activeDeadlineSeconds=limit)
    assert expectations.run_seconds(asked) == pytest.approx(expected, rel=0.01)


def test_jobs_that_somebody_ended_tell_nothing_and_none_counts_twice() -> None:
    expectations = Expectations()
    for _ in range(20):
        has_run(expectations, 0, seconds=250)
    for number in range(20):
        has_run(expectations, number, seconds=1, phase="Cancelled")
    assert expectations.run_seconds(make_job(status={"request": "1"}, activeDeadlineSeconds=2000)) is None


def start(key: str, seconds: float) -> Start:
    return Start(key=key, in_seconds=seconds, basis=ITS_TURN())


def test_the_bounds_are_learned_from_starts_that_were_foreseen() -> None:
    expectations, ranged = Expectations(), replace(start("uid-y", 1940), range_seconds=(1500, 2500))
    before = expectations.place(ranged, now=NOW)
    for number in range(30):
        expectations.place(start(f"uid-x{number}", 940), now=NOW)
        expectations.observe(make_job(f"x{number}", status={"phase": "Running", "startTime": at(940)}))
    after = expectations.place(ranged, now=NOW)
    assert (after.estimated_start, after.basis) == (at(1940), "Its turn comes after jobs before it")
    assert before.estimated_start_earliest is not None
    assert after.estimated_start_earliest is not None
    assert before.estimated_start_earliest < after.estimated_start_earliest


def test_a_job_that_is_gone_before_it_starts_teaches_nothing() -> None:
    expectations = Expectations()
    wide = expectations.place(start("uid-y", 1940), now=NOW)
    for number in range(10):
        job = make_job(f"x{number}", status={"phase": "Running", "startTime": at(740)})
        expectations.place(start(f"uid-x{number}", 940), now=NOW)
        expectations.drop(job)
        expectations.observe(job)
    assert expectations.place(start("uid-y", 1940), now=NOW) == wide


@pytest.mark.parametrize(
    ("name", "alike"),
    [("train-17", "train-18"), ("train.3", "train.44"), ("train", "train-7x2kp"), ("train-large", "train-large-1")],
)
def test_runs_of_the_same_work_are_known_by_their_names(name: str, alike: str) -> None:
    assert groups_of(make_job(name))[0] == groups_of(make_job(alike))[0]


def test_other_work_other_users_and_other_limits_are_told_apart() -> None:
    jobs = [
        make_job("train-small"),
        make_job("train-large"),
        make_job("train-large", meta={"annotations": {"dovetail.dev/user": "ada"}}),
        make_job("train-large", activeDeadlineSeconds=60),
    ]
    assert len({groups_of(job)[0] for job in jobs}) == len(jobs)


def test_jobs_of_higher_priority_that_came_before_are_reckoned_with() -> None:
    expectations = Expectations()
    first, second = (
        make_job(name, meta={"creationTimestamp": at(seconds)}) for name, seconds in (("a", -7200), ("b", -3600))
    )
    assert [job.metadata.name for job in expectations.new([second, first])] == ["a", "b"]
    assert expectations.new([first]) == []
    for job in (first, second):
        expectations.came(job, candidate=make_candidate(job.metadata.name, priority=50))
    expectations.came(first, candidate=None)
    coming = expectations.coming(now=NOW)
    assert [at_seconds for at_seconds, _ in islice(coming(play=0, above=10), 3)] == [0, 3600, 7200]
    assert list(coming(play=0, above=50)) == []


def one_runs_and_one_waits() -> State:
    state = make_state(a=4)
    runs = make_job("runs", status={"number": 1, "request": "4"}, gpu=4, activeDeadlineSeconds=4000)
    state.store.job_changed(runs)
    state.store.child_changed(make_child(runs, uid="uid-child-runs", status={"startTime": at(0)}))
    state.store.pod_event("ADDED", make_pod(node="a", devices=4, owner="uid-child-runs", created=-60))
    state.store.job_changed(make_job("waits", status={"number": 2, "request": "4"}, gpu=4))
    return state


def test_an_estimate_rests_on_what_jobs_like_those_that_run_have_used() -> None:
    state = one_runs_and_one_waits()
    for number in range(10):
        has_run(state.store.expectations, number, seconds=500)
    ((key, place),) = (
        each for each in estimates(state, cycle=survey(state, now=NOW, foresees=True)) if each is not None
    )
    assert key == "uid-waits"
    assert place.estimated_start == at(2000)
    assert place.basis == "1 job has ended on a by then, if they use as much of their time limits as jobs like them did"
    assert rendered(place.basis_details).message == place.basis
    assert [each.code for each in place.basis_details] == ["EndedOnNode", "AsJobsLikeThem"]
    assert place.basis_details[0].parameters == {"jobs": "1", "node": "a"}


def place_after(shift: float) -> QueuePlace:
    state = one_runs_and_one_waits()
    state.store.expectations.misses.restore(Factors(early=8, late=8, shift=shift), held=Held())
    ((_, place),) = (each for each in estimates(state, cycle=survey(state, now=NOW, foresees=True)) if each is not None)
    assert rendered(place.basis_details).message == place.basis
    return place


@pytest.mark.parametrize(
    ("shift", "moved"),
    [
        (0.0, ""),
        # From 4,030 s, with half a minute for the end, to 4,415 and 4,460.
        (0.09, ""),
        (0.1, "; moved later, as the latest jobs waited longer than was foreseen"),
        (-0.1, ""),
        (-0.11, "; moved earlier, as the latest jobs waited less than was foreseen"),
    ],
)
def test_an_estimate_that_is_moved_by_more_than_a_tenth_says_so(shift: float, moved: str) -> None:
    place = place_after(shift)
    assert place.basis == "1 job has ended on a by then at the latest, by the time limits" + moved
    assert place.estimated_start == at(floor(4090 * exp(shift) - 60 + 0.5))


def test_where_run_times_differ_the_start_is_in_the_midst_of_what_was_played_and_the_bounds_are_wide() -> None:
    state = one_runs_and_one_waits()
    for number in range(20):
        has_run(state.store.expectations, number, seconds=50 * (number + 1))
    ((_, place),) = (each for each in estimates(state, cycle=survey(state, now=NOW, foresees=True)) if each is not None)
    start, latest = place.estimated_start, place.estimated_start_latest
    assert start is not None
    assert latest is not None
    assert at(1000) < start < at(3600)
    assert latest > at(3000)


def test_of_more_submissions_than_are_remembered_the_latest_count_and_none_is_new_again() -> None:
    expectations = Expectations()
    jobs = [make_job(f"x{number}", meta={"creationTimestamp": at(number)}) for number in range(REMEMBERED + 3)]
    latest = [job.metadata.name for job in jobs[3:]]
    assert [job.metadata.name for job in expectations.new(reversed(jobs))] == latest
    assert expectations.new(jobs) == []


def test_of_a_deleted_job_only_what_it_taught_is_kept() -> None:
    expectations = Expectations()
    job = make_job("x1", status={"phase": "Succeeded", "startTime": at(0), "completionTime": at(60), "request": "1"})
    for each in (job, make_job("x2", activeDeadlineSeconds=100)):
        expectations.new([each])
        expectations.place(start(each.metadata.uid, 60), now=NOW)
        expectations.observe(each)
        expectations.drop(each)
    left = {path for path, table in tables(expectations).items() if table.content and "uid-" in str(table.content)}
    assert left == set()


def test_each_end_is_news_for_jobs_with_a_limit_also_after_others_were_deleted() -> None:
    expectations, limited, unlimited = Expectations(), make_job(activeDeadlineSeconds=1000), make_job()
    versions = [expectations.learned_of(limited)]
    for number in range(3):
        status = {"phase": "Succeeded", "startTime": at(0), "completionTime": at(60)}
        ended = make_job(f"x{number}", activeDeadlineSeconds=1000, status=status)
        expectations.observe(ended)
        versions.append(expectations.learned_of(limited))
        expectations.drop(ended)
    assert len(set(versions)) == 4
    assert expectations.learned_of(unlimited) == 0
