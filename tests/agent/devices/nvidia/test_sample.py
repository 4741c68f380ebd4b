"""The real binding of NVML on our C library: what is read of cards, and what becomes of what cannot be read."""

from pathlib import Path
from typing import Any

import pynvml
import pytest

from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.devices.poller import Known
from tests.agent.conftest import See
from tests.agent.nvml_stub import GPU_IS_LOST, H100, NOT_SUPPORTED, Process, Scenario, Stub, card_uuid
from tests.agent.procfs import make_proc

POD, OTHER = "0f2a9c1e-7d3b-4c55-9e10-6b1f2d3c4a5b", "11111111-2222-4333-8444-555555555555"

# Those that drivers of some cards do not give.
FIGURES = (
    "util", "power", "celsius", "sm", "throttle", "ecc_corrected", "ecc_uncorrected", "rows", "mode",
)  # fmt: skip


def devices(known: Known) -> tuple[DeviceInfo, ...]:
    assert known.inventory is not None, known.problem
    return known.inventory.devices


def sample(known: Known, index: int = 0) -> DeviceSample:
    return known.samples[devices(known)[index].uuid]


def test_a_card_says_what_it_is(see: See) -> None:
    known = see(Scenario())
    first = devices(known)[0]
    assert (first.index, first.uuid, first.vendor, first.model) == (0, card_uuid(0), "nvidia", "NVIDIA H100 80GB HBM3")
    assert (first.memory_mib, first.reserved_mib, first.compute_capability) == (81559, 551, "9.0")
    assert first.pci_bus_id == "0000:10:00.0"


def test_the_driver_and_cuda_are_told(see: See) -> None:
    inventory = see(Scenario(driver="580.65.06")).inventory
    assert inventory is not None
    assert (inventory.driver_version, inventory.runtime_version) == ("580.65.06", "13.0")


def test_a_card_says_what_it_does(see: See) -> None:
    busy = {"used": 40_000, "util": 87, "celsius": 64, "power": 512_300, "sm": 1755, "mem": 2619}
    seen = sample(see(Scenario(figures={1: busy})), 1)
    assert (seen.used_mib, seen.utilization, seen.temperature_celsius, seen.power_watts) == (40_000, 0.87, 64, 512)
    assert seen.clocks_mhz == {"sm": 1755, "memory": 2619}
    assert (seen.ecc_errors, seen.remapped_rows) == ({"corrected": 0, "uncorrected": 0}, 0)


@pytest.mark.parametrize(
    ("bits", "told"),
    [
        (0x1, ()),
        (0x2, ()),
        (0x4, ("power_cap",)),
        (0x48, ("hardware", "hardware_temperature")),
        (0x20, ("temperature",)),
    ],
    ids=["idle", "clocks that somebody set", "power", "heat", "heat, by software"],
)
def test_what_holds_the_clocks_down_is_told(see: See, bits: int, told: tuple[str, ...]) -> None:
    assert sample(see(Scenario(figures={0: {"throttle": bits}}))).throttled_by == told


def test_a_figure_that_is_not_supported_is_not_available_and_nothing_else_suffers(see: See) -> None:
    gone = dict.fromkeys(FIGURES, -1)
    seen = sample(see(Scenario(figures={0: gone})))
    assert seen == DeviceSample(used_mib=0, used_by_tenant_mib={}, processes=(), clocks_mhz={"memory": 2619})


def test_a_card_that_does_not_say_how_large_it_is_is_left_out(see: See) -> None:
    calls = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")
    lost = see(Scenario(answers=[(call, 0, NOT_SUPPORTED) for call in calls]))
    assert [device.index for device in devices(lost)] == [1]


def test_an_old_driver_is_read_by_the_calls_that_it_has(old_nvml: Stub, watch_on: Any, tmp_path: Path) -> None:
    proc = make_proc(tmp_path / "proc", pods={7: POD})
    old_nvml.play(Scenario(driver="470.256.02", figures={0: {"used": 900}}, processes=[Process(pid=7, mib=900)]))
    known = watch_on(proc=proc).known
    first = devices(known)[0]
    assert (first.memory_mib, first.reserved_mib) == (81559, 0)
    assert sample(known).used_mib == 900 + H100["reserved"]
    assert sample(known).used_by_tenant_mib == {POD: 900}
    assert (sample(known).throttled_by, sample(known).temperature_celsius) == ((), 31)


