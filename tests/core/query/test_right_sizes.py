"""What a next run should request, from what was measured."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons.catalog import rendered
from dovetail.api.reasons.clause import Sentence
from dovetail.query.right_sizes import accepted, measured, measured_size, right_sizes

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)

DEVICE = {"worker": 0, "node": "a", "index": 0, "uuid": "a-0", "shareMilli": 1000, "memoryMiB": 32768}
EARLIER = [
    {"uid": "u2", "created": "2026-11-02T00:00:00Z", "peakMiB": 6000},
    {"uid": "u1", "created": "2026-11-01T00:00:00Z", "peakMiB": 9000, "limited": True},
]


def job(*, request: str = "1(V100)", peak: int = 5000, load: float | None = 0.2, **changes: Any) -> GPUJob:
    """A job `train` that has run on one V100 for an hour; `changes` are of its memory use or its status."""
    use = {"strategy": "Dynamic", "basis": "", "peakMiB": peak, "limited": changes.pop("limited", False)}
    status: dict[str, Any] = {
        "phase": "Running",
        "request": request,
        "devices": [DEVICE],
        "memory": use | {"earlierRuns": changes.pop("earlier", [])},
        "measured": None if load is None else {"meanUtilization": load, "deviceSeconds": 3600},
    }
    spec = {"gpu": request, "workers": changes.pop("workers", 1)} | changes.pop("spec", {})
    metadata = {"name": "train", "namespace": "red"} | changes.pop("metadata", {})
    found = {"metadata": metadata, "spec": spec, "status": status | changes}
    return msgspec.convert(found, GPUJob)


def test_a_whole_device_that_does_little_becomes_a_share_with_memory() -> None:
    found = measured_size(job(), now=NOW)
    assert found is not None
    assert (found.suggested, found.saved_gpus) == ("6G,0.3(V100)", 0.7)
    assert (
        found.basis
        == "Peak 5,000 MiB of 32,768 MiB on a device in 1 run of train; mean utilization 20% over 60m of device time"
    )


def test_each_worker_saves() -> None:
    found = measured_size(job(workers=4), now=NOW)
    assert found is not None
    assert found.saved_gpus == pytest.approx(2.8)


def test_earlier_runs_count_back_to_one_that_may_have_needed_more() -> None:
    found = measured_size(job(earlier=EARLIER), now=NOW)
    assert found is not None
    assert (found.runs, found.peak_mib, found.suggested) == (2, 6000, "7G,0.3(V100)")


def test_a_run_without_a_peak_is_no_run_that_was_measured() -> None:
    unknown = [{"uid": "u2", "created": "2026-11-02T00:00:00Z", "peakMiB": 0}, EARLIER[0]]
    found = measured_size(job(peak=0, earlier=unknown), now=NOW)
    assert found is not None
    assert (found.runs, found.peak_mib) == (1, 6000)


def test_hours_that_are_saved_have_four_digits() -> None:
    found = measured_size(job(startTime="2026-11-03T10:59:59Z"), now=NOW)
    assert found is not None
    assert found.savable_hours == 0.7002


@pytest.mark.parametrize(
    ("changes", "basis"),
    [
        ({"limited": True}, "It used all the memory that it was promised, so it may need more"),
        ({"peak": 0}, "No memory use of its own was measured on its devices"),
        ({"load": None}, "Measured for 0s of device time; a right size needs 10m"),
        (
            {"measured": {"meanUtilization": 0.1, "deviceSeconds": 120}},
            "Measured for 2m of device time; a right size needs 10m",
        ),
    ],
    ids=["used all its memory", "no own memory use", "no utilization", "too short"],
)
def test_without_a_sound_measurement_nothing_is_suggested(changes: dict[str, Any], basis: str) -> None:
    found = measured_size(job(**changes), now=NOW)
    assert found is not None
    assert (found.suggested, found.saved_gpus, found.basis) == ("", 0.0, basis)


def test_a_busy_whole_device_stays_whole() -> None:
    found = measured_size(job(load=0.9), now=NOW)
    assert found is not None
    assert (found.suggested, found.saved_gpus) == ("", 0.0)


def test_a_busy_share_may_need_less_memory() -> None:
    device = DEVICE | {"shareMilli": 500, "memoryMiB": 16384}
    found = measured_size(job(request="16G,0.5", load=0.5, devices=[device]), now=NOW)
    assert found is not None
    assert (found.suggested, found.saved_gpus) == ("6G,0.5", 0.0)


@pytest.mark.parametrize(
    "changes",
    [{"devices": []}, {"memory": None, "measured": None}, {"request": "all of them"}],
    ids=["without devices", "without measurements", "a request that cannot be read"],
)
def test_a_job_that_shows_nothing_has_no_right_size(changes: dict[str, Any]) -> None:
    base = job()
    status = msgspec.to_builtins(base.status) | changes
    assert (
        measured_size(msgspec.structs.replace(base, status=msgspec.convert(status, type(base.status))), now=NOW) is None
    )


def of_project(project: str, **meta: Any) -> dict[str, Any]:
    return {"labels": {names.LABEL_PROJECT: project}, **meta}


def test_a_run_could_save_from_its_start_until_its_end_or_now() -> None:
    running = measured_size(job(startTime="2026-11-03T02:00:00Z"), now=NOW)
    ended = measured_size(
        job(phase="Succeeded", startTime="2026-11-03T02:00:00Z", completionTime="2026-11-03T06:00:00Z", workers=2),
        now=NOW,
    )
    assert running is not None
    assert ended is not None
    assert (running.savable_hours, ended.savable_hours) == (pytest.approx(7.0), pytest.approx(5.6))
    assert (running.accepted, running.saved_hours) == ("", 0.0)


def test_a_run_of_the_accepted_size_saves_what_it_requests_less() -> None:
    device = DEVICE | {"shareMilli": 300, "memoryMiB": 6144}
    run = {"request": "6G,0.3", "devices": [device], "startTime": "2026-11-03T02:00:00Z"}
    found = measured_size(job(load=0.25, spec={"gpu": "1", "rightSize": "6G,0.3"}, **run), now=NOW)
    assert found is not None
    assert (found.accepted, found.suggested, found.saved_hours) == ("6G,0.3", "", pytest.approx(7.0))
    before = measured_size(job(spec={"rightSize": "6G,0.3"}, startTime="2026-11-03T02:00:00Z"), now=NOW)
    assert before is not None
    assert (before.saved_hours, before.savable_hours) == (0.0, pytest.approx(7.0))


def test_teams_add_up_all_measured_runs_and_rows_are_the_latest_of_a_name() -> None:
    start = {"startTime": "2026-11-03T02:00:00Z"}
    first = job(metadata=of_project("vision", generateName="train-", creationTimestamp="2026-11-01T00:00:00Z"), **start)
    later = job(
        metadata=of_project("vision", generateName="train-", creationTimestamp="2026-11-02T00:00:00Z", name="train-2"),
        workers=2,
        **start,
    )
    busy = job(load=0.95, metadata=of_project("speech", name="busy"), **start)
    found = right_sizes(measured([first, later, busy], now=NOW))
    assert sorted(row.job for row in found.rows) == ["busy", "train-2"]
    (team,) = found.teams
    assert (team.namespace, team.project, team.jobs, team.saved_gpus) == ("red", "vision", 2, pytest.approx(2.1))
    assert (team.savable_hours, team.saved_hours) == (pytest.approx(21.0), 0.0)


def test_a_team_that_has_accepted_all_its_right_sizes_has_its_savings() -> None:
    device = DEVICE | {"shareMilli": 300, "memoryMiB": 6144}
    run = {"request": "6G,0.3", "devices": [device], "startTime": "2026-11-03T02:00:00Z"}
    small = job(load=0.25, spec={"gpu": "1", "rightSize": "6G,0.3"}, metadata=of_project("vision"), **run)
    (team,) = right_sizes(measured([small], now=NOW)).teams
    assert (team.project, team.jobs, team.saved_hours) == ("vision", 0, pytest.approx(7.0))


def test_what_is_accepted_is_the_part_of_a_device_that_suffices() -> None:
    assert accepted(job(request="2(V100)"), now=NOW) == {"rightSize": "6G,0.3"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"load": 0.9}, "no smaller one follows from what it used: Peak 5,000 MiB of 32,768 MiB"),
        ({"limited": True}, "used: It used all the memory that it was promised, so it may need more"),
        ({"devices": []}, "nothing was measured of it on a device"),
        ({"spec": {"mode": "Exclusive"}}, "used: Mode Exclusive takes its devices whole"),
        ({"spec": {"managedBy": names.GUESTS_MANAGER}}, "its own controller makes its pods"),
        ({"metadata": {"labels": {names.KUEUE_QUEUE: "q"}}}, "Kueue admits it by the request that it has"),
        (
            {"placement": {"generation": 1, "nodes": [], "worker": {"request": "1", "resource": "nvidia.com/gpu"}}},
            "used: A vendor's plugin gives its devices whole",
        ),
    ],
    ids=[
        "it uses what it requests",
        "it filled its memory",
        "without devices",
        "exclusive",
        "guest",
        "Kueue",
        "vendor",
    ],
)
def test_a_job_that_cannot_shrink_says_why(changes: dict[str, Any], why: str) -> None:
    found = accepted(job(**changes), now=NOW)
    assert isinstance(found, Sentence)
    assert found.message.startswith("GPUJob train keeps its request: ")
    assert why in found.message
    assert rendered(found.clauses).message == found.message, "a program that speaks another language has all of it"
