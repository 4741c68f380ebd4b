"""Simulated GPUs that are partitioned again, as an agent and the one after it report them."""

import asyncio

import msgspec
import pytest

from dovetail.api.builtin import Node
from dovetail.api.gpunode import GPUNodeStatus
from dovetail_agent.devices.faults import Past, with_lost
from dovetail_agent.devices.model import Inventory, SplitCard
from dovetail_agent.devices.simulated.provider import SimulatedProvider, device_uuid
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.report import node_status
from dovetail_agent.reshape.feature import ReshapeFeature
from tests.agent.builders import NOON
from tests.agent.devices.simulated.test_partitions import node_of

NODE = msgspec.convert(node_of("mig: [7x1g.5gb, 2x3g.20gb]"), Node)
FIRST = device_uuid(NODE.metadata.name, index=0)


def profiles(inventory: Inventory) -> list[str]:
    return [device.mig_profile for device in inventory.devices if device.parent == FIRST]


def test_only_gpus_in_mig_mode_can_be_partitioned_again() -> None:
    split = SimulatedProvider().inventory(NODE).split
    assert [card.index for card in split] == [0, 1]
    assert [slot.profile for slot in split[0].slots] == [
        "1g.5gb",
        "1g.10gb",
        "2g.10gb",
        "3g.20gb",
        "4g.20gb",
        "7g.40gb",
    ]


def test_a_gpu_gets_other_instances_and_the_others_keep_theirs() -> None:
    provider = SimulatedProvider()
    others = {device.uuid for device in provider.inventory(NODE).devices if device.parent != FIRST}
    assert asyncio.run(provider.reshape(NODE, card=FIRST, profiles=["1g.5gb", "3g.20gb"])) == ""
    after = provider.inventory(NODE)
    assert profiles(after) == ["3g.20gb", "1g.5gb"]
    assert {device.uuid for device in after.devices if device.parent != FIRST} == others


@pytest.mark.parametrize(
    ("card", "wanted", "problem"),
    [
        (FIRST, ["7g.40gb", "1g.5gb"], "7g.40gb + 1g.5gb do not fit on the GPU together"),
        (device_uuid(NODE.metadata.name, index=2), ["1g.5gb"], "is not in MIG mode"),
    ],
)
def test_what_cannot_be_done_is_said(card: str, wanted: list[str], problem: str) -> None:
    assert problem in asyncio.run(SimulatedProvider().reshape(NODE, card=card, profiles=wanted))


def test_the_next_agent_finds_the_instances_in_the_last_report() -> None:
    provider = SimulatedProvider()
    asyncio.run(provider.reshape(NODE, card=FIRST, profiles=["7g.40gb"]))
    inventory = provider.inventory(NODE)
    seen = Seen(node=NODE, now=NOON, inventory=inventory)
    sample = provider.sample(inventory, node=NODE, tenants=(), now=NOON)
    status = node_status.readable(inventory, sample=sample, provider="simulated", tenants=(), previous=None, now=NOON)
    reported = ReshapeFeature(provider).amend(status, seen=seen)
    answered = [msgspec.structs.replace(card, answered="2026-01-01T12:00:00Z") for card in reported.reshapable[:1]]
    reported = msgspec.structs.replace(reported, reshapable=answered)
    assert profiles(SimulatedProvider().inventory(NODE, previous=reported)) == ["7g.40gb"]


def test_a_report_leaves_out_times_that_are_not_known() -> None:
    inventory = SimulatedProvider().inventory(NODE)
    status = ReshapeFeature(SimulatedProvider()).amend(
        GPUNodeStatus(), seen=Seen(node=NODE, now=NOON, inventory=inventory)
    )
    written = node_status.written_status(status)["reshapable"]
    assert [sorted(card) for card in written] == [["index", "model", "problem", "slots", "uuid"]] * 2


def test_an_instance_of_a_gpu_in_mig_mode_is_not_lost_when_it_is_gone() -> None:
    device = {
        "index": 3, "uuid": "MIG-1", "vendor": "nvidia", "model": "A100 MIG 1g.5gb", "memoryMiB": 1,
        "migProfile": "1g.5gb", "parent": "GPU-1", "pciBusId": "0000:10:00.0",
    }  # fmt: skip
    past = Past(status=msgspec.convert({"devices": [device]}, GPUNodeStatus), boot_id="b")
    split = SplitCard(index=0, uuid="GPU-1", model="A100", slots=())
    assert [each.uuid for each in with_lost(Inventory(devices=()), past=past).devices] == ["MIG-1"]
    assert with_lost(Inventory(devices=(), split=(split,)), past=past).devices == ()
