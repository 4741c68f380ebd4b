import pytest

from dovetail_agent.nvml_health import Signs, verdict


@pytest.mark.parametrize(
    ("signs", "reason"),
    [
        pytest.param(Signs(), "", id="nothing is known"),
        pytest.param(Signs(lost=True, xids=(79,)), "GpuIsLost", id="a lost card, whatever it said before"),
        pytest.param(Signs(xids=(79,)), "Xid79FellOffTheBus", id="an XID of the card's own"),
        pytest.param(Signs(xids=(31, 13, 43, 45, 94)), "", id="XIDs of applications, and a contained error"),
        pytest.param(Signs(xids=(31, 48)), "Xid48DoubleBitEcc", id="a bad XID among others"),
        pytest.param(Signs(remap_failed=True, remapped_rows=9), "RowRemapFailed", id="no spare row is left"),
        pytest.param(Signs(ecc_uncorrected=1), "UncorrectedEcc", id="an error on a card that cannot remap rows"),
        pytest.param(Signs(ecc_uncorrected=1, remapped_rows=1), "", id="an error whose row was put out of use"),
        pytest.param(Signs(ecc_corrected=10**6), "", id="errors that were corrected"),
    ],
)
def test_the_verdict_on_a_card(signs: Signs, reason: str) -> None:
    assert verdict(signs) == reason
