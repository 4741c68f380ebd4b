"""The memory guard at run time: who uses more of a device than it was promised, and who is to be ended for it. Pure.

A tenant above its promise is told at once. Where the policy ends it, that is after a grace; or as soon as it takes what
its neighbours were promised: what they have not used yet is no longer free on the device. Of several the one that is
furthest above its promise goes first, and the next look says whether that was enough.

Whole devices are exempt: their tenant has no neighbour. Since when somebody is above is read from the last report, so
that an agent which starts anew goes on counting.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from dovetail.api.gpunode import Overuse
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.report.node_status import timestamp
from dovetail_agent.tenants import Tenant, promised_mib

Policy = Literal["Warn", "Evict", "Kill"]
_NOBODY: Final[Sequence[Overuse]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """What becomes of a tenant above its promise, and after which grace."""

    policy: Policy
    grace: timedelta


def overuses(seen: Seen, *, rules: GuardRules) -> list[Overuse]:
    """Every tenant above its promise on a device, by device and then by UID; `ends` is set for who has to go."""
    if seen.inventory is None or seen.sample is None:
        return list(seen.previous.overuses if seen.previous else _NOBODY)
    since = {(each.uid, each.device): each.since for each in (seen.previous.overuses if seen.previous else _NOBODY)}
    found: list[Overuse] = []
    for info, sample in zip(seen.inventory.devices, seen.sample.devices, strict=True):
        tenants = [tenant for tenant in seen.tenants if promised_mib(tenant, uuid=info.uuid)]
        above = list(_above(info, sample, tenants=tenants, since=since, now=seen.now))
        taken = _taken_mib(info, sample, tenants=tenants) if above else 0
        found += _judged(above, takes_neighbours=taken > 0, rules=rules, now=seen.now)
    return found


def sentence(overuse: Overuse, *, node: str) -> str:
    """What is told of it."""
    return (
        f"uses {overuse.used_mib:,} MiB of GPU {overuse.index} ({overuse.device}) of {node}, "
        f"but was promised {overuse.promised_mib:,} MiB"
    )


def _above(
    info: DeviceInfo,
    sample: DeviceSample,
    *,
    tenants: Iterable[Tenant],
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


def _taken_mib(info: DeviceInfo, sample: DeviceSample, *, tenants: Iterable[Tenant]) -> int:
    """What tenants were promised and have not used yet, beyond what is free. Those that are moved to the host by turns
    have the room of the largest of them, one after the other."""
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
