"""What simulated nodes play: every scenario of the data keeps a provider's rules, and does what it is named after."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceSample, Inventory, InventoryUnreadable, Sample
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.devices.simulated.scenarios import SCENARIOS, compute_level, memory_level
from dovetail_agent.report import node_status
from tests.agent.builders import NOON, V100S, allocated, make_node, make_tenant

PROVIDER = SimulatedProvider()
TENANT = make_tenant(allocated(0, memory_mib=20_000))
ANSWERING = [name for name, fault in SCENARIOS.faults.items() if not fault.hangs]


def seen(
    *, tenants: Sequence[NodeTenant] = (TENANT,), now: Any = NOON, faults: Any = None, **declared: Any
) -> tuple[Inventory, Sample]:
    node = make_node(devices=V100S | declared, faults=faults)
    inventory = PROVIDER.inventory(node)
    return inventory, PROVIDER.sample(inventory, node=node, tenants=tenants, now=now)


def first(faults: str, **more: Any) -> DeviceSample:
    return seen(faults={"0": faults}, **more)[1].devices[0]


@pytest.mark.parametrize("name", ANSWERING)
@pytest.mark.parametrize("minutes", [0, 17, 59])
def test_every_fault_stays_within_what_a_card_can_say(name: str, minutes: int) -> None:
    inventory, sample = seen(faults={"0": name}, now=NOON + timedelta(minutes=minutes))
    state = sample.devices[0]
    assert state.used_mib is None or 0 <= state.used_mib <= inventory.devices[0].memory_mib
    assert state.utilization is None or 0 <= state.utilization <= 1
    assert (state.unhealthy_reason == name) == SCENARIOS.faults[name].unhealthy
    assert sample.devices[1].unhealthy_reason == ""
    status = node_status.readable(
        inventory, sample=sample, provider="simulated", tenants=[TENANT], previous=None, now=NOON
    )
    assert node_status.written_status(status)["devices"][0]["healthReason"] == state.unhealthy_reason


@pytest.mark.parametrize("load", SCENARIOS.loads)
@pytest.mark.parametrize("workload", ["ml/a", "ml/b", "vision/train"])
def test_every_load_stays_within_the_whole(load: str, workload: str) -> None:
    levels = [compute_level(workload, now=NOON + timedelta(seconds=30 * at), load=load) for at in range(2880)]
    assert 0 <= min(levels) <= max(levels) <= 1
    assert 0 < memory_level(workload, load=load) <= 1


@pytest.mark.parametrize("topology", SCENARIOS.topologies)
@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_in_every_topology_links_lead_to_others_and_back(topology: str, count: int) -> None:
    inventory, _ = seen(topology=topology, count=count)
    for index, device in enumerate(inventory.devices):
        for kind in ("nvlink", "switch"):
            others = getattr(device.links, kind)
            assert index not in others
            assert all(index in getattr(inventory.devices[other].links, kind) for other in others)


@pytest.mark.parametrize(
    ("topology", "nvlink"),
    [
        ("TwoSockets", [1, 2, 3]),
        ("NvSwitch", [1, 2, 3, 4, 5, 6, 7]),
        ("NvLinkPairs", [1]),
        ("PcieOnly", []),
        ("OneSocket", []),
    ],
)
def test_a_topology_is_what_it_says(topology: str, nvlink: list[int]) -> None:
    inventory, _ = seen(topology=topology, count=8)
    assert inventory.devices[0].links.nvlink == nvlink
    assert inventory.devices[7].numa_node == (0 if topology == "OneSocket" else 1)


def test_links_that_are_down_lead_nowhere_from_either_end() -> None:
    inventory, sample = seen(faults={"1": "Xid74NvLinkError"}, count=4, topology="NvSwitch")
    assert [device.links.nvlink for device in inventory.devices] == [[2, 3], [], [0, 3], [0, 2]]
    assert sample.devices[1].unhealthy_reason == "Xid74NvLinkError"


def test_a_card_that_is_too_hot_does_half_its_work_and_is_well() -> None:
    hot, well = first("ThermalSlowdown"), seen()[1].devices[0]
    assert hot.utilization == pytest.approx((well.utilization or 0) / 2)
    assert (hot.temperature_celsius, hot.throttled_by, hot.unhealthy_reason) == (91, ("hardware_temperature",), "")


def test_a_stranger_that_leaks_grows_for_an_hour() -> None:
    grown = [
        first("StrangerLeaks", tenants=(), now=NOON + timedelta(minutes=minutes)).used_mib for minutes in (0, 30, 59)
    ]
    assert grown == [0, 14745, 28999]


def test_what_an_old_card_does_not_tell_is_not_available() -> None:
    old = first("OnlyMemoryIsTold")
    assert old.used_mib
    assert (old.utilization, old.temperature_celsius, old.power_watts, old.used_by_tenant_mib) == (
        None,
        None,
        None,
        None,
    )


def test_a_driver_that_hangs_is_the_whole_node_s_trouble() -> None:
    with pytest.raises(InventoryUnreadable, match="nvmlDeviceGetPowerUsage does not answer"):
        seen(faults={"1": "DriverHangs"})


def test_kubelet_gives_a_hot_card_still_and_a_lost_one_no_more() -> None:
    for name, given in (("ThermalSlowdown", 1), ("GpuIsLost", 0)):
        node = make_node(faults={"0": name, "1": "GpuIsLost"})
        asking = NodeTenant(uid="pod-uid", namespace="ml", name="a", running=True, vendor_devices=1)
        dealt = PROVIDER.assignments(PROVIDER.inventory(node), node=node, tenants=[asking], previous=[])
        assert len(dealt) == given


def test_training_with_checkpoints_pauses_and_a_notebook_computes_nothing() -> None:
    def levels(load: str) -> list[float]:
        return [compute_level("ml/a", now=NOON + timedelta(seconds=5 * at), load=load) for at in range(240)]

    training = levels("TrainingWithCheckpoints")
    assert (min(training), len([level for level in training if level < 0.5])) == (0.04, 18)
    assert set(levels("HoldsAndIdles")) == {0.0}
    assert memory_level("ml/a", load="HoldsAndIdles") > 0.7
