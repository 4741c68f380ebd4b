"""What the doctor says of containers whose CUDA the driver of their node does not support."""

from typing import Any

import msgspec
import pytest

from dovetail.answers.doctor import CheckResult
from dovetail.cluster.picture import BuiltContainer
from dovetail.gpu.cuda import Built, CudaVersion
from dovetail.query.doctor import frameworks
from tests.core.query.doctor.test_diagnosis import FORBIDDEN, picture, report

IMAGE = "image pytorch/pytorch:2.9-cuda13.0"


def built(pod: str, *, version: tuple[int, int], node: str = "a") -> BuiltContainer:
    return BuiltContainer(namespace="team", pod=pod, node=node, built=Built(CudaVersion(*version), IMAGE))


def found(
    *containers: BuiltContainer, only: str | None = None, vendor: str = "nvidia", **status: Any
) -> list[CheckResult]:
    reported = report(vendor=vendor)
    reports = [msgspec.structs.replace(reported, status=msgspec.structs.replace(reported.status, **status))]
    return list(frameworks.judge(picture(gpunodes=reports, built_containers=containers), only=only))


def test_pods_of_one_image_on_one_node_are_one_finding_with_the_fix() -> None:
    pods = [built(f"train-{at}", version=(13, 0)) for at in range(5)]
    assert found(*pods, runtime_version="12.4") == [
        CheckResult(
            level="warning",
            check="cuda",
            subject="a",
            message=f"team/train-0, team/train-1, team/train-2 and 2 more ({IMAGE}): it is built for CUDA 13.0 and the "
            "driver supports 12.4: CUDA does not start, unless its image has cuda-compat",
            fix="install a driver of branch 580 or newer, or use an image for CUDA 12.4",
        )
    ]


@pytest.mark.parametrize(
    ("status", "levels"),
    [
        ({"runtime_version": "13.0"}, ["ok"]),
        ({"driver_version": "580.65.06"}, ["ok"]),
        ({"driver_version": "550.54.15"}, ["warning"]),
        ({}, []),
        ({"runtime_version": "12.4", "vendor": "amd"}, []),
        ({"runtime_version": "12.4", "only": "b"}, []),
    ],
)
def test_the_driver_s_own_word_counts_and_where_nothing_is_known_nothing_is_said(
    status: dict[str, Any], levels: list[str]
) -> None:
    assert [each.level for each in found(built("train-0", version=(13, 0)), **status)] == levels


def test_who_may_not_list_pods_is_told_so() -> None:
    (finding,) = frameworks.judge(picture(built_containers=FORBIDDEN))
    assert (finding.level, finding.check) == ("unknown", "cuda")
