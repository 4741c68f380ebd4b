"""Reads how NVIDIA devices are connected: NVLink, NVSwitch and PCIe switches."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pynvml

from dovetail.api.gpunode import Links
from dovetail_agent.devices.library_calls import Caller

_MOST_LINKS: Final = 18  # of one device; Hopper and Blackwell have that many
# Two chips of one board, or a single PCIe switch between them.
_NEAR: Final = (pynvml.NVML_TOPOLOGY_INTERNAL, pynvml.NVML_TOPOLOGY_SINGLE)


def links_of(handles: Mapping[int, Any], *, bus_ids: Mapping[int, str], ask: Caller) -> dict[int, Links]:
    """Return the links of each device, by index."""
    peers = {index: _peers(handle, bus_ids=bus_ids, ask=ask) for index, handle in handles.items()}
    fabric = [index for index, (_, switched) in peers.items() if switched]
    return {
        index: Links(
            nvlink=sorted((direct | (set(fabric) if switched else set())) - {index}),
            switch=_near(index, handles=handles, ask=ask),
        )
        for index, (direct, switched) in peers.items()
    }


def _peers(handle: Any, *, bus_ids: Mapping[int, str], ask: Caller) -> tuple[set[int], bool]:
    """Return the devices at the ends of a device's NVLinks, and whether one end is a switch."""
    by_bus_id = {bus_id: index for index, bus_id in bus_ids.items()}
    direct: set[int] = set()
    for link in range(_MOST_LINKS):
        if ask(pynvml.nvmlDeviceGetNvLinkState, args=(handle, link)) != pynvml.NVML_FEATURE_ENABLED:
            continue
        if (
            ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, args=(handle, link))
            == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
        ):
            return direct, True  # all other links of the device lead to a switch too
        remote = ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, args=(handle, link))
        if remote is not None and (index := by_bus_id.get(bus_id(remote))) is not None:
            direct.add(index)
    return direct, False


def _near(index: int, *, handles: Mapping[int, Any], ask: Caller) -> list[int]:
    levels: Sequence[tuple[int, Any]] = [
        (other, ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, args=(handles[index], handles[other])))
        for other in handles
        if other != index
    ]
    return sorted(other for other, level in levels if level in _NEAR)


def bus_id(pci: Any) -> str:
    """Format a PCI address as the kernel does: `0000:3b:00.0`."""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
