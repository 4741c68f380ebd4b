"""Memory margins for device memory that moves between device and host. Values only."""

from typing import Final

# In MiB: what the driver needs in addition to a process's memory, contexts on the device and buffers on the host.
CARD_MARGIN_MIB: Final = 512
HOST_MARGIN_MIB: Final = 512
