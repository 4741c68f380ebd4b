from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import Assignment, Enforcement, Fault, GPUNodeStatus, Links, TenantTotal
from dovetail_agent.devices import model
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory, Sample
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.report import node_status
from tests.agent.builders import NOON, allocated, make_node, make_tenant

PROVIDER = SimulatedProvider()


def status(*tenants: Any, previous: GPUNodeStatus | None = None, now: Any = NOON, **node: Any) -> GPUNodeStatus:
    made = make_node(**node)
    inventory = PROVIDER.inventory(made)
    sample = PROVIDER.sample(inventory, node=made, tenants=tenants, now=now)
    return node_status.readable(
        inventory, sample=sample, provider="simulated", tenants=tenants, previous=previous, now=now
    )


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
    written = node_status.written_status(status(faults={"1": "XID79"}))
    assert "temperatureCelsius" in written["devices"][0]
    assert "temperatureCelsius" not in written["devices"][1]


def test_utilization_is_told_in_hundredths() -> None:
    utilization = status(make_tenant(allocated(0))).devices[0].utilization
    assert utilization == round(utilization, 2) > 0


@pytest.mark.parametrize(("by_tenant", "told"), [({"pod-uid": 700, "gone": 5}, {"pod-uid": 700}), (None, {})])
def test_each_tenants_use_is_told_where_processes_can_be_told_apart(by_tenant: Any, told: Any) -> None:
    inventory = Inventory(devices=(DeviceInfo(index=0, uuid="g", vendor="nvidia", model="V100", memory_mib=1000),))
    sample = Sample(devices=(DeviceSample(used_mib=700, used_by_tenant_mib=by_tenant),))
    here = AllocatedDevice(uuid="g", index=0, share_milli=500, memory_mib=800)
    status = node_status.readable(
        inventory, sample=sample, provider="nvml", tenants=[make_tenant(here)], previous=None, now=NOON
    )
    assert {tenant.uid: tenant.used_mib for tenant in status.devices[0].tenants} == told


def test_the_totals_of_a_tenant_go_on_from_the_report_before_also_in_another_process() -> None:
    inventory = Inventory(devices=(DeviceInfo(index=0, uuid="g", vendor="nvidia", model="V100", memory_mib=1000),))
    here = AllocatedDevice(uuid="g", index=0, share_milli=500, memory_mib=800)
    there = AllocatedDevice(uuid="other", index=1, share_milli=500, memory_mib=800)
    tenants = [make_tenant(here), make_tenant(there, uid="elsewhere")]

    def report(used: int, *, utilization: float, previous: GPUNodeStatus | None, seconds: float) -> GPUNodeStatus:
        sample = Sample(
            devices=(DeviceSample(used_mib=used, utilization=utilization, used_by_tenant_mib={"pod-uid": used}),)
        )
        now = NOON + timedelta(seconds=seconds)
        return node_status.readable(
            inventory, sample=sample, provider="nvml", tenants=tenants, previous=previous, now=now
        )

    first = report(300, utilization=1.0, previous=None, seconds=0)
    second = report(700, utilization=0.0, previous=first, seconds=30)
    third = report(100, utilization=0.0, previous=second, seconds=60)
    assert [each.devices[0].totals for each in (first, second, third)] == [
        [TenantTotal(uid="pod-uid", peak_mib=300)],
        [TenantTotal(uid="pod-uid", peak_mib=700, mean_utilization=1.0, seconds=30)],
        [TenantTotal(uid="pod-uid", peak_mib=700, mean_utilization=0.5, seconds=60)],
    ]


