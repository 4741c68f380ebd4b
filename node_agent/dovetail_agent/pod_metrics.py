"""Metrics of each container's share of a device: `dovetail_pod_gpu_…`.

What the driver cannot attribute has no sample. A device that several pods share reports one power draw and clock for
all of them. Processes tell its utilization apart, except under MPS, where that of all clients counts as the server's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.report.collect import Look

_MIB: Final = 1 << 20
_LABELS: Final = ("namespace", "pod", "container", "job", "node", "index", "uuid")
_PROMISES: Final = {
    "promised_share_ratio": "Share of the device's compute that the container was promised.",
    "promised_memory_bytes": "Memory of the device that the container was promised.",
}
_MEASURED: Final = {
    "memory_used_bytes": "Memory of the device that the pod's processes use, where the agent can attribute them.",
    "utilization_ratio": "Utilization of the device by the pod, from 0 to 1, where the driver tells it apart.",
    "power_watts": "Power draw of the device, where the pod has it alone.",
}
# Of one agent: 8 devices with 48 tenants each have 384, and a full node of 16 partitioned ones 112.
MOST: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A pod on one of its devices.

    - `shares`: what each of its containers was promised of the device: share in thousandths and memory in MiB.
    - `alone`: whether no other pod was promised a part of the device.
    """

    tenant: NodeTenant
    node: str
    device: DeviceInfo
    sample: DeviceSample
    shares: Mapping[str, tuple[int, int]]
    alone: bool

    def labels(self, container: str) -> list[str]:
        """The values of the labels."""
        tenant, device = self.tenant, self.device
        return [tenant.namespace, tenant.name, container, tenant.job, self.node, str(device.index), device.uuid]

    @property
    def measured_labels(self) -> list[str]:
        """Those of what is measured by pod: without a container where several of them have the device."""
        return self.labels(next(iter(self.shares)) if len(self.shares) == 1 else "")


def pod_metrics(looks: Mapping[str, Look]) -> Iterator[Metric]:
    """The metrics of all pods with devices, of at most `MOST` pairs of a pod and a device; the rest is counted."""
    families = {
        name: GaugeMetricFamily(f"dovetail_pod_gpu_{name}", text, labels=_LABELS)
        for name, text in (_PROMISES | _MEASURED).items()
    }
    throttled = GaugeMetricFamily(
        "dovetail_pod_gpu_throttled",
        "1 for each reason that holds down the clocks of a device that the pod has alone.",
        labels=[*_LABELS, "reason"],
    )
    pairs = list(_pairs(looks))
    for pair in pairs[:MOST]:
        for container, (milli, mib) in pair.shares.items():
            families["promised_share_ratio"].add_metric(pair.labels(container), milli / 1000)
            families["promised_memory_bytes"].add_metric(pair.labels(container), mib * _MIB)
        for name, value in _measured(pair).items():
            if value is not None:
                families[name].add_metric(pair.measured_labels, value)
        for reason in (pair.sample.throttled_by or ()) if pair.alone else ():
            throttled.add_metric([*pair.measured_labels, reason], 1)
    yield from families.values()
    yield throttled
    yield GaugeMetricFamily(
        "dovetail_pod_gpu_left_out",
        f"Pairs of a pod and a device beyond {MOST}, which have no metrics.",
        value=max(0, len(pairs) - MOST),
    )


def _pairs(looks: Mapping[str, Look]) -> Iterator[_Pair]:
    """Each pod on each of its devices."""
    for node, look in looks.items():
        if look.inventory is None or look.sample is None:
            continue
        for device, sample in zip(look.inventory.devices, look.sample.devices, strict=True):
            there = [(tenant, shares) for tenant in look.tenants if (shares := _shares(tenant, uuid=device.uuid))]
            for tenant, shares in there:
                yield _Pair(
                    tenant=tenant, node=node, device=device, sample=sample, shares=shares, alone=len(there) == 1
                )


def _shares(tenant: NodeTenant, *, uuid: str) -> dict[str, tuple[int, int]]:
    """What each container of the pod was promised of the device; an operator of an earlier version names none."""
    shares: dict[str, tuple[int, int]] = {}
    for device, container in zip(tenant.devices, chain(tenant.device_containers, repeat("")), strict=False):
        if device.uuid == uuid:
            milli, mib = shares.get(container, (0, 0))
            shares[container] = (milli + device.share_milli, mib + device.memory_mib)
    return shares


def _measured(pair: _Pair) -> dict[str, float | None]:
    sample = pair.sample
    used = None if sample.used_by_tenant_mib is None else sample.used_by_tenant_mib.get(pair.tenant.uid, 0)
    return {
        "memory_used_bytes": None if used is None else used * _MIB,
        "utilization_ratio": sample.utilization if pair.alone else _share_of_utilization(pair),
        "power_watts": sample.power_watts if pair.alone else None,
    }


def _share_of_utilization(pair: _Pair) -> float | None:
    """The part of a shared device's utilization that the pod's processes have, by what each of them reached.

    None where a process is not known to belong to a pod (MPS's server computes for all of its clients), or where the
    driver reports no utilization by process.
    """
    processes = pair.sample.processes
    if processes is None or pair.sample.utilization is None:
        return None
    if any(each.utilization is None or (each.utilization and not each.pod_uid) for each in processes):
        return None
    total = sum(each.utilization or 0.0 for each in processes)
    own = sum(each.utilization or 0.0 for each in processes if each.pod_uid == pair.tenant.uid)
    return pair.sample.utilization * own / total if total else 0.0
