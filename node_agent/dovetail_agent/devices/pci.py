"""What the kernel reports about a device's place on the PCI bus."""

from pathlib import Path
from typing import Final

SYS: Final = Path("/sys")


def numa_node(place: str, *, sys: Path = SYS) -> int | None:
    """Return the socket of the device at an address such as `0000:3b:00.0`, or None."""
    try:
        node = int((sys / "bus/pci/devices" / place / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
