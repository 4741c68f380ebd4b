"""Inventory and samples, the data of every source of device figures.

Values and the protocol only. "Not available" is a value: a figure that the driver does not report is None, never a
guess or an error.

InventoryUnreadable   a node's devices cannot be read: names the node and the reason
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment, Enforcement, GPUNodeStatus, Links
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.gpu.geometry import Slot


class InventoryUnreadable(Exception):  # noqa: N818 - says what is the matter, as the tree above reads
    """A node's devices cannot be read.

    The text is one sentence. `reason` is the reason of the condition Ready.
    """

    def __init__(self, node: str, *, problem: str, reason: str = "InventoryUnreadable") -> None:
        self.node = node
        self.problem = problem
        self.reason = reason
        super().__init__(f"node {node}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """The properties of a device that do not change while it works.

    - `index`: its number on the node, unique there.
    - `uuid`: its UUID, as the vendor's library writes it.
    - `vendor`: nvidia, amd, intel or ascend.
    - `model`: the vendor's name of the model.
    - `memory_mib`: total memory in MiB.
    - `reserved_mib`: memory in MiB that the driver keeps for itself.
    - `compute_capability`: CUDA's, such as 9.0; empty for other vendors.
    - `mig_profile`: such as 1g.10gb; empty unless it is a MIG device.
    - `parent`: the UUID of the GPU that a MIG device is part of; empty for a GPU.
    - `pci_bus_id`: such as 0000:3b:00.0; empty if unknown.
    - `numa_node`: its socket; None if unknown.
    - `links`: NVLink and PCIe-switch peers, by index.
    - `loaded_at`: when its driver was seen to be reloaded; earlier faults have ended. None if it was not.
    """

    index: int
    uuid: str
    vendor: str
    model: str
    memory_mib: int
    reserved_mib: int = 0
    compute_capability: str = ""
    mig_profile: str = ""
    parent: str = ""
    pci_bus_id: str = ""
    numa_node: int | None = None
    links: Links = field(default_factory=Links)
    loaded_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCard:
    """A GPU in MIG mode, and the instances that it can have. It need not have any."""

    index: int
    uuid: str
    model: str
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The devices of one node in the order of their indexes, what its driver can enforce, and the GPUs in MIG mode."""

    devices: tuple[DeviceInfo, ...]
    driver_version: str = ""
    runtime_version: str = ""
    enforcement: Enforcement = field(default_factory=Enforcement)
    split: tuple[SplitCard, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error that keeps a device from new work until a reset or repair, and its last time."""

    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process on a device, by its PID on the node.

    `pod_uid` is empty for a process outside pods. `started` is its start time in ticks since boot; None for a process
    outside pods. `used_mib` and `utilization`, the highest ratio since the last sample, are None if unavailable.
    """

    pid: int
    used_mib: int | None = None
    utilization: float | None = None
    pod_uid: str = ""
    container_id: str = ""
    started: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """A device's figures at one moment; None where the driver does not report one.

    An empty `unhealthy_reason` and no `faults` mean that the device may take work.
    - `used_mib`: memory in use, in MiB.
    - `used_by_tenant_mib`: memory in MiB by pod UID; None where processes cannot be matched to pods.
    - `processes`: in the order of PIDs; None where they cannot be listed or matched to pods.
    - `utilization`: a ratio from 0 to 1.
    - `temperature_celsius`: in degrees Celsius.
    - `power_watts`: power draw in watts.
    - `clocks_mhz`: in MHz by clock (sm, memory).
    - `throttled_by`: what lowers the clocks now.
    - `shareable`: whether several processes may compute at once.
    - `ecc_errors`: counts by kind (corrected, uncorrected).
    - `remapped_rows`: rows of memory taken out of use.
    - `xids`: counts by XID number.
    - `faults`: errors that outlast their moment.
    - `unhealthy_reason`: why the device takes no work; empty if it may.
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
    """A node's figures at one moment; `devices` in the inventory's order, ratios from 0 to 1.

    `measured_at` is when the devices were read; None means just now.
    """

    devices: tuple[DeviceSample, ...]
    measured_at: datetime | None = None
    cpu_utilization: float | None = None
    memory_utilization: float | None = None


class Provider(Protocol):
    """A source of device figures.

    All reads return at once: a provider that asks a driver does so in a thread of its own.
    """

    @property
    def name(self) -> str:
        """The value of `GPUNode.status.provider`."""
        ...

    def serves(self, node: Node) -> bool:
        """Whether this provider has the node's figures."""
        ...

    def listen(self, news: Callable[[], None]) -> None:
        """Register `news`, to be called from any thread whenever there are new figures."""
        ...

    def inventory(self, node: Node, *, previous: GPUNodeStatus | None = None) -> Inventory:
        """Return the devices of a node. Raises `InventoryUnreadable`.

        `previous` is the last report.
        """
        ...

    async def reshape(self, node: Node, *, card: str, profiles: Sequence[str]) -> str:
        """Partition an idle GPU in MIG mode, by UUID, into instances of these profiles.

        Returns once `inventory` has the new devices. The text is why it failed; empty if it did not.
        """
        ...

    def assignments(
        self, inventory: Inventory, *, node: Node, tenants: Sequence[NodeTenant], previous: Sequence[Assignment]
    ) -> list[Assignment]:
        """Return kubelet's assignments in the order of pod UIDs, where a vendor's plugin serves.

        `previous` is the last report. Raises `InventoryUnreadable`.
        """
        ...

    def sample(self, inventory: Inventory, *, node: Node, tenants: Sequence[NodeTenant], now: datetime) -> Sample:
        """Return the current figures of the node and its devices. Raises `InventoryUnreadable`."""
        ...
