"""Compute modes through NVIDIA's binding, on our stand-in for the library."""

import pytest

from dovetail_agent.mps.devices import DevicesUnreadable, MpsDevice, NvmlDevices
from tests.agent.nvml_stub import GPU_IS_LOST, Scenario, Stub, card_uuid


def test_free_memory_and_compute_mode_are_read(nvml: Stub) -> None:
    nvml.play(Scenario(cards=2, figures={1: {"used": 1000, "mode": 3}}))
    assert NvmlDevices().list_devices() == {
        card_uuid(0): MpsDevice(free_mib=81008, exclusive=False),
        card_uuid(1): MpsDevice(free_mib=80008, exclusive=True),
    }


def test_a_card_is_made_exclusive_and_default_again(nvml: Stub) -> None:
    nvml.play(Scenario(cards=1))
    cards = NvmlDevices()
    cards.keep(card_uuid(0), exclusive=True)
    assert cards.list_devices()[card_uuid(0)].exclusive
    cards.keep(card_uuid(0), exclusive=False)
    assert not cards.list_devices()[card_uuid(0)].exclusive


def test_a_card_that_is_split_by_mig_is_not_for_mps(nvml: Stub) -> None:
    nvml.play(Scenario(cards=2, slices={0: [9984]}))
    assert set(NvmlDevices().list_devices()) == {card_uuid(1)}


def test_a_driver_that_refuses_is_told_in_its_words(nvml: Stub) -> None:
    nvml.play(Scenario(cards=1, answers=[("nvmlDeviceSetComputeMode", 0, 4)]))
    with pytest.raises(DevicesUnreadable, match="cannot be set: "):
        NvmlDevices().keep(card_uuid(0), exclusive=True)


def test_a_card_that_is_lost_makes_the_look_an_error_and_the_next_one_begins_anew(nvml: Stub) -> None:
    nvml.play(Scenario(cards=1, answers=[("nvmlDeviceGetMemoryInfo", 0, GPU_IS_LOST)]))
    cards = NvmlDevices()
    with pytest.raises(DevicesUnreadable, match="NVML"):
        cards.list_devices()
    nvml.play(Scenario(cards=2))
    assert set(cards.list_devices()) == {card_uuid(0), card_uuid(1)}


def test_an_unknown_card_is_an_error(nvml: Stub) -> None:
    nvml.play(Scenario(cards=1))
    with pytest.raises(DevicesUnreadable, match="no card GPU-x"):
        NvmlDevices().keep("GPU-x", exclusive=True)
