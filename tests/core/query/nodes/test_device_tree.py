"""The tree of devices that `gflowd up` and the gateway print at their start."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail import names
from dovetail.answers.inventory import take
from dovetail.api.builtin import Node, NodeInfo, NodeStatus, Pod
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.config.settings import Settings
from dovetail.formats.timestamps import moment
from dovetail.query.nodes.device_tree import MOST_NODES, device_tree, silent_nodes
from tests.cli.builders import make_gpunode, make_pod

NOON = moment("2026-11-01T12:00:00Z")


def tree(*gpunodes: GPUNode, pods: tuple[Pod, ...] = (), silent: Mapping[str, str] | None = None) -> str:
    found = take(gpunodes, pods=pods, scheduler="", namespace="")
    return device_tree(found.nodes, silent=silent or {})


def changed(gpunode: GPUNode, **status: Any) -> GPUNode:
    return replace(gpunode, status=replace(gpunode.status, **status))


def node(*, labels: Mapping[str, str] | None = None, boot: str = "", **capacity: str) -> Node:
    meta = ObjectMeta(name="a", labels={names.LABEL_MANAGED: "true"} if labels is None else dict(labels))
    return Node(metadata=meta, status=NodeStatus(capacity=capacity, node_info=NodeInfo(boot_id=boot)))


def silence(one: Node, *gpunodes: GPUNode) -> dict[str, str]:
    known = {each.metadata.name: each for each in gpunodes}
    return silent_nodes([one], gpunodes=known, settings=Settings(), now=NOON)


def test_each_device_shows_what_it_is_and_does() -> None:
    gpunode = changed(make_gpunode("a"), provider="nvml", driver_version="580.65")
    assert tree(gpunode, pods=(make_pod(held=((1, 1000, 1024),)),)).splitlines() == [
        "a (nvml, driver 580.65)",
        "├── 0: V100",
        "│   ├── memory 32768 MiB: used 0 MiB (0.0%), free 32768 MiB (100.0%)",
        "│   ├── temperature not reported, power not reported, utilization 0%",
        "│   └── tasks: 0 training, 0 inference",
        "└── 1: V100",
        "    ├── memory 32768 MiB: used 0 MiB (0.0%), free 32768 MiB (100.0%)",
        "    ├── temperature not reported, power not reported, utilization 0%",
        "    └── tasks: 0 training, 0 inference, 1 that do not say",
    ]


def test_a_large_cluster_shows_its_first_nodes() -> None:
    found = tree(*(make_gpunode(f"n{at}", gpus=1) for at in range(MOST_NODES)), silent={"z": "late", "y": "late"})
    assert found.splitlines()[-1] == "… and 2 more nodes: ginfo lists all"
    assert "late" not in found


def test_a_cluster_without_nodes_with_gpus_says_so() -> None:
    assert tree() == "this cluster has no GPUs"


def test_a_node_whose_agent_finds_none_says_so() -> None:
    assert tree(make_gpunode("local", gpus=0)) == "local: no GPU"


def test_devices_that_cannot_be_read_are_not_shown_as_they_once_were() -> None:
    ready = Condition(
        type="Ready",
        status="False",
        reason="Unreadable",
        message="node local: NVML: Driver Not Loaded",
        last_transition_time="2026-11-01T12:00:00Z",
    )
    found = tree(changed(make_gpunode("local"), conditions=[ready]))
    assert found == "local: its devices cannot be read: NVML: Driver Not Loaded"


def test_a_silent_node_says_why_and_shows_no_old_devices() -> None:
    assert tree(make_gpunode("a"), silent={"a": "its agent is late"}) == "a: its agent is late"


@pytest.mark.parametrize(
    ("one", "status", "why"),
    [
        pytest.param(node(), {"observed_at": "2026-11-01T11:59:00Z"}, "", id="of this minute"),
        pytest.param(node(), {"observed_at": "2026-11-01T12:00:05Z"}, "", id="by a clock that is ahead"),
        pytest.param(node(), None, "its agent has not reported its devices", id="without an object"),
        pytest.param(node(), {"observed_at": None}, "its agent has not reported its devices", id="an empty object"),
        pytest.param(node(), {"observed_at": "2026-11-01T11:00:00Z"}, "its agent has been silent for 60m", id="old"),
        pytest.param(
            node(boot="2"),
            {"observed_at": "2026-11-01T11:59:00Z", "boot_id": "1"},
            "its agent has not reported since the node has booted",
            id="of the boot before",
        ),
        pytest.param(node(boot="1"), {"observed_at": "2026-11-01T11:59:00Z", "boot_id": "1"}, "", id="of this boot"),
        pytest.param(node(boot="1"), {"observed_at": "2026-11-01T11:59:00Z"}, "", id="of an agent that knows no boot"),
        pytest.param(
            node(), {"observed_at": "2026-11-01T11:59:00Z", "boot_id": "1"}, "", id="of a node that names none"
        ),
        pytest.param(node(labels={}), None, "", id="a node without GPUs"),
        pytest.param(
            node(labels={}, **{"nvidia.com/gpu": "4"}), None, "its agent has not reported its devices", id="of a plugin"
        ),
    ],
)
def test_a_node_is_silent_until_its_agent_reports(one: Node, status: dict[str, Any] | None, why: str) -> None:
    reports = [] if status is None else [changed(make_gpunode("a"), **status)]
    assert silence(one, *reports) == ({"a": why} if why else {})
