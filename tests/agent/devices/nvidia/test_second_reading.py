"""Whatever NVIDIA's library answers, read a second time from what it was made to answer.

Figures come in the library's units, any of them may be unavailable on any device, and devices are lost between the
inventory and the sample: what is wrong with one device changes nothing of the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail_agent.devices.model import DeviceSample
from dovetail_agent.devices.nvidia.driver import NvmlDriver
from tests.agent.builders import NOON
from tests.agent.conftest import use
from tests.agent.nvml_stub import GPU_IS_LOST, H100, Process, Scenario, Stub, card_uuid
from tests.agent.procfs import make_proc

POD, OTHER = "0f2a9c1e-7d3b-4c55-9e10-6b1f2d3c4a5b", "11111111-2222-4333-8444-555555555555"
PODS: Final = {10: POD, 11: POD, 12: OTHER, 13: None}
# What each bit of the clocks' reasons is called; idleness and clocks that somebody set are none.
BITS: Final = {
    0x4: "power_cap",
    0x8: "hardware",
    0x20: "temperature",
    0x40: "hardware_temperature",
    0x80: "power_brake",
}


@dataclass(frozen=True)
class Card:
    """What the library answers of a device: figures, the memory of its processes, and samples of their load."""

    figures: Mapping[str, int]
    used: Mapping[int, int]
    busy: Sequence[tuple[int, int]]


def maybe(values: st.SearchStrategy[int]) -> st.SearchStrategy[int]:
    return st.just(-1) | values


FIGURES: Final = st.fixed_dictionaries({
    "used": st.integers(0, 81_008),
    "util": maybe(st.integers(0, 100)),
    "celsius": maybe(st.integers(0, 110)),
    "power": maybe(st.integers(0, 700_000)),
    "sm": maybe(st.integers(210, 1980)),
    "mem": maybe(st.integers(405, 2619)),
    "throttle": maybe(st.integers(0, 0xFF)),
    "mode": maybe(st.sampled_from([0, 2, 3])),
    "ecc_corrected": maybe(st.integers(0, 5)),
    "ecc_uncorrected": maybe(st.integers(0, 2)),
    "rows": maybe(st.integers(0, 512)),
})  # fmt: skip
PIDS: Final = st.sampled_from(sorted(PODS))
CARDS: Final = st.builds(
    Card, FIGURES, st.dictionaries(PIDS, maybe(st.integers(0, 40_000))), st.lists(st.tuples(PIDS, st.integers(0, 100)))
)


@pytest.fixture(scope="module")
def proc(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_proc(tmp_path_factory.mktemp("second") / "proc", pods=PODS)


@settings(max_examples=80, deadline=None)
@given(cards=st.lists(CARDS, min_size=1, max_size=3), lost=st.sets(st.integers(0, 2)))
def test_each_device_has_the_figures_that_the_library_has_of_it(proc: Any, cards: list[Card], lost: set[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        library = use(Stub(), patch)
        driver = NvmlDriver(clock=lambda: NOON, proc=proc, sys=proc)
        library.play(scenario(cards))
        inventory = driver.find()
        library.play(scenario(cards, answers=[("*", at, GPU_IS_LOST) for at in sorted(lost)]))
        samples = driver.read()
        library.play(scenario(cards))
        driver.close()
    assert [(each.uuid, each.memory_mib, each.reserved_mib) for each in inventory.devices] == [
        (card_uuid(at), H100["total"], H100["reserved"]) for at in range(len(cards))
    ]
    for at, card in enumerate(cards):
        found = samples[card_uuid(at)]
        if at in lost:
            assert (found.unhealthy_reason, found.used_mib, found.processes) == ("GpuIsLost", None, None)
        else:
            check(found, card=card)


def scenario(cards: Sequence[Card], *, answers: Sequence[tuple[str, int, int]] = ()) -> Scenario:
    return Scenario(
        cards=len(cards),
        figures={at: card.figures for at, card in enumerate(cards)},
        processes=[
            Process(pid=pid, mib=mib, card=at)
            for at, card in enumerate(cards)
            for pid, mib in sorted(card.used.items())
        ],
        busy=[(at, pid, percent) for at, card in enumerate(cards) for pid, percent in card.busy],
        answers=answers,
    )


def check(found: DeviceSample, *, card: Card) -> None:
    said = {name: None if value == -1 else value for name, value in card.figures.items()}
    util, power, bits, mode, rows = (said[name] for name in ("util", "power", "throttle", "mode", "rows"))
    assert found.used_mib == said["used"]
    assert found.utilization == (None if util is None else float(Fraction(util, 100)))
    assert found.temperature_celsius == said["celsius"]
    assert found.power_watts == (None if power is None else round(Fraction(power, 1000)))
    clocks = {"sm": said["sm"], "memory": said["mem"]}
    assert found.clocks_mhz == {name: mhz for name, mhz in clocks.items() if mhz is not None}
    reasons = None if bits is None else {name for bit, name in BITS.items() if bits & bit}
    assert (None if found.throttled_by is None else set(found.throttled_by)) == reasons
    assert found.shareable == (None if mode is None else mode == 0)
    errors = {"corrected": said["ecc_corrected"], "uncorrected": said["ecc_uncorrected"]}
    assert found.ecc_errors == {kind: count for kind, count in errors.items() if count is not None}
    assert found.remapped_rows == rows
    # What cannot put bad rows out of use stays bad after an uncorrected error.
    assert found.unhealthy_reason == ("UncorrectedEcc" if rows is None and errors["uncorrected"] else "")
    check_processes(found, card=card)


def check_processes(found: DeviceSample, *, card: Card) -> None:
    loads: dict[int, int] = dict.fromkeys(card.used, 0)
    for pid, percent in card.busy:
        if pid in loads:
            loads[pid] = max(loads[pid], percent)
    assert found.processes is not None
    assert [(each.pid, each.used_mib, each.pod_uid, each.utilization) for each in found.processes] == [
        (pid, None if mib == -1 else mib, PODS[pid] or "", float(Fraction(loads[pid], 100)))
        for pid, mib in sorted(card.used.items())
    ]
    by_pod: dict[str, int] = {}
    for pid, mib in card.used.items():
        if pod := PODS[pid]:
            by_pod[pod] = by_pod.get(pod, 0) + mib
    assert found.used_by_tenant_mib == (None if -1 in card.used.values() else by_pod)
