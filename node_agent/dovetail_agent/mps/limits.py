"""What MPS must hold a node's Fractional tenants to, and the commands that say so to its control daemon. Pure.

The daemon has one share of threads for all its clients and one memory limit for each card, so each is the largest that
anybody there was promised. Who was promised less has limits of its own in its environment, which bind a program only
as long as it keeps them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail_agent.tenants import Tenant

_WHOLE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The daemon's defaults: percentage of a card's threads, and MiB by the card's UUID for cards that are shared."""

    percentage: int = _WHOLE
    memory_mib: Mapping[str, int] = field(default_factory=dict)

    @property
    def cards(self) -> frozenset[str]:
        """The cards that Fractional tenants share."""
        return frozenset(self.memory_mib)


def limits_of(tenants: Iterable[Tenant]) -> Limits:
    """What the tenants of a node were promised, as the daemon's defaults."""
    promised = [device for tenant in tenants if tenant.mode == "Fractional" for device in tenant.devices]
    memory: dict[str, int] = {}
    for device in promised:
        memory[device.uuid] = max(device.memory_mib, memory.get(device.uuid, 0))
    share = max((device.share_milli for device in promised), default=_WHOLE * 10)
    return Limits(percentage=max(1, share // 10), memory_mib=dict(sorted(memory.items())))


def commands(limits: Limits, *, servers: Sequence[int]) -> Iterator[str]:
    """What to tell the control daemon: its defaults are for servers to come, so those that run are told as well."""
    yield f"set_default_active_thread_percentage {limits.percentage}"
    for uuid, mib in limits.memory_mib.items():
        yield f"set_default_device_pinned_mem_limit {uuid} {mib}M"
    for server in servers:
        yield f"set_active_thread_percentage {server} {limits.percentage}"
        for uuid, mib in limits.memory_mib.items():
            yield f"set_device_pinned_mem_limit {server} {uuid} {mib}M"


def others_cards(tenants: Iterable[Tenant]) -> frozenset[str]:
    """Cards with a tenant that is not Fractional: MPS must not begin anything there."""
    return frozenset(device.uuid for tenant in tenants if tenant.mode != "Fractional" for device in tenant.devices)
