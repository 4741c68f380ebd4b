"""A node where no vendor's library can be loaded: devices are never invented there."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dovetail import names
from dovetail.api.builtin import Node, NodeInfo
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import ObjectMeta, find_condition
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail_agent.devices.discovery import NoLibraryProvider
from dovetail_agent.devices.model import Provider
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.feature.runner import FeatureRunner
from dovetail_agent.report.collect import Collector
from tests.agent.builders import NOON, make_node

ANNOTATED = make_node(devices={"model": "V100", "count": 2, "memoryMiB": 32768})


def provider() -> NoLibraryProvider:
    return NoLibraryProvider(node="v100-0", libraries=["libnvidia-ml.so.1"], vendors=DEFAULT_VENDORS)


def node(*, name: str = "v100-0", labels: dict[str, str] | None = None, **capacity: str) -> Node:
    built: dict[str, Any] = {"metadata": {"name": name, "labels": labels or {}}, "status": {"capacity": capacity}}
    return msgspec.convert(built, Node)


def looked(by: Provider, at: Node, *, known: GPUNode | None = None) -> GPUNode:
    eyes = Collector(by, vendors=DEFAULT_VENDORS, beside=FeatureRunner())
    _, look = eyes.collect(at, gpunode=known, tenants=(), now=NOON + timedelta(seconds=1))
    return GPUNode(metadata=ObjectMeta(name=at.metadata.name), status=look.status)


@pytest.mark.parametrize(("there", "served"), [
    pytest.param(ANNOTATED, True, id="annotated with simulated devices"),
    pytest.param(node(labels={names.LABEL_MANAGED: "true"}), True, id="managed"),
    pytest.param(node(**{"nvidia.com/gpu": "8"}), True, id="of a vendor's plugin"),
    pytest.param(node(), False, id="without any GPU"),
    pytest.param(node(name="other", labels={names.LABEL_MANAGED: "true"}), False, id="another node"),
])  # fmt: skip
def test_it_serves_its_node_where_devices_are_expected(there: Node, served: bool) -> None:
    assert provider().serves(there) is served


def test_an_annotation_makes_no_devices_and_the_condition_says_why() -> None:
    status = looked(provider(), ANNOTATED).status
    ready = find_condition(status.conditions, type="Ready")
    assert ready is not None
    assert (status.devices, status.provider, ready.status, ready.reason) == ([], "none", "False", "NoLibrary")
    assert "libnvidia-ml.so.1" in ready.message
    assert "agent.provider=simulated" in ready.message


def test_on_ones_own_machine_the_condition_speaks_of_no_chart() -> None:
    info = NodeInfo(container_runtime_version=names.PROCESSES)
    local = replace(ANNOTATED, status=replace(ANNOTATED.status, node_info=info))
    ready = find_condition(looked(provider(), local).status.conditions, type="Ready")
    assert ready is not None
    assert "jobs that ask no GPU run" in ready.message
    assert "runtimeClassName" not in ready.message


def test_devices_that_an_earlier_agent_simulated_are_gone() -> None:
    before = looked(SimulatedProvider(), ANNOTATED)
    assert len(before.status.devices) == 2
    assert looked(provider(), ANNOTATED, known=before).status.devices == []


def test_real_devices_of_an_earlier_report_stay_for_their_pods_sake() -> None:
    before = looked(SimulatedProvider(), ANNOTATED)
    real = msgspec.structs.replace(before, status=msgspec.structs.replace(before.status, provider="nvml"))
    assert len(looked(provider(), ANNOTATED, known=real).status.devices) == 2
