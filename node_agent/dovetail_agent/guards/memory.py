"""The memory guard: who uses more device memory than promised, and whom to end for it. Pure.

A tenant above its promise is reported at once. If the policy ends tenants, it does so after a grace period, or as soon
as the tenant takes memory that its neighbours were promised: memory that they do not use yet but that is no longer
free. Then the tenant furthest above its promise ends first, and the next look shows whether that was enough.

Tenants of whole devices are exempt: they have no neighbour. The start of an overuse is read from the last report, so
that a restarted agent continues to count.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from dovetail.api.gpunode import Overuse
from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.report.node_status import timestamp
from dovetail_agent.tenants import promised_mib

Policy = Literal["Warn", "Evict", "Kill"]
_NOBODY: Final[Sequence[Overuse]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """What happens to a tenant above its promise, and after which grace period."""

    policy: Policy
    grace: timedelta


def overuses(seen: Seen, *, rules: GuardRules) -> list[Overuse]:
    """Return the tenants above their promise, by device and UID; `ends` marks those to end."""
    if seen.inventory is None or seen.sample is None:
        return list(seen.previous.overuses if seen.previous else _NOBODY)
    since = {(each.uid, each.device): each.since for each in (seen.previous.overuses if seen.previous else _NOBODY)}
    found: list[Overuse] = []
    for info, sample in zip(seen.inventory.devices, seen.sample.devices, strict=True):
        tenants = [tenant for tenant in seen.tenants if promised_mib(tenant, uuid=info.uuid)]
        above = list(_above(info, sample=sample, tenants=tenants, since=since, now=seen.now))
        taken = _taken_mib(info, sample=sample, tenants=tenants) if above else 0
        found += _judged(above, takes_neighbours=taken > 0, rules=rules, now=seen.now)
    return found


def sentence(overuse: Overuse, *, node: str) -> str:
    """Describe an overuse for people, in the form "uses … MiB of GPU …"."""
    return (
        f"uses {overuse.used_mib:,} MiB of GPU {overuse.index} ({overuse.device}) of {node}, "
        f"but was promised {overuse.promised_mib:,} MiB"
    )


def _above(
    info: DeviceInfo,
    *,
    sample: DeviceSample,
    tenants: Iterable[NodeTenant],
    since: dict[tuple[str, str], str],
    now: datetime,
) -> Iterator[Overuse]:
    used_by = sample.used_by_tenant_mib or {}
    for tenant in sorted(tenants, key=lambda each: each.uid):
        used, promised = used_by.get(tenant.uid, 0), promised_mib(tenant, uuid=info.uuid)
        if tenant.mode != "Exclusive" and used > promised:
            yield Overuse(
                uid=tenant.uid,
                namespace=tenant.namespace,
                name=tenant.name,
                device=info.uuid,
                index=info.index,
                promised_mib=promised,
                used_mib=used,
                since=since.get((tenant.uid, info.uuid), timestamp(now)),
            )


def _taken_mib(info: DeviceInfo, *, sample: DeviceSample, tenants: Iterable[NodeTenant]) -> int:
    """MiB that tenants were promised and do not use yet, beyond what is free.

    Tenants that move to the host between turns need the room of the largest of them only, one after the other.
    """
    used_by = sample.used_by_tenant_mib or {}
    wants = [(each.movable, promised_mib(each, uuid=info.uuid), used_by.get(each.uid, 0)) for each in tenants]
    open_mib = sum(max(0, promised - used) for movable, promised, used in wants if not movable)
    largest = max((promised for movable, promised, _ in wants if movable), default=0)
    open_mib += max(0, largest - sum(used for movable, _, used in wants if movable))
    free = info.memory_mib - info.reserved_mib - (sample.used_mib or 0)
    return max(0, open_mib - max(0, free))


def _judged(above: Sequence[Overuse], *, takes_neighbours: bool, rules: GuardRules, now: datetime) -> Iterator[Overuse]:
    worst = max(above, key=lambda each: each.used_mib - each.promised_mib, default=None)
    for each in above:
        late = now - datetime.fromisoformat(each.since) >= rules.grace
        ends = rules.policy != "Warn" and (late or (takes_neighbours and each is worst))
        yield msgspec.structs.replace(each, ends=ends)
