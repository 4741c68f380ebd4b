import pytest

from dovetail_agent.devices.health import Signs, verdict
from dovetail_agent.devices.nvidia.events import fault_of


@pytest.mark.parametrize(
    ("signs", "reason"),
    [
        pytest.param(Signs(), "", id="nothing is known"),
        pytest.param(Signs(remap_failed=True, remapped_rows=9), "RowRemapFailed", id="no spare row is left"),
        pytest.param(Signs(ecc_uncorrected=1), "UncorrectedEcc", id="an error on a card that cannot remap rows"),
        pytest.param(Signs(ecc_uncorrected=1, remapped_rows=1), "", id="an error whose row was put out of use"),
        pytest.param(Signs(ecc_corrected=10**6), "", id="errors that were corrected"),
    ],
)
def test_the_verdict_on_a_card(signs: Signs, reason: str) -> None:
    assert verdict(signs) == reason


def test_an_error_of_the_card_s_own_is_a_fault_with_its_name() -> None:
    assert fault_of(79) == "Xid79FellOffTheBus"


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 94], ids=lambda xid: f"XID {xid}")
def test_an_error_of_a_program_or_one_that_was_contained_is_none(xid: int) -> None:
    assert fault_of(xid) == ""
