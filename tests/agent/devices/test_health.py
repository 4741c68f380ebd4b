"""Which signs of a device keep it from work."""

import pytest

from dovetail_agent.devices.health import Signs, verdict


@pytest.mark.parametrize(
    ("signs", "reason"),
    [
        (Signs(), ""),
        (Signs(ecc_corrected=9), ""),
        (Signs(ecc_uncorrected=1), "UncorrectedEcc"),
        # A device that can remap has taken the bad rows out of use, also before it has remapped the first.
        (Signs(ecc_uncorrected=1, remapped_rows=0), ""),
        (Signs(ecc_uncorrected=1, remapped_rows=2, remap_failed=False), ""),
        (Signs(remapped_rows=2, remap_failed=True), "RowRemapFailed"),
        (Signs(ecc_uncorrected=1, remap_failed=True), "RowRemapFailed"),
        (Signs(ecc_uncorrected=0, remap_failed=False), ""),
    ],
)
def test_only_what_still_harms_is_a_reason(signs: Signs, reason: str) -> None:
    assert verdict(signs) == reason


def test_errors_are_counted_as_far_as_the_device_counts_them() -> None:
    assert Signs().ecc_errors == {}
    assert Signs(ecc_uncorrected=0, ecc_corrected=3).ecc_errors == {"corrected": 3, "uncorrected": 0}
