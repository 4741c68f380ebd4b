"""Numbers of devices over the whole cluster, as the ConfigMap `dovetail-device-indexes` has them.

An entry is a number and its device, such as `"3": b/cuda:1`. A number belongs to one device for good: numbers start in
the order of node names, devices that come later get the next ones, and no number is used for another device.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dovetail.gpu.request import DEVICE_PATTERN

CONFIGMAP_NAME: Final = "dovetail-device-indexes"
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,6}")


@dataclass(frozen=True, slots=True, order=True)
class NodeDevice:
    """A device by its node and its index there. Sorts by node name, then index."""

    node: str
    index: int

    def __str__(self) -> str:
        return f"{self.node}/cuda:{self.index}"


def read_indexes(data: Mapping[str, str]) -> dict[int, NodeDevice]:
    """The device of each number, without entries that are none; of two numbers of one device the lower."""
    numbers = sorted((int(key) for key in data if _NUMBER.fullmatch(key)), reverse=True)
    lowest = {device: number for number in numbers if (device := _device(data[str(number)])) is not None}
    return {number: device for device, number in reversed(lowest.items())}


def add_indexes(devices: Iterable[NodeDevice], *, data: Mapping[str, str]) -> dict[str, str]:
    """The entries of devices that have none yet. Numbers of entries that cannot be read count as used."""
    known = set(read_indexes(data).values())
    first = 1 + max((int(key) for key in data if _NUMBER.fullmatch(key)), default=-1)
    new = sorted(set(devices) - known)
    return {str(number): str(device) for number, device in enumerate(new, start=first)}


def _device(text: str) -> NodeDevice | None:
    node, slash, index = text.rpartition("/cuda:")
    if not slash or not re.fullmatch(DEVICE_PATTERN, text):
        return None
    return NodeDevice(node, int(index))
