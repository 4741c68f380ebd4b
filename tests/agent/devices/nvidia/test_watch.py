"""The thread that asks NVML, over time: hung calls, lost cards, errors that cards tell of, drivers that go and come."""

import time
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from dovetail_agent.devices.model import Inventory
from dovetail_agent.devices.poller import Known, Paces, Watch
from tests.agent.builders import NOON
from tests.agent.nvml_stub import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NOT_SUPPORTED,
    UNINITIALIZED,
    Scenario,
    Stub,
    card_uuid,
)

QUICK = Paces(look=0.01, inventory=0.03, ending=0.01)
WatchOn = Callable[..., Watch]


def eventually(watch: Watch, holds: Callable[[Known], Any]) -> Known:
    """What the watch knows as soon as that holds."""
    end = time.monotonic() + 60
    while not holds(watch.known):
        assert time.monotonic() < end, watch.known
        watch.looked.clear()
        watch.looked.wait(1)
    return watch.known


def inventory_of(known: Known) -> Inventory:
    assert known.inventory is not None
    return known.inventory


def reasons(known: Known) -> list[str]:
    samples = known.samples.values()
    return [sample.unhealthy_reason or "".join(fault.reason for fault in sample.faults) for sample in samples]


def test_what_changes_is_seen_at_the_next_look(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(cards=1))
    watch = watch_on(paces=QUICK)
    nvml.play(Scenario(cards=1, figures={0: {"used": 123}}))
    eventually(watch, lambda known: known.samples[card_uuid(0)].used_mib == 123)


def test_a_card_that_is_lost_is_unhealthy_and_stays_with_its_neighbours_well(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario())
    watch = watch_on(paces=QUICK)
    nvml.play(Scenario(answers=[("*", 1, GPU_IS_LOST)]))
    lost = eventually(watch, lambda known: any(reasons(known)))
    assert reasons(lost) == ["", "GpuIsLost"]
    looked_for_again = eventually(watch, lambda known: known.inventory is not lost.inventory)
    assert looked_for_again.inventory is not None
    assert [device.index for device in looked_for_again.inventory.devices] == [0, 1]
    assert reasons(looked_for_again) == ["", "GpuIsLost"]


def test_a_card_that_the_driver_counts_no_more_is_lost_too(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario())
    watch = watch_on(paces=QUICK)
    nvml.play(Scenario(cards=1))
    eventually(watch, lambda known: reasons(known) == ["", "GpuIsLost"])


def test_mig_devices_of_a_card_that_is_lost_stay_and_are_unhealthy(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(slices={1: [9984, 9984]}))
    watch = watch_on(paces=QUICK)
    gone = [(call, 1, GPU_IS_LOST) for call in ("nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetTemperatureV")]
    nvml.play(Scenario(slices={1: [9984, 9984]}, answers=gone))
    lost = eventually(watch, lambda known: reasons(known) == ["", "GpuIsLost", "GpuIsLost"])
    again = eventually(watch, lambda known: known.inventory is not lost.inventory)
    assert reasons(again) == ["", "GpuIsLost", "GpuIsLost"]


def test_a_card_that_was_reset_answers_to_the_library_begun_anew(
    nvml: Stub, watch_on: WatchOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, begin = [], pynvml.nvmlInit
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: begun.append(begin()))
    nvml.play(Scenario())
    watch = watch_on(paces=QUICK)
    nvml.play(Scenario(figures={1: {"stale": 1}}))
    eventually(watch, lambda known: len(begun) == 2 and reasons(known) == ["", ""])


def test_an_xid_of_the_card_s_own_makes_it_unhealthy_at_once(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario())
    watch = watch_on(paces=Paces(look=3600, ending=0.01, burst=0.01))
    nvml.play(Scenario(xids=[(1, 79)]))
    known = eventually(watch, lambda known: any(reasons(known)))
    assert reasons(known) == ["", "Xid79FellOffTheBus"]
    assert known.samples[card_uuid(1)].xids == {79: 1}


def test_the_xids_of_programs_are_counted_and_no_more(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario())
    watch = watch_on(paces=QUICK)
    nvml.play(Scenario(xids=[(0, 31), (0, 31), (0, 13)]))
    known = eventually(watch, lambda known: sum(known.samples[card_uuid(0)].xids.values()) == 3)
    assert known.samples[card_uuid(0)].xids == {31: 2, 13: 1}
    assert reasons(known) == ["", ""]


def test_a_double_bit_error_counts_as_its_xid(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(cards=1, xids=[(0, 0)]))
    eventually(watch_on(paces=QUICK), lambda known: reasons(known) == ["Xid48DoubleBitEcc"])


def test_an_old_set_of_events_that_the_driver_keeps_stops_nothing(nvml: Stub, watch_on: WatchOn) -> None:
    kept = [("nvmlEventSetFree", -1, GPU_IS_LOST)]
    nvml.play(Scenario(cards=1, answers=kept))
    watch = watch_on(paces=QUICK)
    before = watch.known.inventory
    eventually(watch, lambda known: known.inventory is not before and not known.problem)


