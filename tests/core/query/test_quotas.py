"""Quotas as rows."""

from typing import Any

import msgspec
import pytest

from dovetail.api.gpuquota import GPUQuota
from dovetail.query.errors import NotFoundError
from dovetail.query.quotas import choose, quota_row


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
    told = msgspec.to_builtins(quota_row(VISION))
    assert told["limits"] == {"gpus": 8, "memory_mib": None, "running_jobs": None, "queued_jobs": 100}
    assert told["uses"] == [
        {"who": "", "gpus": 6.5, "memory_mib": 0, "running_jobs": 3, "queued_jobs": 0, "gpu_seconds": 5400.0}
    ]


def test_quotas_are_chosen_by_name_and_a_missing_one_is_an_error() -> None:
    assert choose([VISION, EACH], names=["vision"]) == [VISION]
    assert choose([VISION, EACH], names=[]) == [EACH, VISION]
    with pytest.raises(NotFoundError, match="no GPUQuota nlp"):
        choose([VISION], names=["nlp"])
