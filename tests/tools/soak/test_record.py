"""When a soak has passed, and when it has not."""

from random import Random
from typing import Any

import pytest

from tools.soak import report
from tools.soak.job_kinds import KINDS, draw
from tools.soak.record import (
    AuditRecord,
    Disturbed,
    JobRecord,
    Record,
    Sample,
    delays,
    growth,
    percentile,
    verdicts,
)


def samples(*, program: str = "operator", late_mib: float = 100.0, late_pid: int = 7) -> list[Sample]:
    """Memory every 1 % of a run of 100 s: 100 MiB in the first half."""
    return [
        Sample(at=at, program=program, pid=7 if at < 50 else late_pid, mib=100.0 if at < 50 else late_mib)
        for at in range(100)
    ]


def record(**changes: Any) -> Record:
    """A run without a fault."""
    jobs = [JobRecord(name=f"whole-{at}", kind="whole", submitted=at, told=at + 0.5, ended=at + 9) for at in range(99)]
    plain = {"jobs": jobs, "samples": samples(), "audits": [AuditRecord(at=50, findings=[])]}
    return Record(seconds=100, seed=1, nodes=9, date="2026-11-23", **{**plain, **changes})


def test_a_run_without_a_fault_passes() -> None:
    assert report.passed(record())


@pytest.mark.parametrize(
    ("changes", "requirement"),
    [
        ({"jobs": []}, "No job is lost"),
        ({"jobs": [JobRecord(name="a", kind="whole", submitted=1, told=2)]}, "No job is lost"),
        (
            {"jobs": [JobRecord(name="a", kind="whole", submitted=1, told=2, ended=3, wrong="ended as Failed")]},
            "Each job ends as its kind may, and none runs twice",
        ),
        ({"audits": [AuditRecord(at=1, findings=["Overpromised a/0: 1500"])]}, "Nothing is promised twice"),
        ({"audits": []}, "Nothing is promised twice"),
        ({"audits": [AuditRecord(at=1, findings=[], failed="away")]}, "Nothing is promised twice"),
        ({"samples": samples(late_mib=111)}, "Memory grows by at most 10% after the first quarter"),
        ({"samples": samples(late_pid=8)}, "Memory grows by at most 10% after the first quarter"),
    ],
    ids=["no job", "not ended", "wrong end", "finding", "no audit", "failed audit", "growth", "other process"],
)
def test_one_fault_fails_one_requirement(changes: dict[str, Any], requirement: str) -> None:
    failed = [each.requirement for each in verdicts(record(**changes)) if not each.holds]
    assert failed == [requirement]
    assert not report.passed(record(**changes))


def test_growth_compares_the_windows_of_one_process() -> None:
    assert growth(record(samples=samples(late_mib=105))) == {"operator": pytest.approx(0.05)}
    assert growth(record(samples=samples(late_pid=8))) == {}


def test_delays_are_those_of_a_part_of_the_run() -> None:
    assert delays(record(), begin=0.0, end=0.1) == [0.5] * 10
    assert percentile([], percent=99) == 0
    assert percentile([1, 2, 3, 4], percent=50) == 2
    assert percentile([1, 2, 3, 4], percent=99) == 4
    assert percentile([1, 2, 3, 4], percent=100) == 4


def test_the_report_names_requirements_and_what_was_left_out(tmp_path: Any) -> None:
    shown = record(
        left_out=["steps of the clock"], disturbances=[Disturbed(at=5, said="kill x", kind="kill", seconds=0)]
    )
    text = report.text(shown)
    assert "| No job is lost | yes | 99 of 99 ended |" in text
    assert "Left out: steps of the clock." in text
    report.plot(shown, path=tmp_path / "soak.png")
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")


def test_every_kind_is_drawn_under_a_name_of_its_own() -> None:
    rng = Random(1)
    drawn = [draw(number, rng=rng) for number in range(2000)]
    assert {kind.name for kind, _ in drawn} == {kind.name for kind in KINDS}
    assert len({body["metadata"]["name"] for _, body in drawn}) == 2000
