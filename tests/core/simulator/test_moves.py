"""Moves in the experiment: what they cost and win, within the budget, on columns that stay right."""

from dataclasses import replace

import numpy as np
import pytest

from dovetail.fragmentation.arrivals import Online
from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.pod_shapes import Choice, Shape
from dovetail.fragmentation.policy import Policy
from dovetail.fragmentation.priced_headroom import ph_online
from dovetail.queue.moves.residents import RESTART_SECONDS
from dovetail.simulator.curve import average_allocation, lost_by_moves
from dovetail.simulator.experiment import Outcome
from dovetail.simulator.moves import Moves, MovesSettings
from dovetail.simulator.parallel import Scene, run_one
from tests.core.simulator.builders import make_scene

READY = MovesSettings(starts=1.0, fragments=0.0, move=0.0)
SHARE = Shape(cpu_milli=1000, memory_mib=1024, gpus=1, share_milli=400)
WHOLE = Shape(cpu_milli=1000, memory_mib=1024, gpus=1, share_milli=1000)


def played(scene: Scene, settings: MovesSettings | None) -> tuple[Outcome, Columns | None]:
    seen: list[Columns] = []

    def moving(columns: Columns, policy: Policy) -> Moves:
        assert isinstance(policy, Online)
        assert settings is not None
        seen.append(columns)
        return Moves(columns, policy=policy, settings=settings, clock=lambda: 0.0)

    outcome = run_one("pack", scene=scene, moving=None if settings is None else moving)
    return outcome, seen[0] if seen else None


def busy() -> Scene:
    return make_scene(copies=3, percent=600, departures=True)


def moves_of(columns: Columns, settings: MovesSettings = READY) -> Moves:
    return Moves(columns, policy=ph_online(columns), settings=settings, clock=lambda: 0.0)


def one_gpu_nodes(count: int) -> Columns:
    return Columns(cpu_milli=[8000] * count, memory_mib=[8192] * count, gpus=[1] * count, models=["V100"] * count)


def test_moves_win_more_than_they_lose() -> None:
    without, _ = played(busy(), None)
    with_moves, _ = played(busy(), READY)
    assert with_moves.lost
    average, lost = average_allocation(with_moves), lost_by_moves(with_moves)
    before = average_allocation(without)
    assert average is not None
    assert lost is not None
    assert before is not None
    assert average - lost > before


def test_the_columns_hold_what_stays() -> None:
    outcome, columns = played(busy(), READY)
    assert columns is not None
    assert (columns.left >= 0).all()
    assert (columns.spare >= 0).all()
    assert outcome.allocated_milli[-1] == columns.capacity_milli - columns.idle_milli


@pytest.mark.parametrize("most", [0.0, 1.0, 3.0])
def test_the_budget_is_kept(most: float) -> None:
    scene = busy()
    outcome, _ = played(scene, replace(READY, most_per_100=most))
    assert len(outcome.lost) <= most * len(scene.visits) / 100


def test_a_decision_does_not_know_when_pods_leave() -> None:
    scene = busy()
    half = len(scene.visits) // 2
    until = scene.visits[half].at
    later = [
        replace(visit, leaves_at=visit.leaves_at + 1) if visit.leaves_at > until else visit for visit in scene.visits
    ]
    first, _ = played(replace(scene, visits=scene.visits[:half]), READY)
    second, _ = played(replace(scene, visits=later[:half]), READY)
    assert first.lost == second.lost
    assert np.array_equal(first.allocated_milli, second.allocated_milli)


def test_a_share_moves_to_an_open_gpu_and_loses_what_it_did_not_save() -> None:
    columns = one_gpu_nodes(2)
    moves = moves_of(columns, replace(READY, lifetime_seconds=1000.0, saved_every_seconds=300.0))
    for node in (0, 1):
        choice = Choice(shape=SHARE, node=node, devices=(0,))
        columns.place(choice)
        moves.started(str(node), choice=choice, at=0.0)
    moves.arrived()
    found = moves.start(WHOLE, at=0.5)
    assert found is not None
    assert columns.left[found.node, 0] == 1000
    assert columns.left[1 - found.node, 0] == 200
    # It ran 500 s, and last saved its work after 300.
    assert moves.lost == [(0.5, 400 * (200.0 + RESTART_SECONDS) / 1000.0)]


@pytest.mark.parametrize(
    ("shape", "at", "settings"),
    [
        (replace(WHOLE, gpus=0, share_milli=0), 0.5, READY),
        (WHOLE, 0.0, READY),
        (WHOLE, 0.5, replace(READY, move=1.1)),
        (replace(WHOLE, cpu_milli=9000), 0.5, READY),
    ],
    ids=["without GPUs", "at the beginning", "for less than a move must gain", "that fits on no node"],
)
def test_nobody_moves_for_a_pod(shape: Shape, at: float, settings: MovesSettings) -> None:
    columns = one_gpu_nodes(2)
    moves = moves_of(columns, settings)
    for node in (0, 1):
        choice = Choice(shape=SHARE, node=node, devices=(0,))
        columns.place(choice)
        moves.started(str(node), choice=choice, at=0.0)
    moves.arrived()
    assert moves.start(shape, at=at) is None
    assert columns.left.tolist() == [[600], [600]]
    assert moves.lost == []
