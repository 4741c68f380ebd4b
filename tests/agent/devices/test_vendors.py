"""What AMD's, Intel's and Ascend's libraries say, as the agent reports it: figures, absences, trouble."""

import time
from pathlib import Path
from typing import Any

import pytest

from dovetail_agent.devices.driver import LibraryGone
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.devices.other_vendors.amd import amd_driver
from dovetail_agent.devices.other_vendors.ascend import ascend_driver
from dovetail_agent.devices.other_vendors.intel.driver import intel_driver
from dovetail_agent.devices.poller import Watch
from tests.agent.procfs import make_proc
from tests.agent.vendors import Played, eventually

VENDORS = ["amd", "intel", "ascend"]
every_vendor = pytest.mark.parametrize("vendor", VENDORS)


def devices(watch: Watch) -> tuple[DeviceInfo, ...]:
    assert watch.known.inventory is not None, watch.known.problem
    return watch.known.inventory.devices


def samples(watch: Watch) -> list[DeviceSample]:
    return list(watch.known.samples.values())


@pytest.mark.parametrize(
    ("vendor", "model", "uuid", "place"),
    [
        ("amd", "AMD Instinct MI300X", "aaff74a1-0000-1000-8001-000000000000", "0000:c1:00.0"),
        ("intel", "Intel(R) Data Center GPU Max 1550", "GPU-86000000-0000-0000-0000-000000000001", "0000:41:00.0"),
        ("ascend", "Ascend910B3", "NPU-00001a2b-00000000-00000000-00000000-00000001", "0000:81:00.0"),
    ],
)
def test_a_card_is_told_with_its_name_its_memory_and_its_place(
    played: Played, vendor: str, model: str, uuid: str, place: str
) -> None:
    _, second = devices(played(vendor))
    assert second == DeviceInfo(index=1, uuid=uuid, vendor=vendor, model=model, memory_mib=65536, pci_bus_id=place)


@every_vendor
def test_the_version_of_the_driver_is_told(played: Played, vendor: str) -> None:
    inventory = played(vendor, driver="6.14.14").known.inventory
    assert inventory is not None
    assert inventory.driver_version == "6.14.14"


@every_vendor
def test_the_socket_of_a_card_is_the_kernel_s(played: Played, vendor: str, tmp_path: Path) -> None:
    place = {"amd": "0000:c1:00.0", "intel": "0000:41:00.0", "ascend": "0000:81:00.0"}[vendor]
    (tmp_path / "bus/pci/devices" / place).mkdir(parents=True)
    (tmp_path / "bus/pci/devices" / place / "numa_node").write_text("1\n", encoding="ascii")
    assert [device.numa_node for device in devices(played(vendor))] == [None, 1]


@every_vendor
def test_load_is_told_in_our_units(played: Played, vendor: str) -> None:
    first, _ = samples(played(vendor))
    assert (first.used_mib, first.utilization, first.temperature_celsius, first.power_watts) == (5700, 0.8, 61, 350)
    assert first.clocks_mhz == {"sm": 1700, "memory": 1300}
    assert first.ecc_errors == {"corrected": 3, "uncorrected": 0}


@every_vendor
@pytest.mark.parametrize(
    ("figure", "of_sample"),
    [
        ("util", "utilization"),
        ("celsius", "temperature_celsius"),
        ("watts", "power_watts"),
    ],
)
def test_a_figure_that_is_not_supported_is_not_available_and_nothing_else_suffers(
    played: Played, vendor: str, figure: str, of_sample: str
) -> None:
    first, second = samples(played(vendor, figures={0: {figure: None}}))
    assert getattr(first, of_sample) is None
    assert first.used_mib == 5700
    assert getattr(second, of_sample) is not None


@every_vendor
def test_clocks_and_errors_that_are_not_supported_are_left_out(played: Played, vendor: str) -> None:
    first, _ = samples(played(vendor, figures={0: {"sm": None, "ecc_corrected": None}}))
    assert first.clocks_mhz == {"memory": 1300}
    assert "corrected" not in first.ecc_errors


@every_vendor
def test_processes_are_told_with_their_pods_and_strangers_are_no_pod_s(
    played: Played, vendor: str, tmp_path: Path
) -> None:
    pod = "0f2a9c1e-7d3b-4c55-9e10-6b1f2d3c4a5b"
    proc = make_proc(tmp_path / "host", pods={10: pod, 11: None})
    first, second = samples(played(vendor, proc=proc, processes=[(0, 10, 5000), (0, 11, 700)]))
    assert first.used_by_tenant_mib == {pod: 5000}
    assert [(each.pid, each.used_mib, each.pod_uid) for each in first.processes or ()] == [
        (10, 5000, pod),
        (11, 700, ""),
    ]
    assert second.processes == ()


@pytest.mark.parametrize(
    ("vendor", "figures", "reason"),
    [
        ("amd", {"rows": 2, "row_failure": 1}, "RowRemapFailed"),
        ("amd", {"rows": None, "ecc_uncorrected": 1}, "UncorrectedEcc"),
        ("amd", {"rows": 1, "ecc_uncorrected": 1}, ""),
        ("intel", {"wedged": 1}, "Wedged"),
        ("intel", {"memory_health": 4}, "MemoryMustBeReplaced"),
        ("intel", {"memory_health": 2}, ""),
        ("ascend", {"health": 3}, "CriticalAlarm"),
        ("ascend", {"health": 2}, "MajorAlarm"),
        ("ascend", {"health": 1}, ""),
        ("ascend", {"health": 0xFFFFFFFF}, "GpuIsLost"),
    ],
)
def test_the_verdict_on_a_card(played: Played, vendor: str, figures: dict[str, Any], reason: str) -> None:
    assert [sample.unhealthy_reason for sample in samples(played(vendor, figures={1: figures}))] == ["", reason]


