"""v1: what the cluster is and does: status, nodes, health, monitoring."""

from collections.abc import Callable, Sequence
from datetime import datetime
from statistics import fmean
from typing import Any

import msgspec

from dovetail.answers.inventory import DeviceUse, NodeUse
from dovetail.answers.nodes import TenantRow
from dovetail.answers.v1 import (
    Checks,
    DeviceAllocation,
    DeviceData,
    Health,
    Monitoring,
    NodeData,
    NodeRow,
    Status,
    Utilization,
)
from dovetail.formats.timestamps import timestamp
from dovetail.gpu.request import WHOLE_MILLI
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.v1.request import NO_SPECS, Specs, meets, size_of, type_of
from dovetail_gateway.v1.types import NodesQuery, Wanted


class StatusCalls:
    """The handlers of status, nodes, health and monitoring.

    The answer of status names no tenant, so all callers share one; it is encoded again when the cluster has changed.
    """

    def __init__(self, cache: ClusterCache, *, now: Callable[[], datetime]) -> None:
        self._cache = cache
        self._now = now
        self._rows: dict[str, tuple[NodeUse, NodeRow]] = {}
        self._encoder = msgspec.json.Encoder()
        self._encoded: tuple[int, bytes] = (-1, b"")

    async def get_status(self, _call: Call[Nothing, Nothing, Any]) -> Answer:
        """The cluster in numbers."""
        version = self._cache.version
        if self._encoded[0] != version:
            self._encoded = version, self._encoder.encode(self._status())
        return Answer(encoded=self._encoded[1])

    async def list_nodes(self, call: Call[Nothing, NodesQuery, Any]) -> Answer:
        """The nodes with GPUs of a type and size."""
        wanted = call.query
        specs, nodes = self._specs, self._cache.node_uses()
        return Answer(value=[self._row(node) for node in nodes if _has(node, wanted=wanted, specs=specs)])

    async def get_monitoring(self, call: Call[Nothing, Nothing, Any]) -> Answer:
        """The measurements of every device, and who holds it."""
        nodes = self._cache.node_uses()
        return Answer(
            value=Monitoring(
                utilization=_utilization(nodes),
                nodes=[node_data(node, sees=call.sees) for node in nodes],
                timestamp=timestamp(self._now()),
            )
        )

    async def get_health(self, _call: Call[Nothing, Nothing, Any]) -> Answer:
        """Whether the gateway answers; 503 while it does not."""
        age, obstacle = self._cache.age_seconds, self._cache.obstacle
        reporting = sum(gpunode.status.observed_at is not None for gpunode in self._cache.gpunodes.values())
        checks = Checks(
            api_server=self._cache.reachable,
            cache_age_seconds=None if age == float("inf") else round(age, 3),
            nodes_reporting=reporting,
        )
        if obstacle:
            return Answer(status=503, value=Health(status=f"unavailable: {obstacle}", checks=checks))
        return Answer(value=Health(status="healthy" if checks.api_server else "degraded", checks=checks))

    def _status(self) -> Status:
        nodes = self._cache.node_uses()
        rows = list(map(self._row, nodes))
        # The rows of nodes that are gone would stay.
        self._rows = {node.name: self._rows[node.name] for node in nodes}
        return Status(
            utilization=_utilization(nodes),
            available_nodes=[row for row in rows if row.available_gpus],
            total_nodes=len(rows),
            timestamp=timestamp(self._now()),
        )

    @property
    def _specs(self) -> Specs:
        return self._cache.settings.limits.memory_specs

    def _row(self, node: NodeUse) -> NodeRow:
        known = self._rows.get(node.name)
        if known is None or known[0] is not node:
            known = self._rows[node.name] = node, node_row(node, specs=self._specs)
        return known[1]


def node_row(node: NodeUse, *, specs: Specs = NO_SPECS) -> NodeRow:
    """The row of a node. A node with several models has those of the first device."""
    devices = [use.device for use in node.uses]
    first = devices[0] if devices else None
    return NodeRow(
        node_name=node.name,
        gpu_type=type_of(first.model) if first else "",
        available_gpus=len(node.available),
        memory_per_gpu=float(size_of(first, specs=specs)) if first else 0.0,
        utilization=_mean(node.uses),
    )


def _utilization(nodes: Sequence[NodeUse]) -> Utilization:
    uses = [use for node in nodes for use in node.uses if use.is_measured]
    total = sum(use.device.memory_mib for use in uses)
    used = sum(use.device.used_mib for use in uses)
    return Utilization(
        gpu_utilization=_mean(uses),
        gpu_memory_usage=round(used / total, 4) if total else 0.0,
    )


def _mean(uses: Sequence[DeviceUse]) -> float:
    """The mean utilization of the devices that report it; 0 without any."""
    numbers = [use.utilization for use in uses if use.utilization is not None]
    return round(fmean(numbers), 4) if numbers else 0.0


def _has(node: NodeUse, *, wanted: NodesQuery, specs: Specs) -> bool:
    asked = Wanted(gpu_type=wanted.gpu_type, memory_gb=wanted.min_memory_gb)
    return any(meets(use.device, wanted=asked, specs=specs) for use in node.uses)


def node_data(node: NodeUse, *, sees: Visibility) -> NodeData:
    """The measurements of a node's devices, and who holds them as far as `sees` says."""
    return NodeData(node_name=node.name, devices=[device_data(use, sees=sees) for use in node.uses])


def device_data(use: DeviceUse, *, sees: Visibility) -> DeviceData:
    """The row of a device, as a caller may see it."""
    device = use.device
    return DeviceData(
        index=device.index,
        uuid=device.uuid,
        gpu_type=type_of(device.model),
        name=device.model,
        utilization=use.utilization,
        memory_used_mib=use.used_mib,
        memory_total_mib=device.memory_mib,
        temperature_celsius=use.temperature_celsius,
        power_watts=use.power_watts,
        stale=bool(use.stale),
        health="Healthy" if use.healthy else "Unhealthy",
        message=use.reason,
        allocations=[_allocation(holder, shown=sees.sees(holder.namespace)) for holder in use.holders],
    )


def _allocation(holder: TenantRow, *, shown: bool) -> DeviceAllocation:
    return DeviceAllocation(
        namespace=holder.namespace if shown else None,
        pod=holder.pod if shown else None,
        share=holder.share_milli / WHOLE_MILLI,
        memory_mib=holder.memory_mib,
    )
