"""Simulated GPUs that are partitioned, from the declaration of a sandbox to the agent's inventory."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Node
from dovetail_agent.devices.model import InventoryUnreadable
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_sandbox.errors import InvalidInputError
from dovetail_sandbox.nodes import kwok
from dovetail_sandbox.nodes.node_sets import declared
from tests.agent.builders import make_node

SET = "{name: a, model: A100, devices: 3, memory_mib: 40960, cpu: 8, memory: 64Gi, "


def node_of(more: str) -> dict[str, Any]:
    (node,) = declared(f"- {SET}{more}}}")
    return kwok.manifest(node)


def test_instances_replace_their_gpu_and_are_numbered_after_the_last_one() -> None:
    node = msgspec.convert(node_of('mig: [2x3g.20gb, "1x4g.20gb,1x1g.5gb"]'), Node)
    devices = SimulatedProvider().inventory(node).devices
    assert [(device.index, device.mig_profile) for device in devices] == [
        (2, ""), (3, "3g.20gb"), (4, "3g.20gb"), (5, "4g.20gb"), (6, "1g.5gb"),
    ]  # fmt: skip
    assert len({device.uuid for device in devices}) == 5
    assert [device.memory_mib // 1024 for device in devices] == [40, 20, 20, 20, 5]


def test_what_a_gpu_reserves_is_no_loss_of_its_instances() -> None:
    """Their sizes are what the driver leaves of the card."""
    node = make_node(devices={"model": "A100", "count": 2, "memoryMiB": 40960, "reservedMiB": 700, "mig": ["7x1g.5gb"]})
    devices = SimulatedProvider().inventory(node).devices
    assert {device.mig_profile: device.reserved_mib for device in devices} == {"": 700, "1g.5gb": 0}


def test_a_plugin_advertises_whole_gpus_and_each_profile() -> None:
    found = node_of("resource: nvidia.com/gpu, mig: [7x1g.5gb, 2x3g.20gb]")["status"]["allocatable"]
    amounts = {name: amount for name, amount in found.items() if name.startswith("nvidia.com/")}
    assert amounts == {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.5gb": "7", "nvidia.com/mig-3g.20gb": "2"}


@pytest.mark.parametrize("mig", ["8x1g.5gb", "[8x1g.5gb]", "[1, 2]", "[1g.5gb, 1g.5gb, 1g.5gb, 1g.5gb]", '["2"]'])
def test_a_partition_that_no_gpu_can_have_is_refused(mig: str) -> None:
    with pytest.raises(InvalidInputError, match=r"nodes\[0\].mig"):
        declared(f"- {SET}mig: {mig}}}")


def test_the_annotation_is_refused_with_what_is_allowed() -> None:
    manifest = node_of("mig: [7x1g.5gb]")
    annotations = manifest["metadata"]["annotations"]
    annotations[names.SIMULATED_DEVICES] = annotations[names.SIMULATED_DEVICES].replace("7x", "9x")
    with pytest.raises(InventoryUnreadable, match=r"mig is .* allowed is a list"):
        SimulatedProvider().inventory(msgspec.convert(manifest, Node))
