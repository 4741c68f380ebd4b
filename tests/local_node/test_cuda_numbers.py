"""The numbers of this machine's devices, by NVIDIA's binding on our stand-in for its library."""

import threading
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from dovetail_local_node import cuda_numbers
from tests.agent.conftest import nvml
from tests.agent.nvml_stub import DRIVER_NOT_LOADED, GPU_IS_LOST, NOT_SUPPORTED, Scenario, Stub, card_uuid

__all__ = ["nvml"]


async def test_each_device_has_the_index_that_nvml_gives_it(nvml: Stub) -> None:
    nvml.play(Scenario(cards=4))
    assert await cuda_numbers.read() == {card_uuid(index): index for index in range(4)}


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(Scenario(cards=0), id="no device"),
        pytest.param(Scenario(answers=[("nvmlInitWithFlags", -1, DRIVER_NOT_LOADED)]), id="the driver is not loaded"),
        pytest.param(Scenario(answers=[("nvmlDeviceGetUUID", 0, GPU_IS_LOST)]), id="a card is lost"),
        pytest.param(Scenario(slices={0: [9984]}), id="a card is in MIG mode"),
    ],
)
async def test_where_a_number_could_name_another_device_there_are_none(nvml: Stub, scenario: Scenario) -> None:
    nvml.play(scenario)
    assert await cuda_numbers.read() == {}


async def test_a_card_from_before_mig_has_a_number(nvml: Stub) -> None:
    nvml.play(Scenario(cards=1, answers=[("nvmlDeviceGetMigMode", -1, NOT_SUPPORTED)]))
    assert await cuda_numbers.read() == {card_uuid(0): 0}


async def test_a_library_that_does_not_count_by_pci_address_gives_none(
    nvml: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.play(Scenario(cards=2))
    places = iter([(0, 0x3B, 0), (0, 0x10, 0)])
    monkeypatch.setattr(cuda_numbers, "_place", lambda _pci: next(places))
    assert await cuda_numbers.read() == {}


async def test_the_library_is_closed_after_each_question(nvml: Stub) -> None:
    nvml.play(Scenario(cards=2, answers=[("nvmlDeviceGetPciInfo_v3", 1, GPU_IS_LOST)]))
    await cuda_numbers.read()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


async def test_a_driver_that_hangs_stops_no_job() -> None:
    answered = threading.Event()

    def hangs() -> dict[str, int]:
        answered.wait()
        return {"GPU-a": 0}

    assert await cuda_numbers.read(ask=hangs, seconds=0.01) == {}
    answered.set()


async def test_devices_of_several_pci_domains_are_in_the_order_of_their_addresses() -> None:
    def pci(domain: int, bus: int, device: int = 0) -> Any:
        return SimpleNamespace(domain=domain, bus=bus, device=device)

    in_order = [pci(0, 0x10), pci(0, 0x3B), pci(0, 0x3B, 1), pci(1, 0x05), pci(0x10000, 0x01)]
    places = [cuda_numbers._place(each) for each in in_order]
    assert places == sorted(set(places))
