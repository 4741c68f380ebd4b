"""Finds the tenants of a node that want turns, from one look. Pure."""

from collections.abc import Collection, Iterator

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceSample
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.turns.schedule import Contender


def contenders(
    seen: Seen, *, away: Collection[str] = (), resting: Collection[str] = ()
) -> Iterator[tuple[Contender, NodeTenant]]:
    """Yield the TimeShared tenants that run and have work on their devices.

    A pod that starts or terminates is left alone: it could not do either while frozen. A tenant without a process on
    its devices rests: it runs, and nothing waits for it. Where processes cannot be matched to pods, every tenant counts
    as having work. A tenant in `away` has its memory on the host, is on no device and wants one. A tenant in `resting`
    has processes that compute nothing.
    """
    samples = _samples(seen)
    for tenant in seen.tenants:
        devices = frozenset(device.uuid for device in tenant.devices)
        if tenant.mode == "TimeShared" and devices and tenant.running and not tenant.leaving:
            if tenant.uid in resting:
                continue
            known = devices <= samples.keys() and tenant.uid not in away
            if known and all(_rests(tenant, on=samples[uuid]) for uuid in devices):
                continue
            yield Contender(uid=tenant.uid, devices=devices, weight=max(1, tenant.priority)), tenant


def at_rest(seen: Seen, *, judged: Collection[str]) -> frozenset[str]:
    """Return the UIDs in `judged` whose processes were measured to compute nothing.

    Pass only tenants that were able to compute.
    """
    busy: dict[str, set[bool | None]] = {}
    for sample in _samples(seen).values():
        for process in sample.processes or ():
            is_busy = None if process.utilization is None else process.utilization > 0
            busy.setdefault(process.pod_uid, set()).add(is_busy)
    return frozenset(uid for uid in judged if busy.get(uid) == {False})


def _samples(seen: Seen) -> dict[str, DeviceSample]:
    if seen.inventory is None or seen.sample is None:
        return {}
    return {info.uuid: sample for info, sample in zip(seen.inventory.devices, seen.sample.devices, strict=True)}


def _rests(tenant: NodeTenant, *, on: DeviceSample) -> bool:
    return on.used_by_tenant_mib is not None and not on.used_by_tenant_mib.get(tenant.uid)
