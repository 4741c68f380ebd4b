"""Metrics of each pod on each of its devices: `dovetail_pod_gpu_…`.

What the driver cannot attribute to one pod has no sample: a device that several pods share reports one utilization,
power draw and clock for all of them, and under MPS the processes of all clients belong to its server.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.report.collect import Look
from dovetail_agent.tenants import promised_mib, promised_milli

_MIB: Final = 1 << 20
_LABELS: Final = ("namespace", "pod", "job", "node", "index", "uuid")
_GAUGES: Final = {
    "promised_share_ratio": "Share of the device's compute that the pod was promised.",
    "promised_memory_bytes": "Memory of the device that the pod was promised.",
    "memory_used_bytes": "Memory of the device that the pod's processes use, where the agent can attribute them.",
    "utilization_ratio": "Utilization of the device, from 0 to 1, where the pod has it alone.",
    "power_watts": "Power draw of the device, where the pod has it alone.",
}
# Of one agent: 8 devices with 48 tenants each have 384, and a full node of 16 partitioned ones 112.
MOST: Final = 1024


def pod_metrics(looks: Mapping[str, Look]) -> Iterator[Metric]:
    """The metrics of all pods with devices, of at most `MOST` pairs of a pod and a device; the rest is counted."""
    families = {
        name: GaugeMetricFamily(f"dovetail_pod_gpu_{name}", text, labels=_LABELS) for name, text in _GAUGES.items()
    }
    throttled = GaugeMetricFamily(
        "dovetail_pod_gpu_throttled",
        "1 for each reason that holds down the clocks of a device that the pod has alone.",
        labels=[*_LABELS, "reason"],
    )
    shown = left_out = 0
    for labels, tenant, device, sample, alone in _pairs(looks):
        if shown >= MOST:
            left_out += 1
            continue
        shown += 1
        for name, value in _values(tenant, device=device, sample=sample, alone=alone).items():
            if value is not None:
                families[name].add_metric(labels, value)
        for reason in (sample.throttled_by or ()) if alone else ():
            throttled.add_metric([*labels, reason], 1)
    yield from families.values()
    yield throttled
    yield GaugeMetricFamily(
        "dovetail_pod_gpu_left_out",
        f"Pairs of a pod and a device beyond {MOST}, which have no metrics.",
        value=left_out,
    )


def _pairs(
    looks: Mapping[str, Look],
) -> Iterator[tuple[Sequence[str], NodeTenant, DeviceInfo, DeviceSample, bool]]:
    """Each pod on each of its devices, and whether it has the device alone."""
    for node, look in looks.items():
        if look.inventory is None or look.sample is None:
            continue
        for device, sample in zip(look.inventory.devices, look.sample.devices, strict=True):
            there = [tenant for tenant in look.tenants if promised_milli(tenant, uuid=device.uuid)]
            for tenant in there:
                labels = (tenant.namespace, tenant.name, tenant.job, node, str(device.index), device.uuid)
                yield labels, tenant, device, sample, len(there) == 1


def _values(tenant: NodeTenant, *, device: DeviceInfo, sample: DeviceSample, alone: bool) -> dict[str, float | None]:
    used = None if sample.used_by_tenant_mib is None else sample.used_by_tenant_mib.get(tenant.uid, 0)
    return {
        "promised_share_ratio": promised_milli(tenant, uuid=device.uuid) / 1000,
        "promised_memory_bytes": promised_mib(tenant, uuid=device.uuid) * _MIB,
        "memory_used_bytes": None if used is None else used * _MIB,
        "utilization_ratio": sample.utilization if alone else None,
        "power_watts": sample.power_watts if alone else None,
    }
