"""Nodes with GPUs, their devices, and who holds them."""

from typing import Annotated, Literal

from msgspec import Meta

from dovetail_gateway.routing.table import Strictly
from dovetail_gateway.v3.types.common import Cursor, Input, Limit, ObjectName, Row


class NodePath(Strictly, frozen=True, kw_only=True):
    """A node."""

    name: ObjectName


class NodeFilter(Input, frozen=True, kw_only=True):
    """Which nodes, and which page of them."""

    model: Annotated[
        Annotated[str, Meta(max_length=63)] | None, Meta(description="Only nodes with devices of this model.")
    ] = None
    limit: Limit = 100
    cursor: Cursor = ""


class TenantRow(Row, frozen=True, kw_only=True):
    """A pod that holds a device or a share of it; `job` is its job's number.

    `usedMib` is what its processes use of the device's memory, null where processes cannot be attributed to pods.
    """

    namespace: str
    pod: str
    job: int | None
    share_milli: int
    memory_mib: int
    used_mib: int | None


class OtherTenants(Row, frozen=True, kw_only=True):
    """The tenants of a device whose namespaces you may not list, summed up."""

    tenants: int
    share_milli: int
    memory_mib: int


class DeviceRow(Row, frozen=True, kw_only=True):
    """A device. `available` says whether a job could take it whole now.

    `migProfile` is the profile of a MIG instance, such as `1g.10gb`; empty for a GPU.
    """

    node: str
    index: int
    uuid: str
    vendor: str
    model: str
    mig_profile: str
    memory_mib: int
    used_mib: int
    utilization: float
    temperature_celsius: int | None
    power_watts: int | None
    health: Literal["Healthy", "Unhealthy"]
    health_reason: str
    cordoned: bool
    available: bool
    strangers: int
    tenants: list[TenantRow]
    others: OtherTenants | None


class NodeRow(Row, frozen=True, kw_only=True):
    """A node with GPUs. `rack` is its domain of the network's level of this name; empty without one."""

    name: str
    takes_work: bool
    pool: str
    rack: str
    driver_version: str
    enforces: str
    observed_at: str | None
    devices: list[DeviceRow]


class NodeList(Row, frozen=True, kw_only=True):
    """A page of nodes."""

    items: list[NodeRow]
    next: str | None
    total: int


class DeviceList(Row, frozen=True, kw_only=True):
    """The devices of a page of nodes."""

    items: list[DeviceRow]
    next: str | None