@pytest.mark.parametrize(
    ("used", "by_tenant", "promised", "foreign"),
    [
        pytest.param(0, {}, {}, 0, id="idle"),
        pytest.param(3000, {}, {}, 3000, id="a stranger alone"),
        pytest.param(9000, {"a": 6000}, {"a": 8000}, 3000, id="a stranger beside a tenant"),
        pytest.param(9000, {}, {"a": 8000}, 9000, id="a stranger where the tenant uses nothing yet"),
        pytest.param(9000, {"a": 9000}, {"a": 8000}, 1000, id="a tenant beyond its promise"),
        pytest.param(9000, {"a": 3000, "b": 6000}, {"a": 4000, "b": 8000}, 0, id="tenants within their promises"),
        pytest.param(9000, None, {"a": 8000}, 1000, id="processes cannot be told apart"),
        pytest.param(None, None, {"a": 8000}, 0, id="use is not available"),
        pytest.param(7000, None, {"a": 8000}, 0, id="a promise is larger than the use"),
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
    seen = node_status.readable(inventory, sample=odd, provider="simulated", tenants=[], previous=None, now=NOON)
    assert [device.utilization for device in seen.devices] == [1.0, 0.0]


CARD = DeviceInfo(
    index=3, uuid="g", vendor="nvidia", model="V100", memory_mib=1000, reserved_mib=7, compute_capability="7.0",
    mig_profile="1g.10gb", pci_bus_id="0000:3b:00.0", numa_node=1, links=Links(nvlink=[2]),
)  # fmt: skip
FULL = DeviceSample(
    used_mib=700, utilization=0.456, temperature_celsius=61, power_watts=250, unhealthy_reason="Xid79",
    faults=(model.Fault(reason="Xid79", at=NOON - timedelta(hours=1)),),
)  # fmt: skip


def read(*states: DeviceSample, previous: GPUNodeStatus | None = None, **sample: Any) -> GPUNodeStatus:
    """The report of devices like CARD in these states."""
    inventory = Inventory(
        devices=(CARD,) * len(states), driver_version="550", runtime_version="12.4", enforcement=Enforcement(mps=True)
    )
    taken = Sample(devices=states, **sample)
    return node_status.readable(inventory, sample=taken, provider="nvml", tenants=[], previous=previous, now=NOON)


def test_every_fact_of_a_device_is_in_its_report() -> None:
    (device,) = read(FULL).devices
    assert (device.index, device.uuid, device.vendor, device.model) == (3, "g", "nvidia", "V100")
    assert (device.memory_mib, device.reserved_mib, device.used_mib, device.foreign_mib) == (1000, 7, 700, 700)
    assert (device.compute_capability, device.mig_profile, device.pci_bus_id) == ("7.0", "1g.10gb", "0000:3b:00.0")
    assert (device.numa_node, device.links) == (1, Links(nvlink=[2]))
    assert (device.utilization, device.temperature_celsius, device.power_watts) == (0.46, 61, 250)
    assert (device.health, device.health_reason) == ("Unhealthy", "Xid79")
    assert device.faults == [Fault(reason="Xid79", at="2026-11-21T11:00:00Z")]


def test_every_fact_of_a_node_is_in_its_report() -> None:
    found = read(DeviceSample(), measured_at=NOON - timedelta(minutes=2), cpu_utilization=0.127, memory_utilization=0.5)
    assert (found.observed_at, found.measured_at) == ("2026-11-21T12:00:00Z", "2026-11-21T11:58:00Z")
    assert (found.driver_version, found.runtime_version, found.enforcement.mps) == ("550", "12.4", True)
    assert (found.cpu_utilization, found.memory_utilization) == (0.13, 0.5)


def test_devices_that_were_just_read_have_the_time_of_the_report() -> None:
    assert read(DeviceSample()).measured_at == "2026-11-21T12:00:00Z"


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ((DeviceSample(), DeviceSample()), "2 devices, all healthy"),
        ((FULL, DeviceSample(), FULL), "3 devices, 2 unhealthy"),
        ((), "0 devices, all healthy"),
    ],
)
def test_the_condition_counts_unhealthy_devices(states: tuple[DeviceSample, ...], message: str) -> None:
    (ready,) = read(*states).conditions
    assert (ready.type, ready.status, ready.reason, ready.message) == ("Ready", "True", "DevicesRead", message)


def test_a_node_that_can_be_read_again_has_the_time_of_that() -> None:
    broken = node_status.unreadable("no", provider="nvml", previous=None, now=NOON - timedelta(hours=2))
    assert [each.last_transition_time for each in read(previous=broken).conditions] == ["2026-11-21T12:00:00Z"]


@pytest.mark.parametrize(
    ("before", "now", "kept"),
    [
        ("nvml", "nvml", 1),
        ("nvml", "amd", 1),
        ("simulated", "nvml", 0),
        ("nvml", "simulated", 0),
        ("simulated", "simulated", 1),
    ],
)
def test_devices_that_were_simulated_are_not_kept_as_real_ones(before: str, now: str, kept: int) -> None:
    previous = msgspec.structs.replace(read(DeviceSample()), provider=before)
    found = node_status.unreadable("no", provider=now, previous=previous, now=NOON, reason="NoLibrary")
    assert (len(found.devices), found.provider, found.conditions[0].reason) == (kept, now, "NoLibrary")


def test_a_node_that_cannot_be_read_keeps_when_it_was_last_measured() -> None:
    found = node_status.unreadable("no", provider="nvml", previous=read(DeviceSample()), now=NOON + timedelta(hours=1))
    assert (found.observed_at, found.measured_at) == ("2026-11-21T13:00:00Z", "2026-11-21T12:00:00Z")
    assert [(each.type, each.reason) for each in found.conditions] == [("Ready", "InventoryUnreadable")]


def test_a_written_status_leaves_out_what_is_unknown_of_the_node_and_of_each_device() -> None:
    status = msgspec.structs.replace(read(DeviceSample(), FULL), measured_at=None)
    written = node_status.written_status(status)
    assert "measuredAt" not in written
    assert [("powerWatts" in device) for device in written["devices"]] == [False, True]
    assert written["devices"][0]["usedMiB"] == 0, "nothing in use is a figure"


