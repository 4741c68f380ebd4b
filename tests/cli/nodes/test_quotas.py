"""What `dovetail quota` shows."""

from typing import Any

import msgspec
import pytest

from dovetail.api.gpuquota import GPUQuota
from dovetail_cli.nodes.quotas import COLUMNS, choose, record, rows
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import MissingError


def make_quota(name: str, *, status: dict[str, Any] | None = None, **spec: Any) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec, "status": status or {}}, GPUQuota)


VISION = make_quota(
    "vision",
    namespaces=["vision"],
    gpus=8,
    queuedJobs=100,
    shares=2,
    status={"gpus": 6.5, "runningJobs": 3, "uses": [{"who": "", "gpus": 6.5, "runningJobs": 3, "gpuSeconds": 5400}]},
)
EACH = make_quota(
    "each-user", per="User", runningJobs=2, pools=["a100", "t4"], status={"uses": [{"who": "ada"}, {"who": ""}]}
)


def test_used_stands_beside_what_may_be_used() -> None:
    assert output.render(list(rows([EACH, VISION])), columns=COLUMNS, form="table").splitlines() == [
        "QUOTA      WHO        GPUS   RUNNING  QUEUED  SHARES  GPU_HOURS  POOLS",
        "each-user  ada        0      0/2      0       -       -          a100,t4",
        "each-user  (no name)  0      0/2      0       -       -          a100,t4",
        "vision     vision     6.5/8  3        0/100   2       1.5        any",
    ]


def test_a_quota_of_which_nothing_is_used_yet_is_shown_too() -> None:
    (row,) = rows([make_quota("all", gpus=4)])
    assert (row["WHO"], row["GPUS"]) == ("everybody", "0/4")


def test_programs_get_numbers_and_null_for_what_is_not_limited() -> None:
    told = record(VISION)
    assert told["limits"] == {"gpus": 8, "running_jobs": None, "queued_jobs": 100}
    assert told["uses"] == [{"who": "", "gpus": 6.5, "running_jobs": 3, "queued_jobs": 0, "gpu_seconds": 5400.0}]


def test_those_that_are_named_are_shown_and_one_that_is_not_there_is_told() -> None:
    assert choose([VISION, EACH], names=["vision"]) == [VISION]
    assert choose([VISION, EACH], names=[]) == [EACH, VISION]
    with pytest.raises(MissingError, match="no GPUQuota nlp"):
        choose([VISION], names=["nlp"])
