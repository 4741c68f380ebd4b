"""The curve of a job beside all of its samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail_gateway.samples.columns import HELD, Floats
from dovetail_gateway.samples.curves import MOST_POINTS, Curve
from dovetail_gateway.samples.rings import STEP_SECONDS

T0 = 1_790_000_010


def values(level: float) -> Floats:
    return np.full(len(HELD), level, np.float32)


@given(levels=st.lists(st.floats(0, 100, width=32), min_size=1, max_size=900))
def test_a_curve_has_at_most_240_points_and_keeps_mean_and_maximum(levels: list[float]) -> None:
    curve = Curve(T0)
    for step, level in enumerate(levels):
        curve.add(T0 + step * STEP_SECONDS, values=values(level))
    found = curve.samples()
    assert len(found) <= MOST_POINTS
    assert curve.end >= T0 + (len(levels) - 1) * STEP_SECONDS
    each = curve.step // STEP_SECONDS
    groups = [levels[start : start + each] for start in range(0, len(levels), each)]
    assert np.allclose(found.values["used"][:, 0], [np.mean(group) for group in groups], atol=0.01)
    assert np.allclose(found.values["temperature"][:, 0], [np.max(group) for group in groups])


STEPS = st.tuples(st.sampled_from([1, 1, 1, 2, 7, 300]), st.floats(0, 100, width=32))


@given(st.lists(STEPS, min_size=1, max_size=300), st.integers(0, 300))
def test_a_point_is_the_mean_of_the_samples_of_its_time(steps: list[tuple[int, float]], moved: int) -> None:
    """With pauses, and a gateway that goes on with the bytes of another."""
    curve, taken, at = Curve(T0), list[tuple[int, float]](), T0
    for number, (later, level) in enumerate(steps):
        at += later * STEP_SECONDS if number else 0
        curve.add(at, values=values(level))
        taken.append((at, level))
        if number == moved:
            curve = Curve.decode(curve.encode())
    found = curve.samples()
    levels: list[list[float]] = [[] for _ in range(len(found))]
    for each, level in taken:
        levels[(each - curve.start) // curve.step].append(level)
    for column in HELD:
        fold = np.max if column.fold == "max" else np.mean
        expected = [fold(point) if point else np.nan for point in levels]
        assert np.allclose(found.values[column.name][:, 0], expected, atol=0.02, equal_nan=True), column.name


def test_a_job_of_a_month_has_points_over_all_of_it() -> None:
    curve = Curve(T0)
    for step in range(0, 31 * 2880, 40):
        curve.add(T0 + step * STEP_SECONDS, values=values(step // 2880))
    found = curve.samples()
    assert (curve.step, MOST_POINTS // 2 <= len(found) <= MOST_POINTS) == (30 * 512, True)
    assert (found.values["used"][0, 0], found.values["used"][-1, 0]) == (0, pytest.approx(30, abs=1))


def test_a_pause_of_the_job_has_no_points_and_a_figure_that_is_missing_once_does_not_count() -> None:
    curve = Curve(T0)
    for step, level in ((0, 4.0), (5, np.nan), (9, 2.0)):
        curve.add(T0 + step * STEP_SECONDS, values=values(level))
    found = curve.samples().values["used"][:, 0]
    assert [step for step, level in enumerate(found) if not np.isnan(level)] == [0, 9]


@pytest.mark.parametrize("seed", range(4))
def test_a_mean_is_that_of_the_samples_that_have_the_figure(seed: int) -> None:
    """A device may report no memory or power for a while, and go on with another."""
    random, curve = np.random.default_rng(seed), Curve(T0)
    samples = random.uniform(1, 100, (1500, len(HELD))).astype(np.float32)
    for name, share in (("memory_used", 0.7), ("power", 0.3)):
        column = [each.name for each in HELD].index(name)
        samples[random.random(len(samples)) < share, column] = np.nan
    for step, sample in enumerate(samples):
        curve.add(T0 + step * STEP_SECONDS, values=sample)
        if step == 700:
            curve = Curve.decode(curve.encode())
    each = curve.step // STEP_SECONDS
    for at, column in enumerate(HELD):
        points = [samples[start : start + each, at] for start in range(0, len(samples), each)]
        fold = np.nanmax if column.fold == "max" else np.nanmean
        expected = [np.nan if np.isnan(point).all() else fold(point) for point in points]
        found = curve.samples().values[column.name][:, 0]
        assert np.allclose(found, expected, atol=0.02, equal_nan=True), column.name


def test_a_curve_survives_as_bytes_and_grows_on() -> None:
    first, second = Curve(T0), Curve(T0)
    for step in range(500):
        first.add(T0 + step * STEP_SECONDS, values=values(step))
        second.add(T0 + step * STEP_SECONDS, values=values(step))
        if step % 90 == 0:
            second = Curve.decode(second.encode())
    assert second.encode() == first.encode()
    assert len(first.encode()) <= MOST_POINTS * 34 + 16


@pytest.mark.parametrize(
    "data", [b"", b"short", Curve(T0).encode() + b"x", b"\2\0\0\0" + b"\0" * (12 + 34 * 241), b"\0" * (16 + 34)]
)
def test_other_bytes_are_no_curve(data: bytes) -> None:
    with pytest.raises(ValueError, match="bytes are no curve"):
        Curve.decode(data)