def test_the_summary_groups_devices_by_model_and_memory() -> None:
    devices = [
        msgspec.structs.replace(each, model=name, memory_mib=mib)
        for each, (name, mib) in zip(
            read(*(DeviceSample(),) * 4).devices, (("A", 1), ("A", 1), ("A", 2), ("B", 1)), strict=True
        )
    ]
    status = msgspec.structs.replace(read(), devices=devices)
    assert node_status.summary(status) == "2 x A (1 MiB), 1 x A (2 MiB), 1 x B (1 MiB)"
    assert node_status.summary(GPUNodeStatus(devices=devices)).startswith("2 x A"), "a report without conditions"


def test_the_facts_of_a_device_leave_out_what_is_unknown() -> None:
    assert "power_watts" not in node_status.facts(read(DeviceSample()).devices[0])
    assert node_status.facts(read(FULL).devices[0])["power_watts"] == 250


def test_a_time_is_written_in_utc_to_the_second() -> None:
    there = datetime(2026, 11, 21, 14, 0, 0, 999999, tzinfo=timezone(timedelta(hours=2)))
    assert node_status.timestamp(there) == node_status.timestamp(NOON.astimezone(UTC)) == "2026-11-21T12:00:00Z"


def test_uses_have_the_order_of_uids_and_name_tenants_of_the_device_only() -> None:
    sample = Sample(devices=(DeviceSample(used_mib=9, used_by_tenant_mib={"b": 2, "a": 1, "gone": 3}),))
    here = AllocatedDevice(uuid="g", index=3, share_milli=500, memory_mib=800)
    tenants = [make_tenant(here, uid=uid) for uid in ("b", "a", "idle")]
    found = node_status.readable(
        Inventory(devices=(CARD,)), sample=sample, provider="nvml", tenants=tenants, previous=None, now=NOON
    )
    assert [(each.uid, each.used_mib) for each in found.devices[0].tenants] == [("a", 1), ("b", 2)]
    assert found.devices[0].foreign_mib == 6


def test_figures_that_the_driver_does_not_report_are_zero() -> None:
    found = read(DeviceSample())
    assert (found.cpu_utilization, found.memory_utilization, found.devices[0].utilization) == (0, 0, 0)
    assert (found.devices[0].used_mib, found.devices[0].foreign_mib) == (0, 0)


def free(*devices: DeviceSample, tenants: Any = (), assignments: Any = ()) -> tuple[int, str]:
    inventory = Inventory(
        devices=tuple(
            DeviceInfo(index=at, uuid=f"g{at}", vendor="nvidia", model="V100", memory_mib=1000)
            for at in range(len(devices))
        )
    )
    made = node_status.readable(
        inventory,
        sample=Sample(devices=devices),
        provider="nvml",
        tenants=tenants,
        previous=None,
        now=NOON,
        assignments=assignments,
    )
    return made.gpus, made.free


WELL, BROKEN = DeviceSample(), DeviceSample(unhealthy_reason="XID79FellOffTheBus")


@pytest.mark.parametrize(
    ("devices", "shares", "told"),
    [
        pytest.param([WELL, WELL], {}, (2, "2"), id="all free"),
        pytest.param([WELL, WELL], {0: 1000}, (2, "1"), id="a whole one"),
        pytest.param([WELL, WELL], {0: 500}, (2, "1.5"), id="half of one"),
        pytest.param([WELL, WELL], {0: 1000, 1: 125}, (2, "0.875"), id="a whole one and an eighth"),
        pytest.param([WELL, BROKEN], {}, (2, "1"), id="an unhealthy one takes no pod"),
        pytest.param([WELL, BROKEN], {1: 500}, (2, "1"), id="what is left of an unhealthy one is not free"),
        pytest.param([], {}, (0, "0"), id="none"),
    ],
)
def test_free_is_what_no_pod_was_promised(devices: Any, shares: dict[int, int], told: tuple[int, str]) -> None:
    promised = [
        AllocatedDevice(uuid=f"g{at}", index=at, share_milli=milli, memory_mib=1) for at, milli in shares.items()
    ]
    assert free(*devices, tenants=[make_tenant(*promised)] if promised else []) == told


def test_turns_promise_a_device_once_and_a_plugins_pod_has_the_whole() -> None:
    turns = [make_tenant(AllocatedDevice(uuid="g0", index=0, share_milli=1000, memory_mib=1)) for _ in range(3)]
    assert free(WELL, WELL, tenants=turns) == (2, "1")
    given = Assignment(uid="u", namespace="red", name="pod", devices=["g1"])
    assert free(WELL, WELL, assignments=[given]) == (2, "1")
    replica = Assignment(uid="u", namespace="red", name="pod", devices=["g1::3", "g1::4"])
    assert free(WELL, WELL, assignments=[replica]) == (2, "1")


def test_what_cannot_be_read_is_not_free() -> None:
    gone = node_status.unreadable("NVML: driver not loaded", provider="simulated", previous=status(), now=NOON)
    assert (gone.gpus, gone.free) == (2, "0")
    assert node_status.unreadable("NVML: driver not loaded", provider="nvml", previous=None, now=NOON).free == ""
