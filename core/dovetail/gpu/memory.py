"""Memory margins for device memory that moves between device and host. Values only."""

from typing import Final

# What the driver needs in addition to a process's memory: contexts on the device, buffers on the host.
CARD_MARGIN_MIB: Final = 512
HOST_MARGIN_MIB: Final = 512
