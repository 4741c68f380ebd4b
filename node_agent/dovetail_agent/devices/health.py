"""What a driver says of a card's health at this moment, made into a verdict with its reason. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What can be told of a card's health; None is what the card or its driver does not give.

    `remapped_rows` are places of memory that were put out of use, whatever the vendor calls them.
    """

    ecc_uncorrected: int | None = None
    ecc_corrected: int | None = None
    remapped_rows: int | None = None
    remap_failed: bool | None = None

    @property
    def ecc_errors(self) -> dict[str, int]:
        """The memory errors by kind, as far as they are told."""
        told = {"corrected": self.ecc_corrected, "uncorrected": self.ecc_uncorrected}
        return {kind: count for kind, count in told.items() if count is not None}


def verdict(signs: Signs) -> str:
    """Why the card may take no work now, or nothing when it may. The worst sign alone is told."""
    if signs.remap_failed:
        return "RowRemapFailed"
    # A card that remaps rows has put the bad one out of use by itself; on an older one it stays until a reset.
    if signs.ecc_uncorrected and signs.remapped_rows is None:
        return "UncorrectedEcc"
    return ""
