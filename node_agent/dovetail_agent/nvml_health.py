"""What NVIDIA's driver says of a card's health, made into a verdict with its reason. Pure."""

from dataclasses import dataclass
from typing import Final

# XIDs after which a card takes no work until it is reset or mended, by NVIDIA's catalogue of XID errors. All others
# are counted alone: most are an application's own (13, 31, 43, 45), or were contained (94).
BAD_XIDS: Final = {
    48: "DoubleBitEcc",
    62: "MicrocontrollerHalt",
    64: "RowRemapFailure",
    74: "NvLinkError",
    79: "FellOffTheBus",
    95: "UncontainedEcc",
    119: "GspTimeout",
    120: "GspError",
    140: "UnrecoveredEcc",
    143: "InitFailed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What can be told of a card's health; None is what the card or its driver does not give."""

    ecc_uncorrected: int | None = None
    ecc_corrected: int | None = None
    remapped_rows: int | None = None
    remap_failed: bool | None = None


def verdict(signs: Signs) -> str:
    """Why the card may take no work now, or nothing when it may. The worst sign alone is told."""
    if signs.remap_failed:
        return "RowRemapFailed"
    # A card that remaps rows has put the bad one out of use by itself; on an older one it stays until a reset.
    if signs.ecc_uncorrected and signs.remapped_rows is None:
        return "UncorrectedEcc"
    return ""


def fault_of(xid: int) -> str:
    """Why a card that told of this error may take no work until it was mended; nothing for an error of a program."""
    return f"Xid{xid}{BAD_XIDS[xid]}" if xid in BAD_XIDS else ""
