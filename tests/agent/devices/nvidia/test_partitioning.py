"""Partitioning a GPU in MIG mode, by the calls of NVIDIA's binding on our C library."""

from collections.abc import Callable, Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from dovetail.gpu.geometry import Slot, arrange
from dovetail_agent.devices.model import Inventory
from dovetail_agent.devices.poller import Watch
from tests.agent.nvml_stub import FOUR, INSUFFICIENT_RESOURCES, ONE, SEVEN, THREE, Process, Scenario, Stub, card_uuid

IN_ONES = [(ONE, start) for start in range(7)]
SEVEN_ONES = ("1g.10gb",) * 7
PROFILES = ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
WatchOn = Callable[..., Watch]


def inventory(watch: Watch) -> Inventory:
    assert watch.known.inventory is not None, watch.known.problem
    return watch.known.inventory


def instances(watch: Watch, *, card: int = 1) -> list[str]:
    return sorted(device.mig_profile for device in inventory(watch).devices if device.parent == card_uuid(card))


def reshape(watch: Watch, *profiles: str, card: int = 1) -> str:
    return watch.reshape(card_uuid(card), profiles=profiles).result(timeout=30)


def test_the_driver_says_what_a_gpu_in_mig_mode_can_have(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(instances={1: IN_ONES}))
    (card,) = inventory(watch_on()).split
    assert (card.uuid, card.index) == (card_uuid(1), 1)
    slots = {slot.profile: slot for slot in card.slots}
    assert sorted(slots) == sorted(PROFILES)
    assert slots["3g.40gb"] == Slot(profile="3g.40gb", size=4, starts=(0, 4), count=2)
    assert (slots["1g.10gb+me"].count, len(slots["1g.10gb+me"].starts)) == (1, 7)


def test_a_gpu_gets_other_instances(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(instances={1: IN_ONES}))
    watch = watch_on()
    assert instances(watch) == sorted(SEVEN_ONES)
    assert reshape(watch, "3g.40gb", "2g.20gb", "1g.10gb") == ""
    assert instances(watch) == ["1g.10gb", "2g.20gb", "3g.40gb"]
    sizes = {device.mig_profile: device.memory_mib for device in inventory(watch).devices if device.parent}
    assert sizes == {"1g.10gb": 9984, "2g.20gb": 20096, "3g.40gb": 40448}


def test_a_gpu_without_instances_gets_some(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(figures={1: {"mig": 1}}))
    watch = watch_on()
    assert instances(watch) == []
    assert reshape(watch, "4g.40gb", "3g.40gb") == ""
    assert instances(watch) == ["3g.40gb", "4g.40gb"]


def test_a_gpu_that_has_them_already_is_left_as_it_is(nvml: Stub, watch_on: WatchOn) -> None:
    refused = [("nvmlGpuInstanceDestroy", 1, INSUFFICIENT_RESOURCES)]
    nvml.play(Scenario(instances={1: [(THREE, 0), (FOUR, 0)][:1]}, answers=refused))
    watch = watch_on()
    assert reshape(watch, "3g.40gb") == ""
    assert instances(watch) == ["3g.40gb"]


@pytest.mark.parametrize("where", [-1, 3], ids=["the GPU", "an instance"])
def test_a_gpu_with_a_process_is_left_alone(nvml: Stub, watch_on: WatchOn, where: int) -> None:
    nvml.play(Scenario(instances={1: IN_ONES}, processes=[Process(pid=4711, mib=100, card=1, slice=where)]))
    watch = watch_on()
    assert "process 4711 uses" in reshape(watch, "3g.40gb")
    assert instances(watch) == sorted(SEVEN_ONES)


def test_a_process_that_the_driver_alone_knows_of_keeps_its_instance(nvml: Stub, watch_on: WatchOn) -> None:
    hidden = [(f"nvmlDeviceGetComputeRunningProcesses_v{version}", 1, 3) for version in (2, 3)]
    tenant = Process(pid=4711, mib=100, card=1, slice=6)
    nvml.play(Scenario(instances={1: IN_ONES}, processes=[tenant], answers=hidden))
    watch = watch_on()
    assert reshape(watch, "3g.40gb") == "nvmlComputeInstanceDestroy: In use by another client"
    assert instances(watch) == sorted(SEVEN_ONES)


@pytest.mark.parametrize("call", ["nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance"])
def test_an_instance_that_cannot_be_created_is_said(nvml: Stub, watch_on: WatchOn, call: str) -> None:
    nvml.play(Scenario(instances={1: [(SEVEN, 0)]}, answers=[(call, 1, INSUFFICIENT_RESOURCES)]))
    watch = watch_on()
    assert reshape(watch, *SEVEN_ONES) == f"{call}: Insufficient Resources"


@pytest.mark.parametrize(
    "call",
    [
        "nvmlGpuInstanceDestroy", "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance",
        "nvmlComputeInstanceDestroy",
    ],
)  # fmt: skip
def test_after_a_refusal_the_gpu_gets_its_instances_back(nvml: Stub, watch_on: WatchOn, call: str) -> None:
    nvml.play(Scenario(instances={1: [(THREE, 0), (THREE, 4)]}, first_answers=[(call, 1, INSUFFICIENT_RESOURCES, 1)]))
    watch = watch_on()
    assert reshape(watch, *SEVEN_ONES) == f"{call}: Insufficient Resources"
    assert instances(watch) == ["3g.40gb", "3g.40gb"]


def test_profiles_that_do_not_fit_together_change_nothing(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(instances={1: IN_ONES}))
    watch = watch_on()
    assert "4g.40gb + 7g.80gb do not fit on the GPU together" in reshape(watch, "4g.40gb", "7g.80gb")
    assert instances(watch) == sorted(SEVEN_ONES)


def test_a_gpu_that_is_not_in_mig_mode_is_not_partitioned(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(instances={1: IN_ONES}))
    watch = watch_on()
    assert "is not in MIG mode" in reshape(watch, "3g.40gb", card=0)
    assert [device.index for device in inventory(watch).devices if not device.parent] == [0]


def test_a_driver_that_names_no_profiles_offers_none(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(instances={1: IN_ONES}, answers=[("nvmlDeviceGetGpuInstanceProfileInfoV", -1, 3)]))
    assert [card.slots for card in inventory(watch_on()).split] == [()]


def test_the_other_gpus_keep_their_instances(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(cards=3, instances={1: IN_ONES, 2: [(THREE, 0), (THREE, 4)]}))
    watch = watch_on()
    before = {device.uuid for device in inventory(watch).devices if device.parent == card_uuid(2)}
    assert reshape(watch, "7g.80gb") == ""
    assert {device.uuid for device in inventory(watch).devices if device.parent == card_uuid(2)} == before


layouts = st.lists(st.sampled_from(PROFILES), min_size=1, max_size=7)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(first=layouts, second=layouts)
def test_a_partition_is_made_whenever_it_fits_and_else_nothing_changes(
    nvml: Stub, watch_on: WatchOn, first: Sequence[str], second: Sequence[str]
) -> None:
    nvml.play(Scenario(instances={1: []}))
    watch = watch_on()
    has: list[str] = []
    (card,) = inventory(watch).split
    for wanted in (first, second):
        fits = arrange(tuple(sorted(wanted)), slots=card.slots) is not None
        assert (reshape(watch, *wanted) == "") == fits
        has = sorted(wanted) if fits else has
        assert instances(watch) == has
    watch.stop()
