"""The benchmark of planned jobs: the drawn cluster and its families are what they say, and its summary sees a miss."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    import planned_jobs

    yield planned_jobs
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def base(benchmark: Any) -> Any:
    return benchmark.published_statistics.scene(seed=7, size=0.2)


def gpus_by_kind(scene: Any) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for visit in scene.visits:
        shape = visit.shape
        kinds["several" if shape.gpus > 1 else "share" if shape.is_share else "one" if shape.gpus else "none"] += max(
            1, shape.gpu_milli
        )
    return kinds


def test_a_seed_draws_the_same_workload_and_another_seed_another(benchmark: Any, base: Any) -> None:
    drawn = [benchmark.published_statistics.scene(seed=seed, size=0.2) for seed in (7, 8)]
    assert [each.visits == base.visits for each in drawn] == [True, False]
    capacity = sum(node.gpus for node in base.nodes)
    assert sum(visit.shape.gpu_milli for visit in base.visits) / 1000 == pytest.approx(1.3 * capacity, rel=0.01)


def test_pods_are_as_the_statistics_say(base: Any) -> None:
    without = [shape for shape in base.pods if not shape.gpus]
    assert len(without) / len(base.pods) == pytest.approx(0.133, abs=0.01)
    assert sum(shape.cpu_milli for shape in without) / len(without) == pytest.approx(17_600, rel=0.2)


def test_each_family_changes_what_it_names(benchmark: Any, base: Any) -> None:
    family = {name: vary(base) for name, vary in benchmark.VARIANTS.items()}
    many = sum(not shape.gpus for shape in family["cpu"].pods) / len(family["cpu"].pods)
    assert many == pytest.approx(3.5 * 0.133 / (3.5 * 0.133 + 0.867), abs=0.02)
    asked = gpus_by_kind(family["multi"])
    assert asked["several"] / (asked.total() - asked["none"]) == pytest.approx(0.4, abs=0.06)
    assert set(gpus_by_kind(family["shares"])) == {"share", "none"}
    named = [visit.shape for visit in family["named"].visits if visit.shape.gpus]
    assert sum(bool(shape.models) for shape in named) / len(named) == pytest.approx(0.33, abs=0.05)
    assert max(len(shape.models) for shape in named) == 2
    assert family["short"].nodes[0].cpu_milli == int(base.nodes[0].cpu_milli * 0.6)
    assert family["departures"].departures


@pytest.mark.parametrize(
    ("jobs", "fgd", "missed"), [(95.9, 95.0, False), (95.7, 95.0, True), (95.9, 96.2, True)],
    ids=["within 0.2 of pods and above FGD", "too far below pods", "below FGD"],
)  # fmt: skip
def test_a_miss_on_one_seed_is_said(benchmark: Any, jobs: float, fgd: float, missed: bool) -> None:
    good = {"family": "cpu", "term": "ph", "pods": {"100": 96.0}, "jobs": {"100": 96.0}, "fgd": {"100": 95.0}}
    (line,) = benchmark.summary([good, good | {"jobs": {"100": jobs}, "fgd": {"100": fgd}}])
    assert ("**missed**" in line) is missed
