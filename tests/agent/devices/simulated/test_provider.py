from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail_agent.devices.model import DeviceSample, InventoryUnreadable, Sample
from dovetail_agent.devices.simulated.provider import SimulatedProvider, device_uuid
from dovetail_agent.devices.simulated.scenarios import compute_level, memory_level
from tests.agent.builders import NOON, V100S, allocated, make_node, make_tenant

PROVIDER = SimulatedProvider()


def sample(*tenants: Any, now: Any = NOON, **node: Any) -> Sample:
    made = make_node(**node)
    return PROVIDER.sample(PROVIDER.inventory(made), node=made, tenants=tenants, now=now)


def test_the_annotation_declares_the_devices() -> None:
    inventory = PROVIDER.inventory(make_node(devices=V100S | {"reservedMiB": 500}))
    assert [device.index for device in inventory.devices] == [0, 1]
    first = inventory.devices[0]
    assert (first.model, first.vendor, first.memory_mib, first.reserved_mib) == ("V100", "nvidia", 32768, 500)


def test_uuids_come_from_the_node_s_name_and_the_index_alone() -> None:
    assert device_uuid("v100-0", index=0) == "GPU-af1f5554-6bb7-50b8-8f31-7c0b005d0ba6"
    uuids = {device_uuid(node, index=index) for node in ("a", "b") for index in range(8)}
    assert len(uuids) == 16


COUNT = "allowed is a whole number from 1 to 128"


@pytest.mark.parametrize(
    ("devices", "problem"),
    [
        (V100S | {"count": 0}, f"count is 0; {COUNT}"),
        (V100S | {"count": 129}, f"count is 129; {COUNT}"),
        (V100S | {"count": "2"}, f'count is "2"; {COUNT}'),
        (V100S | {"count": True}, f"count is true; {COUNT}"),
        ({"model": "V100", "count": 2}, "memoryMiB is missing; allowed is a whole number of MiB from 1 to"),
        (V100S | {"model": ""}, 'model is ""; allowed is a model\'s name, such as V100'),
        (V100S | {"load": "Steady"}, 'load is "Steady"; allowed is one of Mixed, TrainingWithCheckpoints'),
        (V100S | {"topology": "Ring"}, 'topology is "Ring"; allowed is one of TwoSockets, NvSwitch'),
        (
            V100S | {"demand": {"web": -1}},
            'demand is {"web": -1}; allowed is devices by namespace, 0 to 1024, such as {"web": 1.5}',
        ),
        (V100S | {"vendor": "acme"}, 'vendor is "acme"; allowed is one of nvidia, amd, intel, ascend'),
        (V100S | {"reservedMiB": 40000}, "reservedMiB is 40000; allowed is a whole number of MiB from 0"),
        (V100S | {"memory": 1}, "memory is no field of it; allowed are model, count, memoryMiB"),
        ("[1]", "'[1]' is no JSON object; write {"),
        ("{", "'{' is no JSON ("),
        (None, "it is missing; write {"),
    ],
)
def test_a_bad_declaration_is_one_sentence_with_node_field_and_what_is_allowed(devices: Any, problem: str) -> None:
    with pytest.raises(InventoryUnreadable) as caught:
        PROVIDER.inventory(make_node("t4-7", devices=devices))
    assert str(caught.value).startswith("node t4-7: annotation dovetail.dev/simulated-devices: " + problem)
    assert "\n" not in str(caught.value)


def test_a_node_without_pods_is_idle() -> None:
    idle = sample()
    assert [(each.utilization, each.used_mib, each.unhealthy_reason) for each in idle.devices] == [(0, 0, "")] * 2
    assert (idle.cpu_utilization, idle.memory_utilization) == (0, 0)


def test_load_and_memory_follow_what_a_running_pod_was_promised() -> None:
    quarter = make_tenant(allocated(1, share_milli=250, memory_mib=8000))
    free, used = sample(quarter).devices
    assert (free.utilization, free.used_mib) == (0, 0)
    assert used.utilization == pytest.approx(0.25 * compute_level("ml/a", now=NOON))
    assert used.used_by_tenant_mib == {"pod-uid": int(8000 * memory_level("ml/a"))}
    assert used.used_mib == int(8000 * memory_level("ml/a"))


def test_a_pod_that_does_not_run_yet_uses_nothing() -> None:
    starting = sample(make_tenant(allocated(0), running=False))
    assert starting.devices[0] == sample().devices[0]


def test_tenants_of_one_device_add_up_and_never_above_the_whole() -> None:
    tenants = [make_tenant(allocated(0), uid=f"pod-{number}", work=f"ml/{number}") for number in range(3)]
    device = sample(*tenants).devices[0]
    assert (device.utilization, device.used_mib) == (1.0, 32768)


def test_pods_without_gpus_load_the_host_alone() -> None:
    loaded = sample(make_tenant())
    assert loaded.devices == sample().devices
    assert loaded.cpu_utilization is not None
    assert 0.3 * 8 / 64 <= loaded.cpu_utilization <= 0.7 * 8 / 64


def test_a_fault_takes_a_device_s_figures_away_and_gives_the_reason() -> None:
    broken, whole = sample(make_tenant(allocated(0)), faults={"0": "XID79FellOffTheBus"}).devices
    assert broken == DeviceSample(unhealthy_reason="XID79FellOffTheBus")
    assert whole.unhealthy_reason == ""


@pytest.mark.parametrize(
    ("faults", "problem"),
    [
        ({"2": "XID79"}, "2 is no device of it; allowed are 0 to 1"),
        ({"first": "XID79"}, "first is no device of it; allowed are 0 to 1"),
        ({"0": 79}, "0 is 79; allowed is a word for the fault"),
        ("XID79", "'XID79' is no JSON ("),
    ],
)
def test_a_bad_fault_is_one_sentence_too(faults: Any, problem: str) -> None:
    with pytest.raises(
        InventoryUnreadable, match=r"node v100-0: annotation dovetail\.dev/simulated-faults: "
    ) as caught:
        sample(faults=faults)
    assert problem in str(caught.value)


@given(workload=st.text(max_size=40), seconds=st.integers(0, 10**6))
def test_levels_stay_in_their_bounds_and_repeat(workload: str, seconds: int) -> None:
    now = NOON + timedelta(seconds=seconds)
    assert 0.55 <= compute_level(workload, now=now) <= 0.95
    assert 0.6 <= memory_level(workload) <= 0.95
    assert compute_level(workload, now=now) == compute_level(workload, now=now)


def test_a_workload_s_load_moves_with_time() -> None:
    levels = {round(compute_level("ml/a", now=NOON + timedelta(minutes=minute)), 3) for minute in range(10)}
    assert len(levels) > 5


@pytest.mark.parametrize(
    ("model", "count", "index", "socket", "nvlink", "switch"),
    [
        ("V100", 8, 5, 1, [4, 6, 7], [4]),
        ("T4", 8, 2, 0, [], [3]),
        ("V100", 2, 1, 0, [0], [0]),
        ("T4", 1, 0, 0, [], []),
    ],
)
def test_devices_are_wired_as_servers_commonly_are(
    model: str, count: int, index: int, socket: int, nvlink: list[int], switch: list[int]
) -> None:
    declared = make_node(devices=V100S | {"model": model, "count": count})
    device = PROVIDER.inventory(declared).devices[index]
    assert (device.numa_node, device.links.nvlink, device.links.switch) == (socket, nvlink, switch)
