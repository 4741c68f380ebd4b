"""What a next run should request, from what was measured."""

from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.query.right_sizes import right_size

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
    spec = {"gpu": request, "workers": changes.pop("workers", 1)}
    found = {"metadata": {"name": "train", "namespace": "red"}, "spec": spec, "status": status | changes}
    return msgspec.convert(found, GPUJob)


def test_a_whole_device_that_does_little_becomes_a_share_with_memory() -> None:
    found = right_size(job())
    assert found is not None
    assert (found.suggested, found.saved_gpus) == ("6G,0.3(V100)", 0.7)
    assert (
        found.basis
        == "Peak 5,000 MiB of 32,768 MiB on a device in 1 run of train; mean utilization 20% over 60m of device time"
    )


def test_each_worker_saves() -> None:
    found = right_size(job(workers=4))
    assert found is not None
    assert found.saved_gpus == pytest.approx(2.8)


def test_earlier_runs_count_back_to_one_that_may_have_needed_more() -> None:
    found = right_size(job(earlier=EARLIER))
    assert found is not None
    assert (found.runs, found.peak_mib, found.suggested) == (2, 6000, "7G,0.3(V100)")


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
    found = right_size(job(**changes))
    assert found is not None
    assert (found.suggested, found.saved_gpus, found.basis) == ("", 0.0, basis)


def test_a_busy_whole_device_stays_whole() -> None:
    found = right_size(job(load=0.9))
    assert found is not None
    assert (found.suggested, found.saved_gpus) == ("", 0.0)


def test_a_busy_share_may_need_less_memory() -> None:
    device = DEVICE | {"shareMilli": 500, "memoryMiB": 16384}
    found = right_size(job(request="16G,0.5", load=0.5, devices=[device]))
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
    assert right_size(msgspec.structs.replace(base, status=msgspec.convert(status, type(base.status)))) is None