@every_vendor
def test_a_card_that_is_lost_stays_and_is_well_again_when_it_answers(played: Played, vendor: str) -> None:
    watch = played(vendor)
    lost = {"amd": ("*", 1, 12), "intel": ("*", 1, 0x70000001), "ascend": ("*", 1, -8008)}[vendor]
    assert played.stub is not None
    played.stub.play(answers=[lost])
    eventually(watch, lambda known: [each.unhealthy_reason for each in known.samples.values()] == ["", "GpuIsLost"])
    assert [device.index for device in devices(watch)] == [0, 1]
    played.stub.play()
    eventually(watch, lambda known: [each.unhealthy_reason for each in known.samples.values()] == ["", ""])


@every_vendor
def test_a_card_that_never_answered_is_left_out_and_the_other_keeps_its_number(played: Played, vendor: str) -> None:
    lost = {"amd": ("*", 0, 12), "intel": ("*", 0, 0x70000001), "ascend": ("*", 0, -8008)}[vendor]
    assert [device.index for device in devices(played(vendor, answers=[lost]))] == [1]


@pytest.mark.parametrize(
    ("vendor", "call", "sentence"),
    [
        (
            "amd",
            ("amdsmi_init", -1, 34),
            "driver not loaded",
        ),
        ("intel", ("zesInit", -1, 0x78000001), "driver not loaded"),
        ("ascend", ("dcmi_init", -1, -8012), "driver not loaded"),
    ],
)
def test_a_library_without_its_driver_is_a_sentence_until_it_has_one(
    played: Played, vendor: str, call: tuple[str, int, int], sentence: str
) -> None:
    watch = played(vendor, answers=[call])
    assert watch.known.problem == sentence
    assert played.stub is not None
    played.stub.play()
    eventually(watch, lambda known: not known.problem and len(known.samples) == 2)


@pytest.mark.parametrize(
    ("vendor", "call", "named"),
    [
        ("amd", "amdsmi_get_power_info", "amdsmi_get_power_info"),
        ("intel", "zesEngineGetActivity", "zesEngineGetActivity"),
        ("ascend", "dcmi_get_device_temperature", "dcmi_get_device_temperature"),
    ],
)
def test_a_hung_call_keeps_what_was_known_and_is_named(played: Played, vendor: str, call: str, named: str) -> None:
    watch = played(vendor)
    assert played.stub is not None
    played.stub.play(delays_ms={call: 60_000}, figures={0: {"used": 1}})
    end = time.monotonic() + 60
    while watch.waiting_for != named:
        assert time.monotonic() < end
    assert samples(watch)[0].used_mib == 5700


def test_amd_cards_reach_each_other_by_xgmi(played: Played) -> None:
    watch = played("amd", cards=3, figures={0: {"xgmi": 1}, 2: {"xgmi": 1}})
    assert [device.links.nvlink for device in devices(watch)] == [[2], [], [0]]


def test_an_older_amd_card_tells_an_average_and_the_temperature_of_its_edge(played: Played) -> None:
    first, _ = samples(played("amd", figures={0: {"averages": 1, "edge_only": 1}}))
    assert (first.power_watts, first.temperature_celsius) == (350, 61)


@pytest.mark.parametrize(
    ("flags", "reasons"), [(0, ()), (1 | 2, ("power_cap",)), (8 | 4, ("current", "temperature")), (32 | 64, ())]
)
def test_what_holds_intel_clocks_down_is_told_by_name(played: Played, flags: int, reasons: tuple[str, ...]) -> None:
    first, _ = samples(played("intel", figures={0: {"throttle": flags}}))
    assert first.throttled_by == reasons


def test_what_is_no_gpu_is_no_card_of_intel_s(played: Played) -> None:
    watch = played("intel", figures={0: {"type": 5}})
    assert [device.pci_bus_id for device in devices(watch)] == ["0000:41:00.0"]


def test_intel_s_rates_are_differences_and_the_first_look_has_none(played: Played) -> None:
    watch = played("intel", then={"figures": {0: {"util": 20, "watts": 90}}})
    eventually(watch, lambda known: next(iter(known.samples.values())).utilization == 0.2)
    assert samples(watch)[0].power_watts == 90


def test_an_ascend_chip_without_hbm_tells_the_memory_that_it_has(played: Played) -> None:
    watch = played("ascend", model="310P3", figures={0: {"ddr": 1, "total": 21527, "used": 1500}})
    assert (devices(watch)[0].model, devices(watch)[0].memory_mib) == ("Ascend310P3", 21527)
    assert samples(watch)[0].used_mib == 1500


def test_a_library_that_is_missing_is_a_sentence() -> None:
    for driver in (
        amd_driver(proc=None, libraries=["libnothing.so"]),
        intel_driver(proc=None, library="libnothing.so"),
        ascend_driver(proc=None, libraries=["libnothing.so"]),
    ):
        with pytest.raises(LibraryGone, match=r"^libnothing\.so: .*(No such file|is not there)"):
            driver.find()


@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        (ImportError("amdsmi"), "AMD's binding is not installed: pip install 'dovetail-gpu[amd]'"),
        (AttributeError("amdsmi_new"), "AMD's binding does not fit the library here (amdsmi_new)"),
    ],
)
def test_a_binding_that_is_missing_or_does_not_fit_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, sentence: str
) -> None:
    def refuse(name: str) -> None:
        raise raised

    monkeypatch.setattr("dovetail_agent.devices.other_vendors.amd.importlib.import_module", refuse)
    with pytest.raises(LibraryGone) as caught:
        amd_driver(proc=None, libraries=["libc.so.6"]).find()
    assert str(caught.value) == f"import amdsmi: {sentence}"
