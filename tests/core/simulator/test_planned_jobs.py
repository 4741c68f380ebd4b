"""Pods of a trace as GPUJobs: the queue's own code plans them, and no device gets more than it has."""

from dataclasses import replace

import pytest

from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.fragmentation.pod_shapes import Choice
from dovetail.simulator.curve import allocation_at
from dovetail.simulator.experiment import run
from dovetail.simulator.parallel import expected_mix, run_one
from dovetail.simulator.planned_jobs import PlannedJobs
from dovetail.simulator.trace import columns_of
from tests.core.fragmentation.builders import host, mix_of, share, whole
from tests.core.simulator.builders import make_scene, nodes


@pytest.mark.parametrize(("term", "plain"), [("ph", "pack"), ("fgd", "fgd"), ("bestfit", "bestfit")])
def test_jobs_are_allocated_what_plain_pods_are(term: str, plain: str) -> None:
    scene = make_scene(copies=4)
    pods = run_one(plain, scene=scene)
    jobs = run_one(term, scene=replace(scene, jobs=True))
    assert jobs.policy == term
    for load in (90, 100, 130):
        expected, found = (allocation_at(each, percent=load) for each in (pods, jobs))
        assert found == pytest.approx(expected, abs=2.5)


def test_a_job_is_planned_where_a_pod_goes() -> None:
    scene = make_scene(copies=4)
    pods, jobs = run_one("pack", scene=scene), run_one("ph", scene=replace(scene, jobs=True))
    assert jobs.allocated_milli.tolist() == pods.allocated_milli.tolist()
    assert (jobs.refused, jobs.fragments_milli) == (pods.refused, pods.fragments_milli)


def test_a_job_for_a_model_of_one_size_fits_there_alone() -> None:
    cards = [replace(nodes()[0], name=model, model=model) for model in ("V100M16", "V100M32", "X1")]
    planned = PlannedJobs(cards, term="ph")
    for row, model in enumerate(["V100M16", "V100M32", "X1"]):
        found = [planned.choose(replace(whole(8), models=(model,))) for _ in range(2)]
        assert [each and each.node for each in found] == [row, None]


def test_jobs_that_end_give_back_what_they_had() -> None:
    scene = make_scene(departures=True, percent=400)
    columns = columns_of(scene.nodes)
    planned = PlannedJobs(scene.nodes, term="ph")
    outcome = run(
        "ph",
        policy=planned,
        columns=columns,
        visits=scene.visits,
        expected=expected_mix(mix_of((whole(1), 1))),
        clock=lambda: 0.0,
        left=planned.left,
    )
    assert outcome.placed > len(scene.visits) / 2
    # Both have followed the same arrivals and ends, each in its own form.
    totals = planned._ledger.totals()
    assert totals.milli - totals.promised_milli == columns.idle_milli
    assert columns.left.min() >= 0
    assert columns.spare[:, :2].min() >= 0


def test_what_is_taken_at_the_start_is_planned_around() -> None:
    taken = [Choice(shape=whole(8), node=at, devices=tuple(range(8))) for at in (0, 1)]
    planned = PlannedJobs(nodes(), term="ph", taken=taken)
    first, second = planned.choose(whole(8)), planned.choose(whole(8))
    assert first is not None
    assert (first.node, second) == (5, None)
    planned.left(taken[0])
    third = planned.choose(whole(8))
    assert third is not None
    assert third.node == 0


@pytest.mark.parametrize("term", ["ph", "fgd", "bestfit"])
def test_pods_without_gpus_are_placed_as_plain_pods(term: FragmentationPolicy) -> None:
    planned = PlannedJobs(nodes(), term=term)
    found = planned.choose(host(8000))
    assert found is not None
    assert found.devices == ()
    assert planned.choose(host(1_000_000)) is None
    assert planned.choose(share(500)) is not None
