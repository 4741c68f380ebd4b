"""Computes MPS's limits for a node's Fractional tenants, and the daemon's commands. Pure.

The daemon has one thread percentage for all clients and one memory limit for each device. Each is the largest value
that a tenant there was promised. A tenant that was promised less has its own limits in its environment, which bind a
program only as long as it keeps them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail.api.gpunodetenants import NodeTenant

_WHOLE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The daemon's defaults: percentage of a device's threads, and MiB by shared device's UUID."""

    percentage: int = _WHOLE
    memory_mib: Mapping[str, int] = field(default_factory=dict)

    @property
    def cards(self) -> frozenset[str]:
        """UUIDs of the devices that Fractional tenants share."""
        return frozenset(self.memory_mib)


def limits_of(tenants: Iterable[NodeTenant]) -> Limits:
    """Return the largest promises of a node's tenants as the daemon's defaults."""
    promised = [device for tenant in tenants if tenant.mode == "Fractional" for device in tenant.devices]
    memory: dict[str, int] = {}
    for device in promised:
        memory[device.uuid] = max(device.memory_mib, memory.get(device.uuid, 0))
    share = max((device.share_milli for device in promised), default=_WHOLE * 10)
    return Limits(percentage=max(1, share // 10), memory_mib=dict(sorted(memory.items())))


def commands(limits: Limits, *, servers: Sequence[int]) -> Iterator[str]:
    """Yield the control daemon's commands.

    Defaults affect only new servers, so each running server gets its own commands too.
    """
    yield f"set_default_active_thread_percentage {limits.percentage}"
    for uuid, mib in limits.memory_mib.items():
        yield f"set_default_device_pinned_mem_limit {uuid} {mib}M"
    for server in servers:
        yield f"set_active_thread_percentage {server} {limits.percentage}"
        for uuid, mib in limits.memory_mib.items():
            yield f"set_device_pinned_mem_limit {server} {uuid} {mib}M"


def others_cards(tenants: Iterable[NodeTenant]) -> frozenset[str]:
    """UUIDs of devices with a tenant that is not Fractional: MPS must not start anything there."""
    return frozenset(device.uuid for tenant in tenants if tenant.mode != "Fractional" for device in tenant.devices)
