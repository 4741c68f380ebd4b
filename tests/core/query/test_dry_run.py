"""Dry runs on a prepared queue: what is asked about counts once, and times are those of the estimate."""

from dataclasses import replace
from math import floor

import pytest
from msgspec.structs import replace as with_fields

from dovetail.query.dry_run import dry_run_on, prepare
from tests.core.query.clusters import random_cluster
from tests.operator_.builders import NOW, at

# The likeliest future alone: what was submitted teaches which jobs come, and one of two clusters has a job more.
CYCLES = 40


@pytest.mark.parametrize("seed", range(8))
def test_a_job_in_its_own_place_is_decided_on_as_where_it_never_was(seed: int) -> None:
    objects = random_cluster(seed).objects()
    prepared = prepare(objects, now=NOW)
    waiting = {each.key for each in prepared.queue.waiting}
    for job in (each for each in objects.jobs if each.metadata.uid in waiting and each.spec.array is None):
        alone = prepare(replace(objects, jobs=[each for each in objects.jobs if each is not job]), now=NOW)
        uid = job.metadata.uid
        found = dry_run_on(prepared, job=job, in_place_of=uid, submitted=True, most_cycles=CYCLES)
        assert found == dry_run_on(alone, job=job, submitted=True, most_cycles=CYCLES)


@pytest.mark.parametrize("seed", range(12))
def test_a_job_that_runs_has_no_place_in_the_queue(seed: int) -> None:
    """Its devices are taken until it has ended."""
    cluster = random_cluster(seed)
    new, prepared = cluster.new_job("new", gpu=2, namespace="team"), prepare(cluster.objects(), now=NOW)
    expected = dry_run_on(prepared, job=new, most_cycles=CYCLES)
    for uid in {each.job for each in prepared.queue.leaving} - {each.key for each in prepared.queue.waiting}:
        assert dry_run_on(prepared, job=new, in_place_of=uid, most_cycles=CYCLES) == expected


@pytest.mark.parametrize(("begins", "outcome"), [(-1, False), (0, False), (1, True)])
def test_a_job_that_begins_later_is_not_decided_on_before(begins: int, outcome: bool) -> None:
    cluster = random_cluster(1)
    job = cluster.new_job("new", gpu=1)
    job = with_fields(job, spec=with_fields(job.spec, begin_time=at(begins)))
    found = dry_run_on(prepare(cluster.objects(), now=NOW), job=job, most_cycles=CYCLES)
    assert (found.outcome == "NotBefore") is outcome
    assert not outcome or (found.reason, found.message) == ("BeginTime", at(begins))


@pytest.mark.parametrize(("seed", "is_ranged"), [(1, True), (4, False), (9, True), (17, True)])
def test_the_times_of_an_estimate_are_those_of_the_queue_to_the_second(seed: int, is_ranged: bool) -> None:
    cluster = random_cluster(seed)
    for _ in range(3):
        # From several ends it is learned how long such jobs run, and estimates get a range.
        cluster.add_ended()
    job = cluster.new_job("new", gpu=2, namespace="team")
    prepared = prepare(cluster.objects(), now=NOW)
    start = dry_run_on(prepared, job=job).start
    assert start is not None
    asked, counted = prepared.queue.asked_as(job, submitted=False)
    estimate = prepared.queue.start_of(asked, counted=counted)
    assert estimate is not None
    expected = prepared.queue.learned.expectations.expected(estimate)
    seconds, bounds = expected.seconds, expected.bounds
    assert (estimate.range_seconds is not None) is is_ranged
    ranged = [bounds.earliest_seconds, bounds.latest_seconds] if is_ranged else [None, None]
    rounded = [None if each is None else floor(each + 0.5) for each in (seconds, *ranged)]
    assert [start.seconds, start.earliest, start.latest] == rounded
    assert start.basis == expected.basis.message
