"""What a scrape reads: each gauge in its unit, each cause and state under its name."""

from dataclasses import replace
from typing import get_args

import pytest

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import Cause
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.availability import Unavailable
from dovetail.engine.model.claims import Claim
from dovetail_extender.metrics import HOLD_STATES, Metrics, Reading
from tests.core.engine.builders import make_device, make_ledger

MIB = 1 << 20


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"dovetail_extender_{name}", labels)


def ledger_of_three() -> Ledger:
    """Three devices of 32 GiB: a share of the first is promised, the others take no work."""
    ledger = make_ledger(a=3)
    causes = ((), (Unavailable(cause="Unhealthy"),), (Unavailable(cause="Cordoned"),))
    devices = [
        replace(make_device("a", at, memory_mib=32768), unavailable=unavailable)
        for at, unavailable in enumerate(causes)
    ]
    ledger.set_devices("a", devices=devices)
    share = AllocatedDevice(index=0, uuid=devices[0].uuid, share_milli=250, memory_mib=8192)
    ledger.commit(Claim(key="p", node="a", mode="Fractional", devices=(share,)))
    return ledger


def test_devices_their_memory_and_what_is_promised_of_it_are_in_the_units_of_their_names() -> None:
    ledger = ledger_of_three()
    metrics, totals = Metrics(ledger=ledger, read=Reading), ledger.totals()
    assert value(metrics, "devices") == totals.devices
    assert value(metrics, "share_milli") == totals.milli == 1000 * totals.devices
    assert value(metrics, "promised_share_milli") == 250
    assert value(metrics, "memory_bytes") == totals.memory_mib * MIB
    assert value(metrics, "promised_memory_bytes") == 8192 * MIB


def test_each_cause_counts_its_devices_and_those_without_any_are_there_too() -> None:
    metrics = Metrics(ledger=ledger_of_three(), read=Reading)
    found = {cause: value(metrics, "closed_devices", cause=cause) for cause in get_args(Cause)}
    assert {cause: count for cause, count in found.items() if count} == {"Unhealthy": 1, "Cordoned": 1}
    assert set(found.values()) == {0, 1}


def test_the_state_is_what_the_reading_says() -> None:
    reading = Reading(
        in_office=True,
        waiting_pods=3,
        holds={state: number for number, state in enumerate(HOLD_STATES, start=5)},
        unsettled_binds=4,
        fragmented_gpus=1.5,
        idle_gpus=2.5,
        ages_seconds={"pods": 7.0, "nodes": 8.0},
    )
    metrics = Metrics(ledger=Ledger(), read=lambda: reading)
    simple = ("lease_held", "waiting_pods", "unsettled_binds", "fragmented_gpus", "idle_gpus")
    assert [value(metrics, name) for name in simple] == [1, 3, 4, 1.5, 2.5]
    assert [value(metrics, "holds", state=state) for state in HOLD_STATES] == [5, 6, 7, 8, 9]
    assert [value(metrics, "cache_age_seconds", kind=kind) for kind in ("pods", "nodes")] == [7, 8]
    assert value(Metrics(ledger=Ledger(), read=Reading), "lease_held") == 0


@pytest.mark.parametrize("state", HOLD_STATES)
def test_no_hold_is_a_number_too(state: str) -> None:
    assert value(Metrics(ledger=Ledger(), read=Reading), "holds", state=state) == 0
