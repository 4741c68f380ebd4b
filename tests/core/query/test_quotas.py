"""Quotas as rows."""

from typing import Any

import msgspec
import pytest

from dovetail.answers.readers import Reader
from dovetail.api.gpuquota import GPUQuota
from dovetail.query.quotas.listing import quota_list


def make_quota(name: str, *, status: dict[str, Any] | None = None, **spec: Any) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec, "status": status or {}}, GPUQuota)


VISION = make_quota(
    "vision",
    namespaces=["vision"],
    limit={"gpus": 8, "queuedJobs": 100},
    shares=2,
    status={"gpus": 6.5, "runningJobs": 3, "uses": [{"who": "", "gpus": 6.5, "runningJobs": 3, "gpuSeconds": 5400}]},
)
EACH = make_quota(
    "each-user",
    per="User",
    limit={"runningJobs": 2},
    pools=["a100", "t4"],
    status={"uses": [{"who": "ada"}, {"who": ""}]},
)


def test_programs_get_numbers_and_null_for_what_is_not_limited() -> None:
    each, vision = msgspec.to_builtins(quota_list([VISION, EACH]))["items"]
    assert (each["name"], each["runningJobsLimit"], each["gpusLimit"], each["pools"]) == (
        "each-user",
        2,
        None,
        ["a100", "t4"],
    )
    limited = ("gpus", "memoryMiB", "runningJobs", "queuedJobs")
    assert [vision[f"{name}Limit"] for name in limited] == [8, None, None, 100]
    assert vision["uses"] == [
        {"who": "", "gpus": 6.5, "memoryMiB": 0, "runningJobs": 3, "queuedJobs": 0, "gpuSeconds": 5400.0}
    ]


def test_a_forecast_comes_with_what_is_known_of_the_demand() -> None:
    known = {"since": "2026-06-01T00:00:00Z", "hour": "2026-06-08T00:00:00Z", "expected": 6.5, "hours": 168}
    quota = make_quota("chat", forecast={"gpus": 8}, status={"forecast": known | {"profile": [6.5] * 168}})
    (row,) = msgspec.to_builtins(quota_list([quota]))["items"]
    assert row["forecast"] == {"gpus": 8, "marginPercent": 10, "timeZone": "UTC"}
    assert row["demand"].items() >= (known | {"profile": [6.5] * 168, "error": 0.0, "windows": []}).items()


def test_advance_reservations_have_their_times() -> None:
    times = {"startTime": "2026-12-01T08:00:00Z", "endTime": "2026-12-01T18:00:00Z"}
    quota = make_quota("course", advanceReservations=[{"name": "lab", "gpus": 4, **times}])
    (row,) = msgspec.to_builtins(quota_list([quota]))["items"]
    assert row["advanceReservations"] == [{"name": "lab", "gpus": 4, "pool": None, **times}]


@pytest.mark.parametrize(("sees", "named"), [({"vision", "lab", "web"}, ["lab", "web"]), ({"vision", "web"}, ["web"])])
def test_a_reader_reads_who_would_give_back_of_the_quotas_that_the_reader_sees(
    sees: set[str], named: list[str]
) -> None:
    owed = {"guarantee": {"gpus": 4, "used": 0, "waiting": 2}}
    quotas = [
        make_quota("vision", namespaces=["vision"], status=owed),
        *(
            make_quota(name, namespaces=[name], status={"guarantee": {"used": borrowed, "borrowed": borrowed}})
            for name, borrowed in (("web", 1), ("lab", 3))
        ),
    ]
    rows = {
        row.name: row
        for row in quota_list(quotas, reader=Reader(sees=sees.__contains__, readable=str, everything=False)).items
    }
    assert rows.keys() == sees
    assert rows["vision"].guarantee is not None
    assert [each.name for each in rows["vision"].guarantee.would_give] == named