def utilizations(known: Known) -> dict[int, float | None]:
    return {process.pid: process.utilization for process in sample(known).processes or ()}


def test_who_computes_is_told_by_the_highest_of_its_samples_and_who_does_not_is_at_rest(see: See) -> None:
    processes = [Process(pid=10, mib=1), Process(pid=11, mib=1)]
    known = see(Scenario(processes=processes, busy=[(0, 10, 40), (0, 10, 90), (0, 10, 20), (1, 11, 99)]))
    assert utilizations(known) == {10: 0.9, 11: 0.0}


def test_where_nobody_computed_all_are_at_rest(see: See) -> None:
    assert utilizations(see(Scenario(processes=[Process(pid=10, mib=1)]))) == {10: 0.0}


def test_a_driver_that_does_not_tell_who_computes_leaves_it_open(see: See) -> None:
    answers = [("nvmlDeviceGetProcessUtilization", -1, NOT_SUPPORTED)]
    assert utilizations(see(Scenario(processes=[Process(pid=10, mib=1)], answers=answers))) == {10: None}


def test_an_old_driver_tells_of_health_call_by_call(old_nvml: Stub, watch_on: Any) -> None:
    old_nvml.play(Scenario(figures={0: {"ecc_corrected": 7, "rows": 3, "row_failure": 1}}))
    seen = sample(watch_on().known)
    assert (seen.ecc_errors, seen.remapped_rows) == ({"corrected": 7, "uncorrected": 0}, 3)
    assert seen.unhealthy_reason == "RowRemapFailed"


