"""A provider that returns at once what the poller's thread read last."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceSample, Inventory, InventoryUnreadable, Sample
from dovetail_agent.devices.poller import Known, Watch

# A driver without an answer for so long is not slow: its devices take no new work until it answers.
SILENCE: Final = timedelta(seconds=60)


class MeasuredProvider:
    """The provider of its own node. `silence` is how long old figures are used."""

    def __init__(self, watch: Watch, *, name: str, node: str, silence: timedelta = SILENCE) -> None:
        self.name = name
        self._watch = watch
        self._node = node
        self._silence = silence

    def serves(self, node: Node) -> bool:
        """Whether this is the node that the library describes."""
        return node.metadata.name == self._node

    def listen(self, news: Callable[[], None]) -> None:
        """Register `news`, called after each poll."""
        self._watch.news = news

    def inventory(self, node: Node, *, previous: GPUNodeStatus | None = None) -> Inventory:  # noqa: ARG002 - the protocol's
        """Return the devices that were found last. Raises `InventoryUnreadable`."""
        return self._inventory(self._watch.known, node=node)

    async def reshape(self, node: Node, *, card: str, profiles: Sequence[str]) -> str:  # noqa: ARG002
        """Partition a GPU in the thread that calls the library; why that failed, empty if it did not."""
        return await asyncio.wrap_future(self._watch.reshape(card, profiles=profiles))

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

    def sample(self, inventory: Inventory, *, node: Node, tenants: Sequence[NodeTenant], now: datetime) -> Sample:  # noqa: ARG002
        """Return the last figures and their time. Raises `InventoryUnreadable` if they are too old."""
        known = self._watch.known
        self._inventory(known, node=node)
        if known.measured_at is None or now - known.measured_at > self._silence:
            raise InventoryUnreadable(node.metadata.name, problem=self._silent(known))
        return Sample(
            devices=tuple(known.samples.get(device.uuid, DeviceSample()) for device in inventory.devices),
            measured_at=known.measured_at,
            cpu_utilization=known.host.cpu,
            memory_utilization=known.host.memory,
        )

    def _inventory(self, known: Known, *, node: Node) -> Inventory:
        if known.problem or known.inventory is None:
            asked = f" ({self._watch.waiting_for} has not answered)" if self._watch.waiting_for else ""
            raise InventoryUnreadable(node.metadata.name, problem=f"{self._watch.label}: {known.problem}{asked}")
        return known.inventory

    def _silent(self, known: Known) -> str:
        # Gives a time and not a duration: a sentence that changes with every look would be written with every look.
        label = self._watch.label
        what = f"{label}: {self._watch.waiting_for}" if self._watch.waiting_for else label
        return f"{what} does not answer; the devices were last read at {known.measured_at:%Y-%m-%dT%H:%M:%SZ}"
