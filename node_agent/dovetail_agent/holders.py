"""Who holds which devices in kubelet's own words: names and ids, neither UIDs nor UUIDs. Values only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HeldDevice:
    """One device as kubelet has it: what asked for it, and its id.

    `asked_by` is a device plugin's resource, such as nvidia.com/gpu, or the driver of a resource claim, such as
    gpu.nvidia.com.
    """

    asked_by: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A pod that holds devices; kubelet tells no UID."""

    namespace: str
    name: str
    devices: tuple[HeldDevice, ...]
