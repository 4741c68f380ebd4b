from datetime import timedelta
from typing import Any

import pytest

from dovetail.api.gpunode import GPUNodeStatus
from dovetail.pods.allocation import AllocatedDevice
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory, Sample
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.report import node_status
from tests.agent.builders import NOON, allocated, make_node, make_tenant

PROVIDER = SimulatedProvider()


def status(*tenants: Any, previous: GPUNodeStatus | None = None, now: Any = NOON, **node: Any) -> GPUNodeStatus:
    made = make_node(**node)
    inventory = PROVIDER.inventory(made)
    sample = PROVIDER.sample(inventory, node=made, tenants=tenants, now=now)
    return node_status.readable(inventory, sample, provider="simulated", tenants=tenants, previous=previous, now=now)


def test_a_report_says_when_and_what_was_seen() -> None:
    seen = status()
    assert (seen.observed_at, seen.provider) == ("2026-11-21T12:00:00Z", "simulated")
    assert [(device.index, device.model, device.health) for device in seen.devices] == [
        (0, "V100", "Healthy"),
        (1, "V100", "Healthy"),
    ]
    assert seen.conditions[0].status == "True"


def test_a_broken_device_is_unhealthy_with_its_reason() -> None:
    device = status(faults={"1": "XID79FellOffTheBus"}).devices[1]
    assert (device.health, device.health_reason, device.temperature_celsius) == (
        "Unhealthy",
        "XID79FellOffTheBus",
        None,
    )


def test_what_is_not_available_is_left_out_of_the_write() -> None:
    body = node_status.applied_status("v100-0", status(faults={"1": "XID79"}))
    assert "temperatureCelsius" in body["status"]["devices"][0]
    assert "temperatureCelsius" not in body["status"]["devices"][1]


def test_utilization_is_told_in_hundredths() -> None:
    utilization = status(make_tenant(allocated(0))).devices[0].utilization
    assert utilization == round(utilization, 2) > 0


@pytest.mark.parametrize(("by_tenant", "told"), [({"pod-uid": 700, "gone": 5}, {"pod-uid": 700}), (None, {})])
def test_each_tenants_use_is_told_where_processes_can_be_told_apart(by_tenant: Any, told: Any) -> None:
    inventory = Inventory(devices=(DeviceInfo(index=0, uuid="g", vendor="nvidia", model="V100", memory_mib=1000),))
    sample = Sample(devices=(DeviceSample(used_mib=700, used_by_tenant_mib=by_tenant),))
    here = AllocatedDevice(uuid="g", index=0, share_milli=500, memory_mib=800)
    status = node_status.readable(
        inventory, sample, provider="nvml", tenants=[make_tenant(here)], previous=None, now=NOON
    )
    assert {tenant.uid: tenant.used_mib for tenant in status.devices[0].tenants} == told


@pytest.mark.parametrize(
    ("used", "by_tenant", "promised", "foreign"),
    [
        pytest.param(0, {}, {}, 0, id="idle"),
        pytest.param(3000, {}, {}, 3000, id="a stranger alone"),
        pytest.param(9000, {"a": 6000}, {"a": 8000}, 3000, id="a stranger beside a tenant"),
        pytest.param(9000, {"a": 9000}, {"a": 8000}, 1000, id="a tenant beyond its promise"),
        pytest.param(9000, {"a": 3000, "b": 6000}, {"a": 4000, "b": 8000}, 0, id="tenants within their promises"),
        pytest.param(9000, None, {"a": 8000}, 1000, id="processes cannot be told apart"),
        pytest.param(None, None, {"a": 8000}, 0, id="use is not available"),
    ],
)
def test_foreign_memory_is_what_no_promise_covers(
    used: int | None, by_tenant: dict[str, int] | None, promised: dict[str, int], foreign: int
) -> None:
    sample = DeviceSample(used_mib=used, used_by_tenant_mib=by_tenant)
    assert node_status.foreign_mib(sample, promised=promised) == foreign


def test_an_unreadable_node_keeps_the_devices_last_seen_and_says_why() -> None:
    broken = node_status.unreadable("node v100-0: no", provider="simulated", previous=status(), now=NOON)
    assert len(broken.devices) == 2
    assert (broken.conditions[0].status, broken.conditions[0].message) == ("False", "node v100-0: no")


def test_a_node_that_never_could_be_read_has_no_devices() -> None:
    assert node_status.unreadable("no", provider="simulated", previous=None, now=NOON).devices == []


def test_a_condition_remembers_when_it_changed() -> None:
    later = NOON + timedelta(hours=1)
    same = status(previous=status(), now=later).conditions[0]
    other = node_status.unreadable("no", provider="simulated", previous=status(), now=later).conditions[0]
    assert same.last_transition_time == "2026-11-21T12:00:00Z"
    assert other.last_transition_time == "2026-11-21T13:00:00Z"


def test_the_object_belongs_to_its_node() -> None:
    body = node_status.applied_object(make_node(uid="123"))
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner.kind, owner.name, owner.uid, owner.block_owner_deletion) == ("Node", "v100-0", "123", False)


def test_the_summary_counts_models_and_names_broken_devices() -> None:
    assert node_status.summary(status()) == "2 x V100 (32768 MiB)"
    assert node_status.summary(status(faults={"1": "XID79"})).endswith("; device 1 is unhealthy: XID79")


def test_the_summary_of_an_unreadable_node_is_the_problem() -> None:
    broken = node_status.unreadable("node v100-0: no", provider="simulated", previous=status(), now=NOON)
    assert node_status.summary(broken) == "node v100-0: no"


def test_figures_outside_their_bounds_are_brought_back() -> None:
    made = make_node()
    inventory = PROVIDER.inventory(made)
    odd = Sample(devices=(DeviceSample(utilization=1.3), DeviceSample(utilization=-0.1)))
    seen = node_status.readable(inventory, odd, provider="simulated", tenants=[], previous=None, now=NOON)
    assert [device.utilization for device in seen.devices] == [1.0, 0.0]
