"""The curves of several subjects beside plain sums over their samples, of which any figure may be unknown."""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest

from dovetail.answers.use.series import SeriesRow
from dovetail_gateway.samples.columns import DEVICE, HELD, NAMESPACE, Column
from dovetail_gateway.samples.readings import Place
from dovetail_gateway.samples.rings import Samples
from dovetail_gateway.samples.series import between, by_place, of_devices, of_holdings, of_nodes

START, STEP = 1_790_000_000, 30
Known = dict[str, list[list[float | None]]]


def drawn(rng: Random, columns: Sequence[Column], *, times: int, subjects: int) -> tuple[Samples, Known]:
    """Figures of a quarter's precision, so that sums of them are exact; some of them unknown, some all at once."""

    def figure() -> float | None:
        return None if rng.random() < 0.3 else rng.choice([0.0, 0.25, 0.5, 1.0, 3.0, 40.0])

    known: Known = {each.name: [[figure() for _ in range(subjects)] for _ in range(times)] for each in columns}
    for each in rng.sample(sorted(known), 2):
        known[each][rng.randrange(times)] = [None] * subjects
    values = {
        name: np.array(rows, np.float64).astype(np.float32).reshape(times, subjects) for name, rows in known.items()
    }
    return Samples(start=START, step=STEP, values=values), known


def total(values: Sequence[float | None], *, of: Sequence[float] | None = None) -> float | None:
    """The sum of what is known, each times its part of `of`; None if nothing is."""
    parts = [1.0] * len(values) if of is None else of
    found = [value * part for value, part in zip(values, parts, strict=True) if value is not None]
    return sum(found) if found else None


def there(values: Sequence[float | None], *, of: Sequence[float]) -> float | None:
    """The sum of `of` where the value is known."""
    return total([None if value is None else 1.0 for value in values], of=of)


def ratio(value: float | None, *, to: float | None) -> float | None:
    return None if value is None or not to or to < 0 else value / to


def largest(values: Sequence[float | None]) -> float | None:
    return max((each for each in values if each is not None), default=None)


def check(row: SeriesRow, *, at: int, wanted: dict[str, float | None]) -> None:
    for name, value in wanted.items():
        curve = getattr(row, name)
        assert curve is not None, name
        found = curve[at]
        assert (found is None) == (value is None), (name, at, found, value)
        if value is not None:
            digits = {"power_watts": 0, "temperature_celsius": 0, "starts": 0, "mean_wait_seconds": 0}.get(name, 2)
            assert found == pytest.approx(value, abs=0.51 if digits == 0 else 0.006), (name, at)


def device_places(rng: Random, count: int) -> list[Place]:
    return [
        Place(
            node=rng.choice(["a", "b"]), index=rng.randrange(100), model=rng.choice(["V100", "H100"]),
            gpus=rng.choice([1.0, 0.25]), memory_mib=rng.choice([1024, 4096]),
        )
        for _ in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_the_curves_of_devices_are_plain_sums(seed: int) -> None:
    rng = Random(seed)
    count = rng.randrange(1, 6)
    samples, known = drawn(rng, DEVICE, times=12, subjects=count)
    places = device_places(rng, count)
    row = of_devices("x", samples=samples, places=places)
    gpus, mib = [each.gpus for each in places], [float(each.memory_mib) for each in places]
    for at in range(12):
        load, memory, promised = (known[name][at] for name in ("utilization", "memory", "promised"))
        used = total(load, of=gpus)
        wanted = {
            "gpus": there(promised, of=gpus),
            "promised": total(promised),
            "used": used,
            "utilization": ratio(used, to=there(load, of=gpus)),
            "memory": ratio(total(memory, of=mib), to=there(memory, of=mib)),
            "power_watts": total(known["power"][at]),
            "temperature_celsius": largest(known["temperature"][at]),
        }
        check(row, at=at, wanted=wanted)
    assert (row.waiting, row.running, row.starts, row.mean_wait_seconds) == (None,) * 4


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("columns", [HELD, NAMESPACE], ids=["job", "namespace"])
def test_the_curves_of_jobs_and_namespaces_are_plain_sums(seed: int, columns: Sequence[Column]) -> None:
    rng = Random(seed)
    samples, known = drawn(rng, columns, times=12, subjects=rng.randrange(1, 5))
    row = of_holdings("x", samples=samples, namespace="red")
    assert (row.namespace, row.name, row.gpus) == ("red", "x", None)
    for at in range(12):
        sums = {name: total(rows[at]) for name, rows in known.items()}
        wanted = {
            "promised": sums["promised"],
            # Where no utilization is known, nothing is said of what is at work.
            "used": sums["used"] if sums["measured"] else None,
            "utilization": ratio(sums["used"], to=sums["measured"]),
            "memory": ratio(sums["memory_used"], to=sums["memory_promised"]),
            "power_watts": sums["power"],
            "temperature_celsius": largest(known["temperature"][at]),
        }
        if columns is NAMESPACE:
            waits = ratio(sums["wait_seconds"], to=sums["starts"])
            wanted |= {name: sums[name] for name in ("waiting", "running", "starts")} | {"mean_wait_seconds": waits}
        check(row, at=at, wanted=wanted)
    if columns is HELD:
        assert (row.waiting, row.running, row.starts, row.mean_wait_seconds) == (None,) * 4


@pytest.mark.parametrize("seed", range(4))
def test_each_node_has_its_own_devices_in_their_order(seed: int) -> None:
    rng = Random(seed)
    samples, known = drawn(rng, DEVICE, times=1, subjects=6)
    subjects = [f"gpu-{at}" for at in range(6)]
    places = dict(zip(subjects, device_places(rng, 5), strict=False))
    found = {node.name: node for node in of_nodes(samples, subjects=subjects, places=places)}
    for name in ("a", "b"):
        own = sorted((place.index, at) for at, place in enumerate(places.values()) if place.node == name)
        figures: Callable[[str], list[float | None]] = lambda column, own=own: [  # type: ignore[misc]  # noqa: E731
            known[column][0][at] for _, at in own
        ]
        if all(each is None for column in DEVICE for each in figures(column.name)):
            assert name not in found
            continue
        node = found[name]
        assert list(node.indexes) == [index for index, _ in own]
        assert (node.promised, node.utilization) == (figures("promised"), figures("utilization"))
        assert (node.memory, node.temperature_celsius) == (
            figures("memory"),
            [None if each is None else round(each) for each in figures("temperature")],
        )
    assert set(by_place(places, subjects=[*subjects, "gone"], key="model")) == {
        place.model for place in places.values()
    }


@pytest.mark.parametrize("seed", range(4))
def test_a_part_of_samples_has_each_step_that_touches_its_time(seed: int) -> None:
    rng = Random(seed)
    samples, _ = drawn(rng, DEVICE, times=20, subjects=1)
    for _ in range(60):
        since = START + rng.randrange(-100, 700)
        until = since + rng.randrange(0, 400)
        found = between(samples, since=since, until=until)
        steps = [START + at * STEP for at in range(20)]
        wanted = [at for at, step in enumerate(steps) if step + STEP > since and step < until]
        if wanted:
            assert (found.start, len(found)) == (steps[wanted[0]], len(wanted)), (since - START, until - START)
            own = samples.values["power"][wanted[0] : wanted[-1] + 1]
            assert np.array_equal(found.values["power"], own, equal_nan=True)
        else:
            assert len(found) == 0