@pytest.mark.parametrize("call", ["nvmlEventSetCreate", "nvmlEventSetWait_v2", "nvmlDeviceGetSupportedEventTypes"])
def test_a_driver_that_tells_of_no_errors_is_still_read(nvml: Stub, watch_on: WatchOn, call: str) -> None:
    nvml.play(Scenario(answers=[(call, -1, NOT_SUPPORTED)]))
    watch = watch_on(paces=QUICK)
    nvml.play(Scenario(answers=[(call, -1, NOT_SUPPORTED)], figures={0: {"used": 5}}))
    eventually(watch, lambda known: known.samples[card_uuid(0)].used_mib == 5)


def test_a_driver_that_stops_to_tell_of_errors_is_asked_no_more(
    nvml: Stub, watch_on: WatchOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, wait = [], pynvml.nvmlEventSetWait_v2
    monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", lambda *given: asked.append(given) or wait(*given))
    gone = [("nvmlEventSetWait_v2", -1, GPU_IS_LOST)]
    nvml.play(Scenario(cards=1, answers=gone))
    watch = watch_on(paces=Paces(look=0.01, ending=0.01))
    for used in (1, 2, 3):
        nvml.play(Scenario(cards=1, answers=gone, figures={0: {"used": used}}))
        eventually(watch, lambda known, used=used: known.samples[card_uuid(0)].used_mib == used)
    assert len(asked) == 1


def test_a_driver_that_is_not_loaded_yet_is_waited_for(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(answers=[("nvmlInitWithFlags", -1, DRIVER_NOT_LOADED)]))
    watch = watch_on(paces=QUICK)
    assert watch.known.problem == "driver not loaded"
    nvml.play(Scenario())
    known = eventually(watch, lambda known: not known.problem)
    assert reasons(known) == ["", ""]


def test_a_driver_that_was_loaded_anew_is_told_with_its_devices(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(cards=1))
    watch = watch_on(paces=QUICK)
    assert [device.loaded_at for device in inventory_of(watch.known).devices] == [None]
    nvml.play(Scenario(answers=[("*", -1, DRIVER_NOT_LOADED)]))
    eventually(watch, lambda known: known.problem)
    nvml.play(Scenario(cards=1))
    known = eventually(watch, lambda known: not known.problem)
    assert [device.loaded_at for device in inventory_of(known).devices] == [NOON]


def test_a_library_that_was_ended_by_another_is_begun_anew_and_its_driver_is_the_same(
    nvml: Stub, watch_on: WatchOn
) -> None:
    nvml.play(Scenario(cards=1))
    watch = watch_on(paces=QUICK)
    nvml.play(Scenario(cards=1, answers=[("*", -1, UNINITIALIZED)]))
    eventually(watch, lambda known: known.problem)
    nvml.play(Scenario(cards=1))
    known = eventually(watch, lambda known: not known.problem)
    assert [device.loaded_at for device in inventory_of(known).devices] == [None]


def test_a_driver_that_is_taken_away_is_a_problem_until_it_is_back(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario())
    watch = watch_on(paces=QUICK)
    nvml.play(Scenario(answers=[("*", -1, DRIVER_NOT_LOADED)]))
    eventually(watch, lambda known: "driver not loaded" in known.problem)
    nvml.play(Scenario(figures={0: {"used": 5}}))
    eventually(watch, lambda known: not known.problem and known.samples[card_uuid(0)].used_mib == 5)


def test_what_nobody_thought_of_is_a_problem_and_not_the_end(
    nvml: Stub, watch_on: WatchOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.play(Scenario(model="caf\udce9"))
    watch = watch_on(paces=QUICK)
    assert watch.known.problem.startswith("UnicodeDecodeError: ")
    nvml.play(Scenario())
    eventually(watch, lambda known: not known.problem)


def test_mig_devices_that_are_made_while_we_run_are_found(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario())
    watch = watch_on(paces=QUICK)
    nvml.play(Scenario(slices={1: [9984, 9984]}))
    eventually(watch, lambda known: len(known.samples) == 3)


def test_a_hung_call_keeps_nobody_but_its_thread_and_is_named(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(cards=1, figures={0: {"used": 77}}))
    watch = watch_on(paces=QUICK)
    nvml.play(Scenario(cards=1, figures={0: {"used": 78}}, delays_ms={"nvmlDeviceGetPowerUsage": 60_000}))
    end = time.monotonic() + 60
    while watch.waiting_for != "nvmlDeviceGetPowerUsage":
        assert time.monotonic() < end
    assert watch.known.samples[card_uuid(0)].used_mib == 77
    assert watch.known.measured_at is not None


def test_the_end_does_not_wait_for_the_next_look(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario())
    watch = watch_on(paces=Paces(look=3600, ending=0.01))
    watch.stop(seconds=10)
    assert nvml.library.nvmlShutdown() == 1, "the watch has let the library go"
