"""What an agent does on a node beside reading its devices: kubelet's answers, strangers, turns, MPS. The protocol only.

A feature sees each look, may change what is reported, and acts beside the looking. None can end or delay another: what
it raises is logged and left out, and `act` runs in a task of its own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import Metric

from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment, GPUNode, GPUNodeStatus
from dovetail_agent.devices.model import Inventory, Sample
from dovetail_agent.tenants import Tenant

Wake = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at a node. `gpunode` is what the API server has; without a sample nothing could be read, see `problem`.

    `tenants` have, on a node of a vendor's plugin, the devices that kubelet gave them. `answers` is the question
    (`status.tenantsAsked`) that their list answers, 0 for none; None where the agent reads the pods itself.
    """

    node: Node
    now: datetime
    gpunode: GPUNode | None = None
    tenants: tuple[Tenant, ...] = ()
    answers: int | None = None
    inventory: Inventory | None = None
    sample: Sample | None = None
    problem: str = ""

    @property
    def previous(self) -> GPUNodeStatus | None:
        """What was last reported."""
        return self.gpunode.status if self.gpunode else None


class Feature:
    """One of them; each method that is not overridden does nothing. All but `run` and `act` must return at once."""

    name = ""

    async def run(self, wake: Wake) -> None:
        """Beside the agent, until cancelled. `wake` asks for a look now."""

    def assignments(self, seen: Seen) -> list[Assignment] | None:  # noqa: ARG002 - for those who override it
        """Which tenants kubelet gave which devices, before the sample is taken; None: this feature does not know."""
        return None

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:  # noqa: ARG002
        """The status with what this feature has to say: enforcement, a device's health, conditions of its own."""
        return status

    async def act(self, seen: Seen, *, status: GPUNodeStatus) -> None:
        """After a look: events, taints, evictions. One at a time for a node; one that comes meanwhile is not told."""

    def metrics(self) -> Iterable[Metric]:
        """What it counts, at scrape time."""
        return ()
