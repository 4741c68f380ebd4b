"""Judges a device's health from the driver's current figures, with a reason. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Signs of a device's health; None where the device or its driver does not report one.

    `remapped_rows` counts parts of memory that were taken out of use, whatever the vendor calls them.
    """

    ecc_uncorrected: int | None = None
    ecc_corrected: int | None = None
    remapped_rows: int | None = None
    remap_failed: bool | None = None

    @property
    def ecc_errors(self) -> dict[str, int]:
        """Memory errors by kind (corrected, uncorrected), as far as reported."""
        counts = {"corrected": self.ecc_corrected, "uncorrected": self.ecc_uncorrected}
        return {kind: count for kind, count in counts.items() if count is not None}


def verdict(signs: Signs) -> str:
    """Return why the device may take no work now; empty if it may. Only the worst sign counts."""
    if signs.remap_failed:
        return "RowRemapFailed"
    # A device that remaps rows has taken the bad one out of use. On an older device it stays until a reset.
    if signs.ecc_uncorrected and signs.remapped_rows is None:
        return "UncorrectedEcc"
    return ""
