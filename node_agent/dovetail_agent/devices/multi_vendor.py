"""Combines the providers of several vendors on one node.

The failure of one vendor's driver stops no other.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from dovetail.api.builtin import Node
from dovetail.api.gpunode import SILENT, Assignment, Enforcement, GPUNodeStatus, Links
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.logs import get_logger
from dovetail_agent.devices.model import (
    DeviceInfo,
    DeviceSample,
    Inventory,
    InventoryUnreadable,
    Provider,
    Sample,
    SplitCard,
)

log = get_logger(__name__)

# The devices are present, but their figures cannot be read.


class ManyProvider:
    """Several providers of one node. Device indexes continue from one provider to the next."""

    def __init__(self, parts: Sequence[Provider]) -> None:
        self.name = "+".join(part.name for part in parts)
        self._parts = tuple(parts)
        self._known: dict[str, Inventory] = {}

    def serves(self, node: Node) -> bool:
        """Whether one of them serves the node: all belong to the same node."""
        return any(part.serves(node) for part in self._parts)

    def listen(self, news: Callable[[], None]) -> None:
        """Register `news` with each of them."""
        for part in self._parts:
            part.listen(news)

    def inventory(self, node: Node, *, previous: GPUNodeStatus | None = None) -> Inventory:
        """Return all devices; for an unreadable vendor, those last known.

        Raises `InventoryUnreadable` if no vendor can be read.
        """
        problems = [problem for part in self._parts if (problem := self._learn(part, node=node, previous=previous))]
        if len(problems) == len(self._parts):
            raise InventoryUnreadable(node.metadata.name, problem="; ".join(problems))
        found = [(part.name, self._known[part.name]) for part in self._parts if part.name in self._known]
        devices: list[DeviceInfo] = []
        split: list[SplitCard] = []
        for _, inventory in found:
            first = _next_index(devices)
            devices += [_moved(device, by=first) for device in inventory.devices]
            split += [replace(card, index=card.index + first) for card in inventory.split]
        return Inventory(
            devices=tuple(devices),
            driver_version=_joined([(name, inventory.driver_version) for name, inventory in found]),
            runtime_version=_joined([(name, inventory.runtime_version) for name, inventory in found]),
            enforcement=Enforcement(mig=any(inventory.enforcement.mig for _, inventory in found)),
            split=tuple(split),
        )

    async def reshape(self, node: Node, *, card: str, profiles: Sequence[str]) -> str:
        """Have the provider of the GPU partition it; why that failed, empty if it did not."""
        for part in self._parts:
            known = self._known.get(part.name)
            if known is not None and any(each.uuid == card for each in known.split):
                return await part.reshape(node, card=card, profiles=profiles)
        return f"no vendor's library has a GPU {card} in MIG mode"

    def assignments(
        self,
        inventory: Inventory,  # noqa: ARG002 - the protocol's
        *,
        node: Node,  # noqa: ARG002
        tenants: Sequence[NodeTenant],  # noqa: ARG002
        previous: Sequence[Assignment],  # noqa: ARG002
    ) -> list[Assignment]:
        """None: no vendor's library knows kubelet's assignments."""
        return []

    def sample(self, inventory: Inventory, *, node: Node, tenants: Sequence[NodeTenant], now: datetime) -> Sample:
        """Return all devices' figures.

        Devices of an unreadable vendor take no work until it is readable.
        """
        states: dict[str, DeviceSample] = {}
        samples: list[Sample] = []
        for part in self._parts:
            try:
                known = self._known.get(part.name, Inventory(devices=()))
                sample = part.sample(known, node=node, tenants=tenants, now=now)
            except InventoryUnreadable as error:
                log.debug("one vendor's devices cannot be read", provider=part.name, problem=str(error))
                continue
            samples.append(sample)
            states |= zip((device.uuid for device in known.devices), sample.devices, strict=True)
        silent = DeviceSample(unhealthy_reason=SILENT)
        measured = [sample.measured_at for sample in samples if sample.measured_at]
        return Sample(
            devices=tuple(states.get(device.uuid, silent) for device in inventory.devices),
            measured_at=min(measured, default=None),
            cpu_utilization=samples[0].cpu_utilization if samples else None,
            memory_utilization=samples[0].memory_utilization if samples else None,
        )

    def _learn(self, part: Provider, *, node: Node, previous: GPUNodeStatus | None) -> str:
        try:
            self._known[part.name] = part.inventory(node, previous=previous)
        except InventoryUnreadable as error:
            return error.problem
        return ""


def _next_index(devices: Sequence[DeviceInfo]) -> int:
    return devices[-1].index + 1 if devices else 0


def _moved(device: DeviceInfo, *, by: int) -> DeviceInfo:
    nvlink, switch = ([other + by for other in others] for others in (device.links.nvlink, device.links.switch))
    return replace(device, index=device.index + by, links=Links(nvlink=nvlink, switch=switch))


def _joined(versions: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions if version)
