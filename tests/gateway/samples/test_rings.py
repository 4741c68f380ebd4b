"""The rings beside a model that keeps every sample."""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail_gateway.samples.columns import DEVICE, HELD, Column
from dovetail_gateway.samples.rings import STEP_SECONDS, TIERS, Grid, Rings, Row, grid

T0 = 1_790_000_000 // 7200 * 7200
PLAIN = (Column(name="level", kind="f4"), Column(name="count", kind="f4", fold="sum"))


def put(rings: Rings, at: int, **values: float) -> list[Row]:
    """One sample of each subject, the same number in each column."""
    found = np.array([[each] * len(rings.columns) for each in values.values()], np.float32)
    return rings.put(at, subjects=list(values), values=found.reshape(len(values), len(rings.columns)))


def read(rings: Rings, *subjects: str, since: int, until: int, now: int, column: str = "level") -> list[list[float]]:
    """The values of each time."""
    found = rings.read(grid(since=since, until=until, now=now), subjects=subjects)
    return [list(map(float, row)) for row in found.values[column]]


def test_an_hour_is_there_in_steps_of_30_s() -> None:
    rings = Rings(PLAIN)
    for step in range(120):
        put(rings, T0 + step * 30, a=step, b=2 * step)
    end = T0 + 3600
    found = read(rings, "b", "a", since=T0, until=end, now=end)
    assert found == [[2 * step, step] for step in range(120)]


def test_a_sample_that_was_not_taken_and_a_subject_that_was_not_there_are_not_known() -> None:
    rings = Rings(PLAIN)
    put(rings, T0, a=1)
    put(rings, T0 + 60, a=3, b=4)
    found = read(rings, "a", "b", "never", since=T0, until=T0 + 90, now=T0 + 90)
    assert np.array_equal(found, [[1, np.nan, np.nan], [np.nan] * 3, [3, 4, np.nan]], equal_nan=True)


@given(
    steps=st.lists(st.integers(0, 2000), min_size=1, max_size=60, unique=True).map(sorted),
    restart=st.integers(0, 60),
)
def test_each_tier_is_the_fold_of_the_finest_samples(steps: list[int], restart: int) -> None:
    rings, kept, model = Rings(PLAIN), list[Row](), dict[int, float]()
    for number, step in enumerate(steps):
        at = T0 + step * STEP_SECONDS
        if number == restart:
            # Another process takes over from the rows that were written.
            rings = Rings(PLAIN)
            for row in kept:
                rings.restore(row)
            rings.restored()
        kept += put(rings, at, a=number)
        model[at] = number
    last = max(model)
    for tier, (fine, coarse) in enumerate(itertools.pairwise(TIERS), start=1):
        at = last // coarse.seconds * coarse.seconds
        for column, fold in (("level", np.mean), ("count", np.sum)):
            expected = _folded(model, at=at, tier=tier, fold=fold)
            found = rings._kept[tier][column][rings._place(tier, at), rings._slots["a"]]
            assert found == pytest.approx(expected, rel=1e-5), (fine, coarse, column)


def _folded(model: dict[int, float], *, at: int, tier: int, fold: object) -> float:
    """The fold of the steps of the tier before, of those before it, and so on."""
    if tier == 0:
        return model.get(at, np.nan)
    fine = TIERS[tier - 1].seconds
    steps = [_folded(model, at=each, tier=tier - 1, fold=fold) for each in range(at, at + TIERS[tier].seconds, fine)]
    known = [each for each in steps if not np.isnan(each)]
    return float(fold(known)) if known else np.nan  # type: ignore[operator]


def test_a_row_of_a_coarser_step_is_written_when_the_step_is_over() -> None:
    rings = Rings(PLAIN)
    rows = [[(row.tier, row.at - T0) for row in put(rings, T0 + step * 30, a=1)] for step in (0, 5, 9, 10, 60)]
    assert rows == [[(0, 0)], [(0, 150)], [(0, 270)], [(1, 0), (0, 300)], [(1, 300), (2, 0), (0, 1800)]]


def test_the_finest_steps_that_reach_back_are_chosen() -> None:
    now = T0 + 10 * 86_400
    chosen = [
        grid(since=now - seconds, until=now, now=now).step for seconds in (60, 3600, 3660, 86_400, 604_800, 2_678_400)
    ]
    assert chosen == [30, 30, 30, 300, 1800, 7200]
    assert grid(since=0, until=now, now=now).count == TIERS[-1].count


