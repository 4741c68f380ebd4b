"""What every source of device figures gives: inventory and samples. Values and the protocol only.

"Not available" is a value: a figure that the driver does not give is None, never a guess and never an error.

InventoryUnreadable   the devices of a node cannot be told: which node, and why
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment, Enforcement, Links
from dovetail_agent.tenants import Tenant

LOST: Final = "GpuIsLost"


class InventoryUnreadable(Exception):  # noqa: N818 - says what is the matter, as the tree above reads
    """The devices of a node cannot be told. The text is one sentence; `reason` is that of the condition Ready."""

    def __init__(self, node: str, *, problem: str, reason: str = "InventoryUnreadable") -> None:
        self.node = node
        self.problem = problem
        self.reason = reason
        super().__init__(f"node {node}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """What does not change while a device works.

    `loaded_at` is when its driver was seen to be loaded anew, if it was: earlier faults are over.
    """

    index: int
    uuid: str
    vendor: str
    model: str
    memory_mib: int
    reserved_mib: int = 0
    compute_capability: str = ""
    mig_profile: str = ""
    pci_bus_id: str = ""
    numa_node: int | None = None
    links: Links = field(default_factory=Links)
    loaded_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The devices of one node, by index, and what its driver can enforce."""

    devices: tuple[DeviceInfo, ...]
    driver_version: str = ""
    runtime_version: str = ""
    enforcement: Enforcement = field(default_factory=Enforcement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error after which a device takes no work until it was reset or mended, and when it last came."""

    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process on a device, by its number on the node. `pod_uid` is empty for one of no pod.

    `started` is when it began, in ticks since boot; None for one of no pod.
    `used_mib` and `utilization`, the highest ratio since the last look, are None where they are not told.
    """

    pid: int
    used_mib: int | None = None
    utilization: float | None = None
    pod_uid: str = ""
    container_id: str = ""
    started: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """How one device is at this moment. An empty `unhealthy_reason` and no `faults` mean that it may take work.

    `used_by_tenant_mib` says which pod (by UID) uses how much; None where processes cannot be told apart.
    `processes` by number; None where they are not told, or cannot be told apart.
    `clocks_mhz` by clock (sm, memory), `ecc_errors` by kind (corrected, uncorrected), `xids` how often by number.
    `shareable`: whether several processes may compute there at once.
    """

    used_mib: int | None = None
    used_by_tenant_mib: dict[str, int] | None = None
    processes: tuple[Process, ...] | None = None
    utilization: float | None = None
    temperature_celsius: int | None = None
    power_watts: int | None = None
    clocks_mhz: Mapping[str, int] = field(default_factory=dict)
    throttled_by: tuple[str, ...] | None = None
    shareable: bool | None = None
    ecc_errors: Mapping[str, int] = field(default_factory=dict)
    remapped_rows: int | None = None
    xids: Mapping[int, int] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    unhealthy_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How a node is at this moment; `devices` in the inventory's order. Ratios are from 0 to 1.

    `measured_at` is when the devices were read; None: just now.
    """

    devices: tuple[DeviceSample, ...]
    measured_at: datetime | None = None
    cpu_utilization: float | None = None
    memory_utilization: float | None = None


class Provider(Protocol):
    """A source of figures. All reads return at once: who asks a driver does so in a thread of its own."""

    @property
    def name(self) -> str:
        """As it stands in `GPUNode.status.provider`."""
        ...

    def serves(self, node: Node) -> bool:
        """Whether this node's figures come from here."""
        ...

    def listen(self, news: Callable[[], None]) -> None:
        """Call `news` whenever there is something new to see, from whatever thread."""
        ...

    def inventory(self, node: Node) -> Inventory:
        """The devices of a node. Raises `InventoryUnreadable`."""
        ...

    def assignments(
        self, inventory: Inventory, *, node: Node, tenants: Sequence[Tenant], previous: Sequence[Assignment]
    ) -> list[Assignment]:
        """Which tenants kubelet gave which devices, where a vendor's plugin serves the node; by UID.

        `previous` is what was last reported. Raises `InventoryUnreadable`.
        """
        ...

    def sample(self, inventory: Inventory, *, node: Node, tenants: Sequence[Tenant], now: datetime) -> Sample:
        """How the node and its devices are now. Raises `InventoryUnreadable`."""
        ...
