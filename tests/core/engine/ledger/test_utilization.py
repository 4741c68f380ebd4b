import numpy as np
import pytest

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.node_table import UTILIZATION_STEP
from tests.core.engine.builders import add_node, hold_devices, make_device

T = 120.0


def make_loaded(load: float) -> Ledger:
    """A device with a tenant and a load."""
    ledger = Ledger(smoothing_seconds=T)
    add_node(ledger, "a", gpus=0)
    report(ledger, load, at=0.0)
    hold_devices(ledger, "a", 0, share_milli=100, mode="Fractional", key="tenant")
    return ledger


def report(ledger: Ledger, load: float, *, at: float, uuid_of: str = "a") -> None:
    ledger.set_devices("a", devices=[make_device(uuid_of, 0, utilization=load)], now=at)


def shown(ledger: Ledger) -> float:
    return float(ledger.columns(["a"]).utilization[0, 0])


def test_the_first_report_counts_in_full() -> None:
    assert shown(make_loaded(0.7)) == 0.7


def test_a_spike_of_one_report_steers_little() -> None:
    ledger = make_loaded(0.1)
    report(ledger, 1.0, at=300.0)
    assert shown(ledger) == pytest.approx(0.1)
    report(ledger, 0.1, at=330.0)
    assert shown(ledger) == pytest.approx(0.1 + 0.9 * (1 - np.exp(-30 / T)))


def test_the_load_of_a_pod_that_has_left_does_not_count() -> None:
    ledger = make_loaded(1.0)
    ledger.release("tenant")
    assert shown(ledger) == 1.0
    report(ledger, 0.0, at=1.0)
    assert shown(ledger) == 0.0
    report(ledger, 1.0, at=2.0)
    assert shown(ledger) == 0.0, "a stranger's spike counts as slowly as any"


def test_a_report_right_after_the_pod_has_left_knows_that_it_has() -> None:
    ledger = make_loaded(1.0)
    ledger.release("tenant")
    report(ledger, 0.0, at=1.0)
    assert shown(ledger) == 0.0


def test_a_report_of_idleness_counts_when_the_pod_leaves_after_it() -> None:
    ledger = make_loaded(1.0)
    report(ledger, 0.0, at=1.0)
    assert shown(ledger) == 1.0, "the report has no weight yet"
    ledger.release("tenant")
    assert shown(ledger) == 0.0


def test_a_load_that_lasts_comes_through_without_another_report() -> None:
    ledger = make_loaded(0.0)
    report(ledger, 1.0, at=100.0)
    ledger.settle_utilization(100.0 + T)
    assert shown(ledger) == pytest.approx(1 - np.exp(-1))
    ledger.settle_utilization(100.0 + 20 * T)
    assert shown(ledger) == 1.0


def test_it_does_not_matter_how_often_somebody_looks() -> None:
    often, once = make_loaded(0.0), make_loaded(0.0)
    for ledger in (often, once):
        report(ledger, 0.8, at=10.0)
    for second in range(11, 90):
        often.settle_utilization(float(second))
    for ledger in (often, once):
        report(ledger, 0.2, at=90.0)
    assert shown(often) == pytest.approx(shown(once))


def test_kept_judgements_are_made_anew_only_for_steps_that_matter() -> None:
    ledger = make_loaded(0.0)
    report(ledger, 1.0, at=0.0)
    position = ledger.changes
    ledger.settle_utilization(T * UTILIZATION_STEP / 2)
    assert ledger.touched_since(position) == set()
    ledger.settle_utilization(T * UTILIZATION_STEP * 2)
    assert ledger.touched_since(position) == {0}
    ledger.settle_utilization(T * 30)
    position = ledger.changes
    ledger.settle_utilization(T * 60)
    assert ledger.touched_since(position) == set()


def test_a_clock_that_goes_back_changes_nothing() -> None:
    ledger = make_loaded(0.5)
    report(ledger, 1.0, at=100.0)
    ledger.settle_utilization(50.0)
    report(ledger, 1.0, at=20.0)
    assert shown(ledger) == pytest.approx(0.5)


def test_another_device_in_the_slot_begins_anew() -> None:
    ledger = make_loaded(0.1)
    report(ledger, 0.9, at=1.0, uuid_of="other")
    assert shown(ledger) == 0.9


def test_after_a_silence_the_first_report_counts_in_full() -> None:
    ledger = make_loaded(1.0)
    ledger.distrust("a", note="old")
    assert shown(ledger) == 0.1, "what is promised counts"
    ledger.settle_utilization(1000.0)
    report(ledger, 0.3, at=1000.0)
    assert shown(ledger) == 0.3


def test_a_copy_has_the_same_loads() -> None:
    ledger = make_loaded(0.4)
    report(ledger, 0.8, at=60.0)
    copy = ledger.copy()
    copy.settle_utilization(6000.0)
    assert (shown(ledger), shown(copy)) == (pytest.approx(0.4), 0.8)


# --- the node's CPU --------------------------------------------------------------------------------------------------


def report_cpu(ledger: Ledger, load: float, *, at: float, note: str = "") -> None:
    ledger.set_devices("a", devices=[make_device("a", 0)], cpu_load=load, now=at, note=note)


def cpu_load(ledger: Ledger) -> float:
    return float(ledger.columns(["a"]).cpu_load[0])


def test_the_load_of_a_node_s_cpu_is_smoothed_too() -> None:
    ledger = Ledger(smoothing_seconds=T)
    add_node(ledger, "a", gpus=0)
    report_cpu(ledger, 0.2, at=0.0)
    assert cpu_load(ledger) == pytest.approx(0.2)
    report_cpu(ledger, 1.0, at=100.0)
    assert cpu_load(ledger) == pytest.approx(0.2)
    ledger.settle_utilization(100.0 + T)
    assert cpu_load(ledger) == pytest.approx(0.2 + 0.8 * (1 - np.exp(-1)))


def test_the_first_load_of_a_node_without_devices_counts_in_full() -> None:
    ledger = Ledger(smoothing_seconds=T)
    ledger.set_devices("a", devices=[], cpu_load=0.6, now=50.0)
    assert cpu_load(ledger) == pytest.approx(0.6)


def test_a_stale_report_says_nothing_of_the_cpu() -> None:
    ledger = Ledger(smoothing_seconds=T)
    add_node(ledger, "a", gpus=0)
    report_cpu(ledger, 0.9, at=0.0)
    ledger.distrust("a", note="its report is 20 minutes old")
    assert cpu_load(ledger) == 0.0
    ledger.settle_utilization(T)
    assert cpu_load(ledger) == 0.0
    report_cpu(ledger, 0.4, at=2 * T)
    assert cpu_load(ledger) == pytest.approx(0.4)


def test_a_copy_s_cpu_moves_alone() -> None:
    ledger = Ledger(smoothing_seconds=T)
    add_node(ledger, "a", gpus=0)
    report_cpu(ledger, 0.0, at=0.0)
    report_cpu(ledger, 1.0, at=1.0)
    other = ledger.copy()
    other.settle_utilization(1000 * T)
    assert (cpu_load(ledger), cpu_load(other)) == (0.0, 1.0)


def test_the_load_of_the_cpu_is_no_room() -> None:
    ledger = Ledger(smoothing_seconds=T)
    add_node(ledger, "a", gpus=0)
    report_cpu(ledger, 0.0, at=0.0)
    before = ledger.content()
    report_cpu(ledger, 1.0, at=0.0)
    ledger.settle_utilization(T)
    assert cpu_load(ledger) > 0.5
    assert ledger.content() == before
