"""What an empty cluster could ever run: a gang beyond it is told so at once, and no other is."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device, make_ledger


def full(**nodes: int) -> Ledger:
    """A ledger all of whose devices are in use."""
    ledger = make_ledger(**nodes)
    for name, gpus in nodes.items():
        hold_devices(ledger, name, *range(gpus))
    return ledger


def shortage(ledger: Ledger, ask: Ask, *, workers: int) -> Shortage:
    found = place(ledger, ask=ask, workers=workers, key="x")
    assert isinstance(found, Shortage)
    return found


def test_workers_that_take_turns_are_as_many_as_there_are_turns() -> None:
    turns = make_ask("4G,0.5", mode="TimeShared")
    assert shortage(full(a=2), turns, workers=8).reason == "Resources"
    beyond = shortage(full(a=2), turns, workers=9)
    assert beyond.reason == "ExceedsCapacity"
    assert "at most 8 of 9 workers with 1 GPU each could ever run together" in beyond.message


def test_workers_of_two_shared_devices_each_may_overlap_in_pairs() -> None:
    pairs = make_ask("2x8G,0.5")
    assert shortage(full(a=3), pairs, workers=3).reason == "Resources"
    assert shortage(full(a=3), pairs, workers=4).reason == "ExceedsCapacity"


def test_memory_that_is_asked_counts_for_shares_of_one_device() -> None:
    large = make_ask("20G,0.1")
    assert shortage(make_ledger(a=2), large, workers=3).reason == "ExceedsCapacity"
    assert shortage(full(a=2), large, workers=2).reason == "Resources"


def test_a_device_has_so_many_tenants_of_a_workload() -> None:
    training = make_ask("0.25", workload="Training")
    assert shortage(make_ledger(a=2), training, workers=3).reason == "ExceedsCapacity"
    assert shortage(full(a=2), training, workers=2).reason == "Resources"


@pytest.mark.parametrize("resource", ["cpu_milli", "memory_mib"])
def test_cpu_and_memory_count_for_all_workers_of_a_node(resource: str) -> None:
    ledger = Ledger()
    add_node(ledger, "a", gpus=4, cpu_milli=8000, memory_mib=8000)
    add_node(ledger, "b", gpus=4, cpu_milli=8000, memory_mib=8000)
    ask = replace(make_ask("1"), **{resource: 5000})
    found = shortage(ledger, ask, workers=3)
    assert found.reason == "ExceedsCapacity"
    assert f"at most 2 of 3 workers with 1 GPU, {ask.cpu_milli}m CPU and {ask.memory_mib} MiB of memory each" in (
        found.message
    )


@pytest.mark.parametrize("resource", ["cpu_milli", "memory_mib"])
def test_a_worker_that_takes_all_of_a_node_could_run_and_a_larger_one_never(resource: str) -> None:
    ledger = Ledger()
    add_node(ledger, "a", gpus=1, cpu_milli=8000, memory_mib=8000)
    hold_devices(ledger, "a", 0)
    assert shortage(ledger, replace(make_ask("1"), **{resource: 8000}), workers=1).reason == "Resources"
    assert shortage(ledger, replace(make_ask("1"), **{resource: 8001}), workers=1).reason == "ExceedsCapacity"


def test_a_worker_of_two_devices_needs_two_however_many_places_one_has() -> None:
    """An A100 has room for four times 16 GiB, and the V100 next to it for one: one worker of two devices."""
    ledger = make_ledger(a=2)
    ledger.set_devices("a", devices=[make_device("a", 0, model="A100"), make_device("a", 1)])
    ask = make_ask("2x16G,0.1")
    assert isinstance(place(ledger, ask=ask, workers=1, key="x"), list)
    beyond = shortage(ledger, ask, workers=2)
    assert (beyond.reason, "at most 1 of 2 workers" in beyond.message) == ("ExceedsCapacity", True)


@given(
    text=st.sampled_from(["1", "2", "0.5", "0.3", "2x4G,0.5", "10G,0.2", "3x4G,0.3"]),
    turns=st.booleans(),
    cpu_milli=st.sampled_from([0, 1000, 3000]),
    workload=st.sampled_from([None, "Training", "Inference"]),
    nodes=st.lists(st.integers(0, 4), min_size=1, max_size=3),
)
def test_what_fits_on_an_empty_cluster_never_exceeds_it_when_it_is_full(
    text: str, turns: bool, cpu_milli: int, workload: str | None, nodes: list[int]
) -> None:
    ask = make_ask(text, cpu_milli=cpu_milli, workload=workload)  # type: ignore[arg-type]
    ask = replace(ask, mode="TimeShared") if turns and ask.mode == "Fractional" else ask
    empty, used = Ledger(), Ledger()
    for at, gpus in enumerate(nodes):
        for ledger in (empty, used):
            add_node(ledger, f"n{at}", gpus=gpus, cpu_milli=6000)
        hold_devices(used, f"n{at}", *range(gpus))
    workers = next(n for n in range(1, 60) if isinstance(place(empty, ask=ask, workers=n, key="x"), Shortage)) - 1
    if workers:
        assert shortage(used, ask, workers=workers).reason != "ExceedsCapacity"
