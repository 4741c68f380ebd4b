"""The table of the hot path's targets: verdicts, and rows whose benchmark has failed."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any, Final

import pytest

SCRIPT: Final = Path(__file__).parents[2] / "benchmarks" / "hotpath.py"


@pytest.fixture
def hotpath() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize(
    ("value", "is_floor", "verdict"),
    [
        (1.9, False, "met"),
        (2.1, False, "missed"),
        (2.1, True, "met"),
        (1.9, True, "missed"),
        (None, True, "not measured"),
    ],
)
def test_a_value_meets_its_target_misses_it_or_is_not_there(
    hotpath: dict[str, Any], value: float | None, is_floor: bool, verdict: str
) -> None:
    target = hotpath["Target"](what="x", limit=2.0, unit="ms", read=lambda _: value, is_floor=is_floor)
    assert target.verdict(value) == verdict


def test_rows_are_read_from_the_results_of_the_benchmarks(hotpath: dict[str, Any]) -> None:
    results = {
        "planning": {"rounds": {"by price": [{"all jobs of the cycle, p50": 0.8}]}},
        "pod": {"ms": {"this": [3.0, 2.9, 3.1]}},
        "filter": [{"requests": [{"request": "filter", "p50_ms": 0.7, "p99_ms": 1.9}]}],
        "pods": [
            {"pods_per_second": {"kube-scheduler alone": [100.0], "with the extender": [91.0]}},
            {"pods_per_second": {"kube-scheduler alone": [40.0], "with the extender": [36.0]}},
        ],
        "job": {
            "medians": {
                "ratios": {"this_to_bare": 1.48},
                "cpu_ms": {"this": {"operator": 10.0, "extender": 4.0, "kube-apiserver": 50.0}},
                "reasons_cpu_ms": {"this": {"all": 17.0}},
            }
        },
        "gang": {"medians": {"ratios": {"this_to_bare": 1.2}}},
        "admissions": {"admissions": {"admissions_per_second": 46.0}},
    }
    rows = [
        hotpath["row_of"](target, part=part, result=results[part.name])
        for part in hotpath["PARTS"]
        for target in part.targets
    ]
    found = {row["what"].split(",")[0]: row["verdict"] for row in rows if not row["needs_other"]}
    assert [row["verdict"] for row in rows if row["needs_other"]] == ["not measured", "not measured"]
    assert found["gang of 512 against the same pinned Job"] == "met"
    assert found["CPU of all programs until a waiting job has its reason"] == "missed"
    assert {row["value"] for row in rows} >= {0.8, 3.0, 0.7, 1.9, 91.0, 90.0, 1.48, 14.0, 17.0, 1.2, 46.0}
    assert "| gang of 512 against the same pinned Job | 1.2 | 1.25  | met |" in hotpath["table"](rows)


def test_a_benchmark_that_fails_leaves_its_row_and_the_command_says_so(
    hotpath: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.json"
    # An unknown cluster size ends the benchmark at once.
    part = hotpath["Part"](
        name="planning",
        script="planning.py",
        arguments=("--nodes", "x"),
        limit_seconds=60,
        targets=targets_of_planning(hotpath),
    )
    monkeypatch.setitem(hotpath["main"].__globals__, "PARTS", (part,))
    monkeypatch.setattr(sys, "argv", ["hotpath.py", "--json", str(path)])
    assert hotpath["main"]() == 1
    assert "not measured" in capsys.readouterr().out
    (row,) = json.loads(path.read_text())["rows"]
    assert row["value"] is None


def targets_of_planning(hotpath: dict[str, Any]) -> tuple[Any, ...]:
    return next(part.targets for part in hotpath["PARTS"] if part.name == "planning")
