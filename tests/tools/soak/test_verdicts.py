"""When a soak has passed, and when it has not."""

from random import Random
from typing import Any

import pytest

from tools.soak import report
from tools.soak.job_kinds import KINDS, draw
from tools.soak.record import AuditRecord, Disturbed, JobRecord, Record, Sample
from tools.soak.verdicts import delays, growth, passed, percentile, verdicts

LATE = "AllocationWithoutPod soak/x: its status names device 6 of a, but no pod of it holds that"
OUTAGE = Disturbed(at=1, said="pause operator", kind="pause", target="operator", seconds=1)
ALIVE = "No capacity is lost and no quota exceeded"
STATUSES = "Each job's status names the devices of its pods, except near an outage of the operator"
GUARANTEED = "A job within a guarantee starts within 150 s and ends for no other"
STEADY = "The p99 of the first status is steady while nothing disturbs"


def samples(*, program: str = "operator", late_mib: float = 100.0, late_pid: int = 7) -> list[Sample]:
    """Memory every 1 % of a run of 100 s: 100 MiB in the first half."""
    return [
        Sample(at=at, program=program, pid=7 if at < 50 else late_pid, mib=100.0 if at < 50 else late_mib)
        for at in range(100)
    ]


def come(*, late_seconds: float = 0.5) -> list[JobRecord]:
    """A job a second of a run of 100 s; the first status of those after 60 s takes `late_seconds`."""
    return [
        JobRecord(
            name=f"whole-{at}",
            kind="whole",
            submitted=at,
            answered=at + (0.5 if at < 60 else late_seconds),
            ended=at + 9,
        )
        for at in range(99)
    ] + [owner()]


def owner(**changes: Any) -> JobRecord:
    """A job within a guarantee."""
    plain = {"submitted": 99, "answered": 99.5, "started": 101, "ended": 108, "guaranteed": 4}
    return JobRecord(name="owner-99", kind="owner", **{**plain, **changes})


def record(**changes: Any) -> Record:
    """A run without a fault."""
    plain = {"jobs": come(), "samples": samples(), "audits": [AuditRecord(at=50, findings=[])]}
    return Record(seconds=100, seed=1, nodes=9, date="2026-11-23", **{**plain, **changes})


def test_a_run_without_a_fault_passes() -> None:
    assert passed(record())


@pytest.mark.parametrize(
    ("changes", "requirement"),
    [
        ({"jobs": [*come(), JobRecord(name="a", kind="whole", submitted=1, answered=2)]}, "No job is lost"),
        (
            {
                "jobs": [
                    *come(),
                    JobRecord(name="a", kind="whole", submitted=1, answered=2, ended=3, wrong="ended as Failed"),
                ]
            },
            "Each job ends as its kind may, and none runs twice",
        ),
        ({"audits": [AuditRecord(at=1, findings=["Overpromised a/0: 1500"])]}, "Nothing is promised twice"),
        ({"audits": [AuditRecord(at=1, findings=["WaitsThoughItFits a/b: it waits"])]}, ALIVE),
        (
            {
                "audits": [AuditRecord(at=1, findings=[LATE]), AuditRecord(at=2, findings=[LATE])],
                "disturbances": [OUTAGE],
            },
            STATUSES,
        ),
        (
            {"audits": [AuditRecord(at=1, findings=[]), AuditRecord(at=2, findings=[LATE])], "disturbances": [OUTAGE]},
            STATUSES,
        ),
        ({"jobs": come(late_seconds=1.1)}, STEADY),
        ({"jobs": come()[:-1]}, GUARANTEED),
        ({"jobs": [*come(), owner(started=249.5)]}, GUARANTEED),
        ({"jobs": [*come(), owner(started=None)]}, GUARANTEED),
        ({"jobs": [*come(), owner(preempted=1)]}, GUARANTEED),
        ({"disturbances": [Disturbed(at=30, said="pause x", kind="pause", seconds=2)]}, STEADY),
        ({"samples": samples(late_mib=111)}, "Memory grows by at most 10% after the first quarter"),
        ({"samples": samples(late_pid=8)}, "Memory grows by at most 10% after the first quarter"),
    ],
    ids=[
        "not ended",
        "wrong end",
        "finding",
        "a job that waits though it fits",
        "a late status twice",
        "a late status at the end",
        "slower",
        "no guaranteed job",
        "a guaranteed job that starts late",
        "a guaranteed job that never starts",
        "a guaranteed job that ends for another",
        "always disturbed",
        "growth",
        "other process",
    ],
)
def test_one_fault_fails_one_requirement(changes: dict[str, Any], requirement: str) -> None:
    failed = [each.requirement for each in verdicts(record(**changes)) if not each.holds]
    assert failed == [requirement]
    assert not passed(record(**changes))


@pytest.mark.parametrize(
    "audits", [[], [AuditRecord(at=1, findings=[], failed="away")]], ids=["no audit", "failed audit"]
)
def test_a_run_without_an_audit_has_shown_neither_promises_nor_statuses(audits: list[AuditRecord]) -> None:
    failed = {each.requirement for each in verdicts(record(audits=audits)) if not each.holds}
    assert failed == {"Nothing is promised twice", ALIVE, STATUSES}


