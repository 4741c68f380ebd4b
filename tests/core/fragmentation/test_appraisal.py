"""What the live engine asks about devices of its own choice equals what the policies find for theirs."""

import numpy as np
from hypothesis import given, settings

from dovetail.fragmentation.appraisal import FGDAppraisal
from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.fgd import FGDScorer
from dovetail.fragmentation.ph_terms import PHAppraisal
from dovetail.fragmentation.placement_delta import Taking
from dovetail.fragmentation.pod_shapes import Choice, Shape
from dovetail.fragmentation.workload_mix import Mix
from tests.core.fragmentation.builders import cluster, host, mix_of, share, whole
from tests.core.fragmentation.strategies import Step, apply, clusters, histories, mixes

SHARE = share(125, cpu_milli=500, memory_mib=1024)


def happen(columns: Columns, history: list[Step]) -> None:
    running: list[Choice] = []
    for step in history:
        apply(columns, step, running=running)


def sharing(columns: Columns, shape: Shape = SHARE) -> Taking:
    """The share on the first device of every node that has room for it there."""
    rows = np.flatnonzero(columns.left[:, 0] >= shape.share_milli)
    before = columns.left[rows, :1]
    return Taking(
        rows=rows,
        before=before,
        after=before - shape.share_milli,
        cpu_milli=shape.cpu_milli,
        memory_mib=shape.memory_mib,
    )


@settings(max_examples=40, deadline=None)
@given(clusters(), mixes(), histories)
def test_a_share_costs_the_same_either_way(columns: Columns, mix: Mix, history: list[Step]) -> None:
    appraisal = PHAppraisal(columns, mix=mix)
    happen(columns, history)
    appraisal.refresh()
    taking = sharing(columns)
    left = taking.before[:, 0]
    by_share = appraisal.gradient.change_by_share(SHARE, rows=taking.rows, left=left)
    np.testing.assert_allclose(appraisal.gradient.change_by_taking(taking), by_share)
    assert appraisal.loss(taking).tolist() == appraisal.headroom.change(SHARE, rows=taking.rows, left=left).tolist()


def test_several_devices_that_are_taken_whole_cost_what_the_policy_says() -> None:
    columns, shape = cluster(4, 8), whole(3)
    appraisal = PHAppraisal(columns, mix=mix_of((share(500), 2), (whole(2), 1), (host(4000), 1)))
    appraisal.refresh()
    before = np.full((2, 3), 1000)
    taking = Taking(rows=np.arange(2), before=before, after=before - 1000, cpu_milli=1000, whole=True)
    change = appraisal.gradient.change_by_whole(shape, rows=taking.rows)
    np.testing.assert_allclose(appraisal.static(taking), -1.5 * change / 1000)
    assert appraisal.loss(taking).tolist() == appraisal.headroom.change(shape, rows=taking.rows, left=None).tolist()


def test_a_piece_that_fills_a_residual_loses_what_the_residual_was_worth() -> None:
    columns = cluster(1, 1)
    columns.place(Choice(shape=share(600), node=0, devices=(0,)))
    appraisal = PHAppraisal(columns, mix=mix_of((share(600), 1), (share(400), 1)))
    appraisal.refresh()
    fills, breaks = appraisal.static(sharing(columns, share(400))).tolist()
    assert fills > breaks


def test_fgd_appraises_with_the_published_score() -> None:
    columns, mix = cluster(2, 2), mix_of((share(700), 1), (share(300), 1))
    columns.place(Choice(shape=share(700), node=0, devices=(0,)))
    taking = sharing(columns, share(300))
    expected, _ = FGDScorer(columns, mix=mix).score(columns, shape=share(300), rows=taking.rows)
    assert FGDAppraisal(columns, mix=mix).static(taking).tolist() == expected.tolist()


def test_an_appraisal_made_on_a_copy_goes_on_with_the_original() -> None:
    columns = cluster(2, 2)
    appraisal = PHAppraisal(columns.copy(), mix=mix_of((whole(1), 1)))
    columns.place(Choice(shape=whole(2), node=0, devices=(0, 1)))
    appraisal.follow(columns)
    appraisal.refresh()
    assert appraisal.headroom.total[0] == 2.0
