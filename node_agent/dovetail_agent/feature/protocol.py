"""The protocol of a feature: what an agent does on a node besides reading its devices.

Examples are kubelet's answers, strangers, turns and MPS. A feature sees each look, can change what is reported, and
acts after the look. No feature can end or delay another: an error is logged and ignored, and `act` runs in a task of
its own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import Metric

from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment, GPUNode, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import Inventory, Sample

Wake = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at a node.

    `gpunode` is the API server's object. Without a sample, nothing could be read; `problem` says why. On a node that a
    vendor's plugin serves, `tenants` have the devices that kubelet assigned. `answers` is the question
    (`status.tenantsAsked`) that the list of tenants answers, 0 for none; None where the agent reads the pods itself.
    """

    node: Node
    now: datetime
    gpunode: GPUNode | None = None
    tenants: tuple[NodeTenant, ...] = ()
    answers: int | None = None
    inventory: Inventory | None = None
    sample: Sample | None = None
    problem: str = ""

    @property
    def previous(self) -> GPUNodeStatus | None:
        """The last reported status."""
        return self.gpunode.status if self.gpunode else None


class Feature:
    """A feature; methods that are not overridden do nothing.

    All but `run` and `act` return at once.
    """

    name = ""

    async def run(self, wake: Wake) -> None:
        """Run next to the agent until cancelled. `wake` requests a look now."""

    def assignments(self, seen: Seen) -> list[Assignment] | None:  # noqa: ARG002 - for those who override it
        """Return kubelet's assignments, before the sample is taken; None if this feature has none."""
        return None

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:  # noqa: ARG002
        """Return the status with this feature's parts: enforcement, a device's health, conditions."""
        return status

    async def act(self, seen: Seen, *, status: GPUNodeStatus) -> None:
        """Act after a look: events, taints, evictions.

        One call at a time for each node. A look during a running call is skipped.
        """

    def forget(self, node: str) -> None:
        """Drop what is kept of a node that is gone, or has no devices any more."""

    def metrics(self) -> Iterable[Metric]:
        """Return the feature's metrics at scrape time."""
        return ()