def test_the_memory_of_subjects_that_are_gone_is_used_again() -> None:
    rings = Rings(PLAIN)
    for day in range(200):
        put(rings, T0 + day * 86_400, **{f"node-{day}": 1, "stays": 2})
    assert len(rings) < 40
    now = T0 + 199 * 86_400
    assert read(rings, "node-3", "stays", since=now, until=now + 30, now=now)[0][1] == 2
    # What comes in the place of another one has none of its samples.
    month = read(rings, "node-199", since=now - 31 * 86_400, until=now, now=now)
    assert all(math.isnan(value) for (value,) in month)


def test_a_device_takes_7_bytes_a_sample_and_values_keep_their_digits() -> None:
    assert sum(column.dtype.itemsize for column in DEVICE) == 7
    rings = Rings(DEVICE)
    values = np.array([[0.335, 0.8, 61, 0.25, 312], [np.nan, np.nan, np.nan, 1, np.nan]], np.float32)
    rings.put(T0, subjects=["a", "b"], values=values)
    found = rings.read(grid(since=T0, until=T0 + 30, now=T0 + 30), subjects=["a", "b"])
    back = np.stack([found.values[column.name][0] for column in DEVICE], axis=1)
    assert np.allclose(back, values, atol=1e-4, equal_nan=True)


def test_the_hottest_of_a_step_counts_and_not_the_mean() -> None:
    column = next(column for column in HELD if column.name == "temperature")
    assert float(column.folded(np.array([[40, np.nan], [90, np.nan]], np.float32))[0]) == 90


@pytest.mark.parametrize("data", [b"", b"\0" * 15, b"\0" * 700])
def test_a_row_of_other_columns_is_refused(data: bytes) -> None:
    subjects: Sequence[str] = ("a", "b")
    with pytest.raises(ValueError, match=f"{len(data)} bytes are no samples of 2 subjects"):
        Rings(DEVICE).restore(Row(tier=0, at=T0, subjects=tuple(subjects), data=data))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_was_sampled_of_that_subject_at_that_time(seed: int) -> None:
    """Subjects come and go for months, with a gateway that is away at times; each is read in any time of the past."""
    rng, rings, kept = Random(seed), Rings(PLAIN), list[Row]()
    model: dict[str, dict[int, float]] = defaultdict(dict)
    now, number = T0, 0
    for _ in range(120):
        now += rng.choice([30, 30, 300, 3600, 86_400, 12 * 86_400, 35 * 86_400])
        number += rng.random() < 0.5
        # Each has values of its own, which are also their mean.
        values = {f"s{each}": float(each + 1) for each in range(max(0, number - 4), number + 1) if rng.random() < 0.7}
        if rng.random() < 0.1:
            last, rings = kept, Rings(PLAIN)
            for row in last:
                rings.restore(row)
            rings.restored()
        kept += put(rings, now, **values)
        for subject, value in values.items():
            model[subject][now // STEP_SECONDS * STEP_SECONDS] = value
        until = now + 30 - rng.choice([0, 0, 600, 86_400, 20 * 86_400, 40 * 86_400])
        asked = grid(since=until - rng.choice([30, 3600, 86_400, 31 * 86_400]), until=until, now=now)
        _check_read(rings, asked=asked, model=model, now=now)


def _check_read(rings: Rings, *, asked: Grid, model: dict[str, dict[int, float]], now: int) -> None:
    subjects = sorted(model)
    found = rings.read(asked, subjects=subjects).values["level"]
    assert found.shape == (asked.count, len(subjects))
    for row, subject in zip(found.T, subjects, strict=True):
        sampled = {at // asked.step * asked.step: value for at, value in model[subject].items()}
        for at, value in zip(range(asked.start, asked.end, asked.step), row, strict=True):
            # What is older than a ring reaches may be overwritten already.
            is_kept = asked.end <= now + asked.step and at > now - TIERS[asked.tier].span
            if at in sampled and (is_kept or not math.isnan(value)):
                assert value == sampled[at], (subject, at - T0, now - T0)
            elif at not in sampled:
                assert math.isnan(value), (subject, at - T0, now - T0)
