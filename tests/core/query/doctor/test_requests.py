"""Pods that wait for a vendor's GPUs where Dovetail manages nodes."""

from typing import Any

import pytest

from dovetail import names
from dovetail.answers.doctor import CheckResult
from dovetail.api.builtin import Namespace, Node
from dovetail.api.meta import ObjectMeta
from dovetail.cluster.picture import Unseen
from dovetail.config.settings import Settings
from dovetail.query.doctor import requests
from tests.core.query.doctor.test_diagnosis import picture

WAITED = {"team": {"nvidia.com/gpu", "example.org/dongle"}}
MANAGED = Node(metadata=ObjectMeta(name="a", labels={names.LABEL_MANAGED: "true"}))
NOT_SEEN = Unseen(why="forbidden", missing=False)


def judged(**changes: Any) -> list[CheckResult]:
    whole = picture(**{"nodes": [MANAGED], "resources_waited_for": WAITED, **changes})
    return list(requests.judge(whole, settings=Settings()))


def test_a_namespace_whose_pods_wait_for_a_vendor_s_gpus_is_named_with_the_cure() -> None:
    (found,) = judged()
    assert (found.level, found.check) == ("warning", "requests")
    assert found.message.startswith("team: pods wait for nvidia.com/gpu")
    assert found.fix.startswith(f"kubectl label namespace team {names.TRANSLATE}=true")


@pytest.mark.parametrize(
    "resource",
    ["nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "volcano.sh/vgpu-number", "nvidia.com/mig-1g.10gb"],
)
def test_what_only_another_system_has_is_named_too(resource: str) -> None:
    (found,) = judged(resources_waited_for={"team": {resource}})
    assert f"pods wait for {resource}, which only nodes of another system have" in found.message


@pytest.mark.parametrize(
    "changes",
    [
        {"namespaces": [Namespace(metadata=ObjectMeta(name="team", labels={names.TRANSLATE: "true"}))]},
        {"nodes": [Node(metadata=ObjectMeta(name="vendor"))]},
        {"resources_waited_for": {"team": {"dovetail.dev/gpu-milli"}}},
        {"nodes": NOT_SEEN},
        {"namespaces": NOT_SEEN},
    ],
)
def test_where_that_would_not_help_nothing_is_said(changes: dict[str, Any]) -> None:
    assert judged(**changes) == []


def test_what_cannot_be_seen_is_said() -> None:
    (found,) = judged(resources_waited_for=NOT_SEEN)
    assert found.level == "unknown"
