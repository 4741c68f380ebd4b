"""The provider of a node where no vendor's library loads: reports no devices, and why."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NoReturn

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.cluster.node_kind import serving
from dovetail.gpu.device_plugins import Vendors
from dovetail_agent.devices.model import Inventory, InventoryUnreadable, Sample

REASON: Final = "NoLibrary"


class NoLibraryProvider:
    """Serves its node only where devices are expected.

    That is a node that is managed, served by a plugin, or annotated with simulated devices. A library enters a
    container when the container starts, so the provider does not look for one again.
    """

    name = "none"

    def __init__(self, *, node: str, libraries: Sequence[str], vendors: Vendors) -> None:
        self._node = node
        self._libraries = tuple(libraries)
        self._vendors = vendors

    def serves(self, node: Node) -> bool:
        """Whether devices are expected on this node. A node without GPUs gets no GPUNode."""
        if node.metadata.name != self._node:
            return False
        serves = serving(node, vendors=self._vendors)
        return serves.managed or bool(serves.resource) or names.SIMULATED_DEVICES in node.metadata.annotations

    def listen(self, news: Callable[[], None]) -> None:
        """Do nothing: there are never new figures."""

    def inventory(self, node: Node, *, previous: GPUNodeStatus | None = None) -> Inventory:  # noqa: ARG002 - the protocol's
        """Raise `InventoryUnreadable`."""
        self._raise(node)

    async def reshape(self, node: Node, *, card: str, profiles: Sequence[str]) -> str:  # noqa: ARG002
        """Raise `InventoryUnreadable`."""
        self._raise(node)

    def assignments(
        self,
        inventory: Inventory,  # noqa: ARG002 - the protocol's
        *,
        node: Node,  # noqa: ARG002
        tenants: Sequence[NodeTenant],  # noqa: ARG002
        previous: Sequence[Assignment],  # noqa: ARG002
    ) -> list[Assignment]:
        """None."""
        return []

    def sample(self, inventory: Inventory, *, node: Node, tenants: Sequence[NodeTenant], now: datetime) -> Sample:  # noqa: ARG002
        """Raise `InventoryUnreadable`."""
        self._raise(node)

    def _raise(self, node: Node) -> NoReturn:
        hint = "agent.runtimeClassName names the RuntimeClass that brings NVIDIA's into the agent"
        if node.status.node_info.container_runtime_version == names.PROCESSES:
            hint = "the vendor's driver installs it; without it, jobs that ask no GPU run"
        if names.SIMULATED_DEVICES in node.metadata.annotations:
            hint += f"; the annotation {names.SIMULATED_DEVICES} counts only with agent.provider=simulated"
        problem = f"no vendor's library can be loaded ({', '.join(self._libraries)}); {hint}"
        raise InventoryUnreadable(node.metadata.name, problem=problem, reason=REASON)
