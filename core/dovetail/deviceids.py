"""Ids of devices as kubelet has them: the UUID of a card or MIG device, or of a replica of one. Pure."""

from typing import Final

# What NVIDIA's plugin puts between a card and the number of its replica, where several pods take turns on it.
_REPLICA: Final = "::"


def card_of(device_id: str) -> str:
    """The UUID of the card that an id means: `GPU-…::3` is a replica of `GPU-…`."""
    return device_id.partition(_REPLICA)[0]


def is_replica(device_id: str) -> bool:
    """Whether other pods may have the same card."""
    return _REPLICA in device_id
