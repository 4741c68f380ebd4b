"""Margins for device memory that moves between device and host, and percent of a device's memory. Pure."""

from typing import Any, Final, TypeVar

# A number, or an array of them.
Mib = TypeVar("Mib", bound=Any)

# In MiB: what the driver needs in addition to a process's memory, contexts on the device and buffers on the host.
CARD_MARGIN_MIB: Final = 512
HOST_MARGIN_MIB: Final = 512


def percent_of(total: Mib, *, percent: int) -> Mib:
    """MiB of `percent` of a device's memory, rounded down; for an array of devices an array of the same shape."""
    part: Mib = total * percent // 100
    return part
