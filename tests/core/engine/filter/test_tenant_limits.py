from typing import Any

import pytest

from dovetail.api.gpujob import Mode, Workload
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.settings import Limits
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device, make_ledger

FULL = "TenantLimit a: every GPU has its {} tenants"


def shared_card(*workloads: Workload | None, mode: Mode = "Fractional", **facts: Any) -> Ledger:
    ledger = Ledger(limits=Limits(turns_per_device=9))
    add_node(ledger, "a", gpus=1)
    ledger.set_devices("a", devices=[make_device("a", 0, **facts)])
    for number, workload in enumerate(workloads):
        hold_devices(ledger, "a", 0, key=str(number), share_milli=100, memory_mib=100, mode=mode, workload=workload)
    return ledger


def answer(ledger: Ledger, workload: Workload | None, *, mode: Mode = "Fractional") -> str:
    found = check(ledger, ask=make_ask("0.1", mode=mode, workload=workload), node="a", key="pod")
    return "fits" if isinstance(found, Fit) else f"{found.kind} {found.message}"


@pytest.mark.parametrize(
    ("there", "comes", "says"),
    [
        ([], "Training", "fits"),
        (["Training"], "Training", f"{FULL.format('Training')}, at most 1 on one (1 GPU)"),
        (["Training"], "Inference", "fits"),
        (["Inference"] * 2, "Inference", "fits"),
        (["Inference"] * 3, "Inference", f"{FULL.format('Inference')}, at most 3 on one (1 GPU)"),
        (["Inference"] * 3, "Training", "fits"),
        ([None] * 6, "Training", "fits"),
        (["Training", "Inference"], None, "fits"),
    ],
)  # fmt: skip
def test_a_limit_binds_those_that_say_their_workload(there: Any, comes: Any, says: str) -> None:
    assert answer(shared_card(*there), comes) == says


def test_a_device_may_have_limits_of_its_own() -> None:
    ledger = shared_card("Training", "Training", training_limit=2, inference_limit=0)
    assert answer(ledger, "Training").startswith("TenantLimit a: every GPU has its Training tenants, at most 2 on one")
    assert answer(ledger, "Inference").startswith("TenantLimit")
    assert answer(shared_card("Training", training_limit=2), "Training") == "fits"


def test_turns_and_workloads_are_limited_side_by_side() -> None:
    ledger = shared_card("Training", mode="TimeShared")
    assert answer(ledger, "Training", mode="TimeShared") == (
        "TenantLimit a: all turns on the GPUs are taken, or every GPU has its Training tenants, "
        "at most 1 on one (1 GPU)"
    )
    assert answer(ledger, "Inference", mode="TimeShared") == "fits"


def test_a_whole_device_has_no_other_tenants_to_limit() -> None:
    ledger = shared_card(training_limit=0)
    assert isinstance(check(ledger, ask=make_ask("1", workload="Training"), node="a", key="pod"), Fit)


def test_a_hold_counts_as_a_tenant_and_its_end_makes_room() -> None:
    ledger = shared_card()
    hold_devices(ledger, "a", 0, share_milli=100, memory_mib=1, mode="Fractional", workload="Training", hold_until=5.0)
    assert answer(ledger, "Training").startswith("Held")
    ledger.expire_holds(6.0)
    assert answer(ledger, "Training") == "fits"


def test_a_job_that_the_limits_keep_waiting_says_so() -> None:
    ask = make_ask("0.1", workload="Training")
    assert place(shared_card("Training"), ask=ask, workers=1, key="job") == Shortage(
        reason="Resources", message="Need 1 GPU, only 0 available: every GPU has its Training tenants"
    )
    found = place(make_ledger(a=1), ask=ask, workers=2, key="job")
    assert isinstance(found, Shortage)
    assert found.reason == "ExceedsCapacity", "no end of another makes room for both"


def test_other_limits_count_for_all_devices_that_have_none_of_their_own() -> None:
    ledger = shared_card("Training")
    ledger.set_devices("b", devices=[make_device("b", 0, training_limit=1)])
    before = ledger.changes
    ledger.set_tenant_limits(training_per_device=2, inference_per_device=0)
    assert answer(ledger, "Training") == "fits"
    assert answer(ledger, "Inference").startswith("TenantLimit")
    assert len(list(ledger.touched_since(before))) == 2
    assert ledger.columns(["b"]).training_limit[0, 0] == 1
    assert ledger.limits == Limits(turns_per_device=9, training_per_device=2, inference_per_device=0)
    # A later report, and a copy, have the new limits too.
    ledger.set_devices("a", devices=[make_device("a", 0)])
    assert answer(ledger.copy(), "Training") == "fits"
