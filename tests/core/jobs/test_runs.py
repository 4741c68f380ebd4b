from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJobStatus
from dovetail.jobs.runs import end_of_run


def clock(minute: int) -> str:
    return f"2026-01-01T12:{minute:02d}:00Z"


def status(*, start: int | None = 10, end: int | None = None, held: int | None = None, **more: Any) -> GPUJobStatus:
    conditions = [
        {
            "type": "Suspended",
            "status": more.get("is_held", "True"),
            "reason": "",
            "message": "",
            "lastTransitionTime": clock(held or 0),
        }
    ]
    said = {"conditions": conditions if held is not None else []}
    times = {"startTime": start, "completionTime": end}
    return msgspec.convert(
        said | {name: clock(minute) for name, minute in times.items() if minute is not None}, GPUJobStatus
    )


@pytest.mark.parametrize(
    ("seen", "minute"),
    [
        (status(), None),
        (status(end=20), 20),
        (status(held=15), 15),
        (status(held=15, end=20), 15),
        (status(held=15, is_held="False"), None),
        (status(held=5), None),
        (status(held=25, end=20), 20),
        (status(start=None, end=20), None),
    ],
    ids=[
        "runs", "is over", "is suspended", "was over while suspended", "goes on", "was held before it began",
        "was held when it was over", "never began",
    ],
)  # fmt: skip
def test_a_run_ends_with_the_job_or_with_its_suspension(seen: GPUJobStatus, minute: int | None) -> None:
    assert end_of_run(seen) == (None if minute is None else clock(minute))
