"""What is left beside a pod's device memory where that is moved between a card and the host. Values only."""

from typing import Final

# What the driver takes beside a process's memory: contexts on the card, buffers on the host.
CARD_MARGIN_MIB: Final = 512
HOST_MARGIN_MIB: Final = 512
