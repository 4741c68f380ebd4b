"""Lists a node's NVIDIA devices and MIG devices with their handles, and how they are connected.

Connections are NVLink, NVSwitch and PCIe switches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pynvml

from dovetail.api.gpunode import Links
from dovetail.logs import get_logger
from dovetail_agent.devices.driver import CardLost
from dovetail_agent.devices.library_calls import Caller
from dovetail_agent.devices.model import DeviceInfo
from dovetail_agent.devices.pci import SYS, numa_node

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


log = get_logger(__name__)

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A physical device or a MIG device.

    `card` and `card_uuid` are always the physical device's.
    """

    info: DeviceInfo
    handle: Any
    card: Any
    card_uuid: str


class Memory(NamedTuple):
    """Memory in MiB.

    Drivers without the second version of the call count reserved memory as used.
    """

    total_mib: int
    used_mib: int
    reserved_mib: int = 0


def memory_of(handle: Any, *, ask: Caller) -> Memory | None:
    """Return the memory of a device or MIG device. Raises `CardLost` and `LibraryGone`."""
    if memory := ask(pynvml.nvmlDeviceGetMemoryInfo, args=(handle, pynvml.nvmlMemory_v2)):
        return Memory(memory.total // _MIB, memory.used // _MIB, memory.reserved // _MIB)
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, args=(handle,))
    return Memory(memory.total // _MIB, memory.used // _MIB) if memory else None


class Found(NamedTuple):
    """The found parts, the UUIDs of the physical devices that answered, and those of them in MIG mode."""

    parts: tuple[Part, ...]
    cards: frozenset[str]
    split: tuple[Part, ...] = ()


def find(ask: Caller, *, sys: Path = SYS) -> Found:
    """Return devices by the driver's index, then MIG devices in place of devices in MIG mode.

    Raises `LibraryGone`. A device that cannot be read at all is left out and logged.
    """
    cards: dict[int, Part] = {}
    for index in range(ask(pynvml.nvmlDeviceGetCount) or 0):
        try:
            cards[index] = _card(index, ask=ask, sys=sys)
        except CardLost as error:
            log.warning("a card cannot be read", index=index, problem=str(error))
    split = {index: card for index, card in cards.items() if _in_mig_mode(card, ask=ask)}
    whole = _wired({index: card for index, card in cards.items() if index not in split}, ask=ask)
    slices: list[Part] = []
    silent: set[str] = set()
    for index, card in split.items():
        try:
            slices += _slices(card, first=max(cards) + 1 + len(slices), ask=ask)
        except CardLost as error:
            log.warning("a card's MIG devices cannot be read", index=index, problem=str(error))
            silent.add(card.card_uuid)
    return Found(
        parts=(*whole, *slices),
        cards=frozenset(card.card_uuid for card in cards.values()) - silent,
        split=tuple(card for card in split.values() if card.card_uuid not in silent),
    )


def _card(index: int, *, ask: Caller, sys: Path) -> Part:
    handle = ask(pynvml.nvmlDeviceGetHandleByIndex, args=(index,))
    uuid = handle and ask(pynvml.nvmlDeviceGetUUID, args=(handle,))
    memory = memory_of(handle, ask=ask) if uuid else None
    if not memory:
        raise CardLost("nvmlDeviceGetHandleByIndex", said="the card says neither who it is nor how large")
    capability = ask(pynvml.nvmlDeviceGetCudaComputeCapability, args=(handle,))
    pci = ask(pynvml.nvmlDeviceGetPciInfo, args=(handle,))
    place = bus_id(pci) if pci else ""
    info = DeviceInfo(
        index=index,
        uuid=uuid,
        vendor="nvidia",
        model=ask(pynvml.nvmlDeviceGetName, args=(handle,)) or "unknown",
        memory_mib=memory.total_mib,
        reserved_mib=memory.reserved_mib,
        compute_capability=".".join(map(str, capability)) if capability else "",
        pci_bus_id=place,
        # NVML's own call refers to the device's memory, not its socket.
        numa_node=numa_node(place, sys=sys),
    )
    return Part(info=info, handle=handle, card=handle, card_uuid=uuid)


def _wired(cards: Mapping[int, Part], *, ask: Caller) -> list[Part]:
    handles = {index: card.handle for index, card in cards.items()}
    try:
        links = links_of(handles, bus_ids={index: card.info.pci_bus_id for index, card in cards.items()}, ask=ask)
    except CardLost as error:
        log.warning("the links between the devices cannot be read", problem=str(error))
        return list(cards.values())
    return [replace(card, info=replace(card.info, links=links[index])) for index, card in cards.items()]


def _in_mig_mode(card: Part, *, ask: Caller) -> bool:
    try:
        current, _pending = ask(pynvml.nvmlDeviceGetMigMode, args=(card.handle,)) or (pynvml.NVML_DEVICE_MIG_DISABLE, 0)
    except CardLost:
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _slices(card: Part, *, first: int, ask: Caller) -> list[Part]:
    """The MIG devices of a physical device, numbered from `first`."""
    found: list[Part] = []
    for place in range(ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, args=(card.handle,)) or 0):
        handle = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, args=(card.handle, place))
        uuid = handle and ask(pynvml.nvmlDeviceGetUUID, args=(handle,))
        memory = memory_of(handle, ask=ask) if uuid else None
        if not memory:
            continue  # no MIG device at this place
        name = ask(pynvml.nvmlDeviceGetName, args=(handle,)) or ""
        profile = name.rpartition("MIG ")[2] or "unknown"
        info = replace(
            card.info,
            index=first + len(found),
            uuid=uuid,
            model=f"{card.info.model} MIG {profile}",
            memory_mib=memory.total_mib,
            reserved_mib=memory.reserved_mib,
            mig_profile=profile,
            parent=card.card_uuid,
        )
        found.append(Part(info=info, handle=handle, card=card.handle, card_uuid=card.card_uuid))
    return found