def test_a_run_without_a_job_has_shown_nothing() -> None:
    failed = {each.requirement for each in verdicts(record(jobs=[])) if not each.holds}
    assert failed == {"No job is lost", GUARANTEED, STEADY}


def late_once(**disturbance: Any) -> Record:
    """A run with a disturbance of the operator from 20 to 22 s, and a late status at 30 s, gone at 32 s."""
    audits = [
        AuditRecord(at=30, findings=[LATE]),
        AuditRecord(at=31, findings=[], failed="away"),
        AuditRecord(at=32, findings=[]),
    ]
    plain = {"at": 20, "said": "pause it", "kind": "pause", "target": "operator", "seconds": 2}
    return record(audits=audits, disturbances=[Disturbed(**{**plain, **disturbance})])


def counted(shown: Record) -> bool:
    return not next(each for each in verdicts(shown) if each.requirement == STATUSES).holds


@pytest.mark.parametrize(
    "near",
    [
        {},
        {"at": 18},
        {"at": 33},
        {"kind": "kill", "at": 20, "seconds": 0},
        {"kind": "api-server", "target": ""},
        {"kind": "clock", "target": ""},
    ],
    ids=["soon after", "10 s after", "during the audit", "a kill", "of the API server", "of the clock"],
)
def test_a_late_status_near_an_outage_of_the_operator_is_excused(near: dict[str, Any]) -> None:
    shown = late_once(**near)
    assert not counted(shown)
    assert "| 1 late near an outage |" in report.text(shown)
    assert "| Nothing is promised twice | yes | 2 audits without such a finding |" in report.text(shown)


@pytest.mark.parametrize(
    "far",
    [{"target": "extender"}, {"at": 17.9}, {"at": 34.1}, {"kind": "certificate", "target": ""}],
    ids=["of the extender", "long ago", "after the audit", "of the certificate"],
)
def test_a_late_status_without_an_outage_of_the_operator_counts(far: dict[str, Any]) -> None:
    assert counted(late_once(**far))


@pytest.mark.parametrize(("seen_at", "counts"), [(20, False), (19, True)])
def test_a_killed_operator_is_away_until_its_next_process_is_seen(seen_at: float, counts: bool) -> None:
    shown = late_once(kind="kill", at=10, seconds=0)
    shown.samples = [
        Sample(at=at, program="operator", pid=pid, mib=100) for at, pid in ((5, 7), (10, 7), (seen_at, 8), (40, 8))
    ]
    assert counted(shown) is counts


def test_another_finding_counts_also_during_an_outage() -> None:
    shown = late_once()
    shown.audits[0] = AuditRecord(at=30, findings=["Overpromised a/0: 1500"])
    promises = next(each for each in verdicts(shown) if each.requirement == "Nothing is promised twice")
    assert not promises.holds
    assert not counted(shown)


@pytest.mark.parametrize(("late_seconds", "steady"), [(1.0, True), (1.01, False)])
def test_the_p99_may_double(late_seconds: float, steady: bool) -> None:
    assert passed(record(jobs=come(late_seconds=late_seconds))) == steady


def test_a_p99_that_stays_fast_enough_may_grow() -> None:
    jobs = [
        JobRecord(name=f"x-{at}", kind="whole", submitted=at, answered=at + (0.05 if at < 60 else 0.5), ended=at + 9)
        for at in range(100)
    ]
    assert passed(record(jobs=[*jobs, owner()]))


def test_jobs_near_a_disturbance_say_nothing_about_the_undisturbed_p99() -> None:
    shown = record(disturbances=[Disturbed(at=30, said="pause x", kind="pause", seconds=2)])
    near = len(delays(shown, begin=0.0, end=1.0)) - len(delays(shown, begin=0.0, end=1.0, undisturbed=True))
    # From 25 s, which is 5 s before it, to 47 s, which is 15 s after its end.
    assert near == 23


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
        samples=samples(late_mib=105),
        left_out=["steps of the clock"],
        disturbances=[Disturbed(at=5, said="kill x", kind="kill", seconds=0)],
    )
    text = report.text(shown)
    assert "| No job is lost | yes | 100 of 100 ended |" in text
    assert "Left out: steps of the clock." in text
    assert "| operator | 100.0 | 100.0 | 105.0 | 105.0 | 105.0 |" in text
    report.plot(shown, path=tmp_path / "soak.png")
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")


def test_the_report_counts_preemptions() -> None:
    twice = JobRecord(name="a", kind="whole", submitted=1, answered=2, ended=90, preempted=2)
    assert "101 jobs of 2 kinds, 2 preemptions, 0 disturbances." in report.text(record(jobs=[*come(), twice]))


def test_every_kind_is_drawn_under_a_name_of_its_own() -> None:
    rng = Random(1)
    drawn = [draw(number, rng=rng) for number in range(2000)]
    assert {each.kind.name for each in drawn} == {kind.name for kind in KINDS}
    assert len({each.record for each in drawn}) == 2000