def test_a_new_driver_tells_of_health_in_one_call(see: See, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    for call in ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows"):
        monkeypatch.setattr(pynvml, call, lambda *given: asked.append(given))
    seen = sample(see(Scenario(figures={0: {"ecc_corrected": 7, "rows": 3}})))
    assert (seen.ecc_errors, seen.remapped_rows, asked) == ({"corrected": 7, "uncorrected": 0}, 3, [])


def test_a_card_that_is_lost_within_that_call_is_lost(see: See) -> None:
    known = see(Scenario(answers=[("field", 0, GPU_IS_LOST)]))
    assert [state.unhealthy_reason for state in known.samples.values()] == ["GpuIsLost", ""]


def test_processes_are_told_by_pod_and_the_rest_is_a_stranger_s(see: See, tmp_path: Path) -> None:
    proc = make_proc(tmp_path / "proc", pods={10: POD, 11: POD, 12: OTHER, 13: None})
    processes = [Process(pid=10, mib=4000), Process(pid=11, mib=500, kind="g"), Process(pid=12, mib=70, kind="m")]
    known = see(Scenario(processes=[*processes, Process(pid=13, mib=9000), Process(pid=12, mib=8, card=1)]), proc=proc)
    assert sample(known).used_by_tenant_mib == {POD: 4500, OTHER: 70}
    assert sample(known, 1).used_by_tenant_mib == {OTHER: 8}


def test_a_process_that_is_named_as_of_two_kinds_counts_once(see: See, tmp_path: Path) -> None:
    proc = make_proc(tmp_path / "proc", pods={10: POD})
    twice = [Process(pid=10, mib=4000), Process(pid=10, mib=4000, kind="g")]
    assert sample(see(Scenario(processes=twice), proc=proc)).used_by_tenant_mib == {POD: 4000}


def test_where_one_process_s_memory_is_unknown_no_pod_s_is_told(see: See, tmp_path: Path) -> None:
    proc = make_proc(tmp_path / "proc", pods={10: POD, 12: OTHER})
    known = see(Scenario(processes=[Process(pid=10, mib=-1), Process(pid=12, mib=5)]), proc=proc)
    assert sample(known).used_by_tenant_mib is None


def test_a_driver_that_names_no_processes_is_not_taken_to_have_none(see: See) -> None:
    calls = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
    known = see(Scenario(answers=[(call, 0, NOT_SUPPORTED) for call in calls]))
    assert (sample(known, 0).used_by_tenant_mib, sample(known, 1).used_by_tenant_mib) == (None, {})


def test_without_the_node_s_processes_no_pod_s_use_is_told(see: See, tmp_path: Path) -> None:
    proc = make_proc(tmp_path / "proc", pods={10: POD}, namespace="pid:[4026532817]")
    assert sample(see(Scenario(processes=[Process(pid=10, mib=5)]), proc=proc)).used_by_tenant_mib is None


def test_many_processes_fit(see: See, tmp_path: Path) -> None:
    proc = make_proc(tmp_path / "proc", pods=dict.fromkeys(range(1, 65), POD))
    crowd = [Process(pid=pid, mib=2) for pid in range(1, 65)]
    assert sample(see(Scenario(processes=crowd), proc=proc)).used_by_tenant_mib == {POD: 128}


def test_the_socket_of_a_card_is_the_kernel_s_word(see: See, tmp_path: Path) -> None:
    for bus, node in (("10", "1\n"), ("11", "-1\n")):
        folder = tmp_path / f"sys/bus/pci/devices/0000:{bus}:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(node, encoding="ascii")
    known = see(Scenario(cards=3), sys=tmp_path / "sys")
    assert [device.numa_node for device in devices(known)] == [1, None, None]


def test_nvlinks_are_told_by_index_and_cards_of_one_pcie_switch_too(see: See) -> None:
    known = see(Scenario(cards=3, peers={0: [1, 1], 1: [0, 0]}, figures={1: {"switch": 7}, 2: {"switch": 7}}))
    assert [device.links.nvlink for device in devices(known)] == [[1], [0], []]
    assert [device.links.switch for device in devices(known)] == [[], [2], [1]]


def test_cards_on_one_nvswitch_all_reach_each_other(see: See) -> None:
    known = see(Scenario(cards=8, peers={card: [-1] * 18 for card in range(8)}))
    assert devices(known)[3].links.nvlink == [0, 1, 2, 4, 5, 6, 7]


def test_a_card_in_mig_mode_is_nobody_s_neighbour(see: See) -> None:
    known = see(Scenario(cards=3, peers={card: [-1] for card in range(3)}, slices={1: [9984]}))
    assert [device.links.nvlink for device in devices(known)] == [[2], [0], []]


def test_mig_devices_stand_in_the_place_of_their_card(see: See) -> None:
    known = see(Scenario(cards=3, slices={1: [9984, 9984, 20224]}))
    told = [(device.index, device.mig_profile, device.memory_mib) for device in devices(known)]
    assert told == [(0, "", 81559), (2, "", 81559), (3, "1g.10gb", 9984), (4, "1g.10gb", 9984), (5, "1g.20gb", 20224)]
    assert known.inventory is not None
    assert known.inventory.enforcement.mig


def test_the_mig_devices_of_several_cards_are_numbered_on(see: See) -> None:
    known = see(Scenario(slices={0: [9984, 9984], 1: [9984]}))
    assert [(device.index, device.uuid[-1]) for device in devices(known)] == [(2, "0"), (3, "0"), (4, "1")]


def test_a_mig_device_has_its_own_memory_and_processes_and_its_card_s_temperature(see: See, tmp_path: Path) -> None:
    proc = make_proc(tmp_path / "proc", pods={10: POD})
    busy = [Process(pid=10, mib=300, slice=1)]
    known = see(Scenario(cards=1, slices={0: [9984, 9984]}, processes=busy), proc=proc)
    assert (sample(known, 0).used_mib, sample(known, 1).used_mib) == (0, 300)
    assert sample(known, 1).used_by_tenant_mib == {POD: 300}
    assert (sample(known, 1).temperature_celsius, sample(known, 1).power_watts) == (31, None)
    assert sample(known, 1).utilization is None


def test_a_card_in_mig_mode_without_devices_is_nobody_s(see: See) -> None:
    assert [device.index for device in devices(see(Scenario(slices={0: []})))] == [1]


def test_a_card_that_was_lost_before_we_came_is_left_out(see: See) -> None:
    known = see(Scenario(answers=[("*", 0, GPU_IS_LOST)]))
    assert [device.index for device in devices(known)] == [1]


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"ecc_uncorrected": 3, "rows": -1}, "UncorrectedEcc"),
        ({"rows": 9, "row_failure": 1}, "RowRemapFailed"),
        ({"ecc_uncorrected": 3, "rows": 3}, ""),
    ],
)
def test_the_verdict_comes_from_what_the_card_says(see: See, figures: dict[str, int], reason: str) -> None:
    known = see(Scenario(figures={1: figures}))
    assert (sample(known, 0).unhealthy_reason, sample(known, 1).unhealthy_reason) == ("", reason)
