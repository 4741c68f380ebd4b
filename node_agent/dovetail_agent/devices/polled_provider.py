"""The figures of a vendor's library as a provider: answers at once with what the watch's thread saw last."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment
from dovetail_agent.devices.model import DeviceSample, Inventory, InventoryUnreadable, Sample
from dovetail_agent.devices.poller import Known, Watch
from dovetail_agent.tenants import Tenant

# A driver that says nothing for so long is not slow: its devices take no new work until it answers again.
SILENCE: Final = timedelta(seconds=60)


class MeasuredProvider:
    """The provider of the node that it runs on. `silence` is for how long old figures stand for new ones."""

    def __init__(self, watch: Watch, *, name: str, node: str, silence: timedelta = SILENCE) -> None:
        self.name = name
        self._watch = watch
        self._node = node
        self._silence = silence

    def serves(self, node: Node) -> bool:
        """Whether this is the node that the library tells of."""
        return node.metadata.name == self._node

    def listen(self, news: Callable[[], None]) -> None:
        """After each look of the watch."""
        self._watch.news = news

    def inventory(self, node: Node) -> Inventory:
        """The cards, and parts of such, that were found last. Raises `InventoryUnreadable`."""
        return self._inventory(self._watch.known, node=node)

    def assignments(
        self,
        inventory: Inventory,  # noqa: ARG002 - the protocol's
        *,
        node: Node,  # noqa: ARG002
        tenants: Sequence[Tenant],  # noqa: ARG002
        previous: Sequence[Assignment],  # noqa: ARG002
    ) -> list[Assignment]:
        """None: no vendor's library knows whom kubelet gave what."""
        return []

    def sample(self, inventory: Inventory, *, node: Node, tenants: Sequence[Tenant], now: datetime) -> Sample:  # noqa: ARG002
        """What was measured last, and when. Raises `InventoryUnreadable` where that was too long ago."""
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
        # When, and not for how long: a sentence that changes with every look would be written with every look.
        label = self._watch.label
        what = f"{label}: {self._watch.waiting_for}" if self._watch.waiting_for else label
        return f"{what} does not answer; the devices were last read at {known.measured_at:%Y-%m-%dT%H:%M:%SZ}"
