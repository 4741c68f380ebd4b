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
        "rest": {"medians": {"this": {"writes": 0, "ms_per_second_of_a_job": 0.07}}},
        "strangers": {"costs": {"without": 2.5, "this": {"ms": 0.31, "from": 0.2, "to": 0.42}}},
        "job": {
            "medians": {
                "ratios": {"this_to_bare": 1.48},
                "writes": {
                    "this": {
                        "POST gpujobs 201": 1.0,
                        "PUT gpujobs/status 200": 2.0,
                        "POST events 201": 3.2,
                        "PUT leases 200": 9.0,
                        "PATCH gpunodes/status 200": 0.3,
                    }
                },
            }
        },
        "restart": {"this_to_other": {"200x100": 0.19, "5000x10": 0.6}},
        "cycle": {"this_to_other": {"first": 0.3, "nothing changed": 0.04}},
        "gang": {"medians": {"ratios": {"this_to_bare": 1.2}}},
        "admissions": {"admissions": {"admissions_per_second": 46.0}},
    }
    rows = [
        hotpath["row_of"](target, part=part, result=results[part.name])
        for part in hotpath["PARTS"]
        for target in part.targets
    ]
    found = {(row["part"], row["value"]): row["verdict"] for row in rows}
    assert [row["what"] for row in rows if row["verdict"] == "not measured"] == [
        "a waiting job's reason, all programs, against the other checkout",
        "extender CPU for a pod, against the other checkout",
    ]
    assert (found["rest", 0], found["rest", 0.07]) == ("met", "missed")
    assert (found["job", 3.0], found["job", 3.2], found["job", 1.48]) == ("met", "missed", "missed")
    assert (found["restart", 0.19], found["restart", 0.6]) == ("met", "missed")
    assert (found["cycle", 0.3], found["cycle", 0.04]) == ("met", "met")
    table = hotpath["table"](rows)
    assert "| gang of 512 against the same pinned Job | 1.2 | 1.25  | met |" in table
    assert "| 0.31 ms (0.2 to 0.42; a pod without them: 2.5 ms) | 0.4 ms | met |" in table
    assert "| 3 (1 POST gpujobs, 2 PUT gpujobs/status) | 9  | met |" in table


@pytest.mark.parametrize(("value", "code"), [(4.0, 0), (6.0, 1)])
def test_a_missed_target_is_an_exit_code(
    hotpath: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, code: int
) -> None:
    part = hotpath["Part"](
        name="planning", script="planning.py", arguments=(), limit_seconds=60, targets=targets_of_planning(hotpath)
    )
    found = {"rounds": {"by price": [{"all jobs of the cycle, p50": value}]}}
    monkeypatch.setitem(hotpath["main"].__globals__, "PARTS", (part,))
    monkeypatch.setitem(hotpath["main"].__globals__, "run", lambda *_, **__: found)
    monkeypatch.setattr(sys, "argv", ["hotpath.py", "--json", str(tmp_path / "found.json")])
    assert hotpath["main"]() == code


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
