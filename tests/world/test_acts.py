"""Ends of jobs for others under budgets, kills and pauses: no budget is broken, and no job is lost or runs twice."""

import pytest

from tests.world.acts import Figures, playing


@pytest.mark.parametrize(
    ("seed", "ends"), [(1, 5), *(pytest.param(seed, 50, marks=pytest.mark.slow) for seed in range(2, 22))]
)
def test_whatever_ends_jobs_keeps_their_budgets_and_loses_none(seed: int, ends: int) -> None:
    figures = Figures()
    with playing(seed=seed, figures=figures) as acts:
        acts.play(ends=ends)
        acts.come_to_an_end()
    assert figures.broken == []
    assert figures.succeeded == figures.jobs
    # One that loses the room that was held for it waits, and loses more than was stated.
    assert sum(each.actual > each.stated for each in figures.losses) <= 1
