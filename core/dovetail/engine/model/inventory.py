"""What is known of nodes and devices, as the ledger takes it and sums it up. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# More than any node takes.
ANY_NUMBER: Final = 1 << 40
# The obstacle that ends by itself.
NOT_READY: Final = "node is not ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a Node object says. `obstacle` is why it takes no pods at all now; empty when it does, `pods` of them.

    Where a vendor's plugin serves the devices, `resource` is its name for them and `offered` how many kubelet has in
    order, given away or not. `instances` is that number for the MIG instances of each profile. `labels` are those of
    the Node.
    """

    name: str
    managed: bool = True
    obstacle: str = ""
    cordoned: bool = False
    cpu_milli: int = 0
    memory_mib: int = 0
    pods: int = ANY_NUMBER
    resource: str = ""
    offered: int = 0
    instances: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What the agent says of one device, with what people say of it.

    `nvlink` and `switch` are the indexes of the devices that it reaches so. A tenant limit that is None is the
    configured one. `strangers`: a process without an allocation uses it, so it takes no new work.
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
    healthy: bool = True
    cordoned: bool = False
    strangers: bool = False
    movable: bool = False
    numa_node: int | None = None
    nvlink: tuple[int, ...] = ()
    switch: tuple[int, ...] = ()
    training_limit: int | None = None
    inference_limit: int | None = None
    mig: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the cluster: healthy devices, and what of them is promised."""

    devices: int
    milli: int
    promised_milli: int
    memory_mib: int
    promised_mib: int
    holds: int
