"""What is known of nodes and devices, as the ledger takes it and sums it up. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dovetail.engine.model.availability import BLOCKING, BROKEN, CLOSED, CORDONED_NODE, Unavailable, first_of

# More than any node takes.
ANY_NUMBER: Final = 1 << 40
# An exclusive ask takes no device on which foreign processes use more than this part of the memory.
FOREIGN_LIMIT: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a Node object says. `unavailable` are the causes why its devices take no new work; it takes `pods` pods.

    Where a vendor's plugin serves the devices, `resource` is its name for them and `offered` how many kubelet has in
    order, given away or not. `instances` is that number for the MIG instances of each profile. `labels` are those of
    the Node. `unreported`: its agent has not said yet which devices it has. `one_machine`: it is the machine of a queue
    of one's own, so no other node ever comes.
    """

    name: str
    managed: bool = True
    unavailable: tuple[Unavailable, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    pods: int = ANY_NUMBER
    resource: str = ""
    offered: int = 0
    instances: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    unreported: bool = False
    one_machine: bool = False

    @property
    def obstacle(self) -> str:
        """Why the node takes no pods at all now; empty when it does."""
        found = first_of(self.unavailable, causes=BLOCKING) if self.unavailable else None
        return "" if found is None else found.text

    @property
    def cordoned(self) -> bool:
        """Whether the node is cordoned, or is being drained."""
        return any(each.cause in CORDONED_NODE for each in self.unavailable)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What the agent says of one device, with what people say of it.

    `nvlink` and `switch` are the indexes of the devices that it reaches so. A tenant limit that is None is the
    configured one. `unavailable` are the causes why it takes no new work, in addition to those of its node.
    `movable`: what a tenant has on it can be moved to the host for another's turn. `mig`: the profile of a MIG
    instance, which only a request of that profile gets; empty for a GPU.
    """

    index: int
    uuid: str
    vendor: str
    model: str
    memory_mib: int
    reserved_mib: int = 0
    foreign_mib: int = 0
    utilization: float = 0.0
    unavailable: tuple[Unavailable, ...] = ()
    movable: bool = False
    numa_node: int | None = None
    nvlink: tuple[int, ...] = ()
    switch: tuple[int, ...] = ()
    training_limit: int | None = None
    inference_limit: int | None = None
    mig: str = ""

    @property
    def healthy(self) -> bool:
        """Whether its driver can be read, and says that it is healthy."""
        return not any(each.cause in BROKEN for each in self.unavailable)

    @property
    def cordoned(self) -> bool:
        """Whether it is closed for new work: cordoned, being partitioned, or used by processes without allocation."""
        return any(each.cause in CLOSED for each in self.unavailable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the cluster: healthy devices, and what of them is promised."""

    devices: int
    milli: int
    promised_milli: int
    memory_mib: int
    promised_mib: int
    holds: int
