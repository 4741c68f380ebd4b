"""Which errors of an NVIDIA card outlast their moment. Pure."""

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


def fault_of(xid: int) -> str:
    """Why a card that told of this error may take no work until it was mended; nothing for an error of a program."""
    return f"Xid{xid}{BAD_XIDS[xid]}" if xid in BAD_XIDS else ""
