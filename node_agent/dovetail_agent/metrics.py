"""The agent's metrics, gathered at scrape time.

A figure that is not available has no sample.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dovetail_agent.agent import Agent
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.pod_metrics import pod_metrics
from dovetail_agent.report.collect import Look
from dovetail_agent.report.node_status import foreign_mib
from dovetail_agent.tenants import promised_mib, promised_milli

_MIB: Final = 1 << 20
_LABELS: Final = ("node", "index", "uuid", "model")
_DEVICE_GAUGES: Final = {
    "utilization_ratio": "Utilization as measured, from 0 to 1.",
    "memory_total_bytes": "Total memory of the device.",
    "memory_used_bytes": "Memory in use as measured.",
    "temperature_celsius": "Temperature.",
    "power_watts": "Power draw.",
    "healthy": "1 where the device is healthy, else 0.",
    "promised_share_ratio": "Share of the device's compute that pods were promised; above 1 where they take turns.",
    "promised_memory_bytes": "Memory that pods were promised.",
    "tenants": "Pods that were promised a part of the device.",
    "foreign_memory_bytes": "Memory in use beyond what was promised to pods.",
    "remapped_rows": "Rows of memory that were put out of use.",
}
_KINDS: Final = {
    "clock_hertz": ("clock", "Clock rate: sm or memory."),
    "tenants_by_workload": ("workload", "Pods that were promised a part of it: training, inference or unspecified."),
    "throttled": ("reason", "1 for each reason that holds the clocks down now."),
    "ecc_errors": ("kind", "Memory errors since the driver was loaded: corrected or uncorrected."),
    "xid_errors": ("xid", "Errors that the device reported since the agent started, by NVIDIA's number."),
}
_WORKLOADS: Final = ("training", "inference", "unspecified")
_COUNTED: Final = frozenset({"ecc_errors", "xid_errors"})


class AgentCollector(Collector):
    """All metrics of one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; prometheus_client calls it."""
        yield from self._devices()
        yield from self._kinds()
        yield from pod_metrics(self._agent.looks)
        yield from self._agent_itself()
        yield from self._agent.beside.metrics()

    def describe(self) -> Iterator[Metric]:
        """The same metrics, as prometheus_client asks for them when the collector is registered.

        No node has been looked at by then, so they have no values.
        """
        return self.collect()

    def _devices(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(f"dovetail_device_{name}", text, labels=_LABELS)
            for name, text in _DEVICE_GAUGES.items()
        }
        for labels, device, sample, look in self._readings():
            for name, value in _values(device, sample=sample, look=look).items():
                if value is not None:
                    families[name].add_metric(labels, value)
        yield from families.values()

    def _kinds(self) -> Iterator[Metric]:
        """Metrics with one value for each kind, such as a clock or an error."""
        families = {
            name: (CounterMetricFamily if name in _COUNTED else GaugeMetricFamily)(
                f"dovetail_device_{name}", text, labels=[*_LABELS, label]
            )
            for name, (label, text) in _KINDS.items()
        }
        for labels, device, sample, look in self._readings():
            for name, values in _values_by_kind(device, sample=sample, look=look).items():
                for kind, value in values.items():
                    families[name].add_metric([*labels, kind], value)
        yield from families.values()

    def _measured(self) -> Metric:
        """The time of the last read, not its age: a hung driver then shows even without a new look."""
        measured = GaugeMetricFamily(
            "dovetail_device_measured_timestamp_seconds",
            "When the devices of a node were last read, in seconds since 1970.",
            labels=["node"],
        )
        for node, look in self._agent.looks.items():
            if look.status.measured_at:
                measured.add_metric([node], datetime.fromisoformat(look.status.measured_at).timestamp())
        return measured

    def _readings(self) -> Iterator[tuple[list[str], DeviceInfo, DeviceSample, Look]]:
        for node, look in self._agent.looks.items():
            if look.inventory is not None and look.sample is not None:
                for device, sample in zip(look.inventory.devices, look.sample.devices, strict=True):
                    yield [node, str(device.index), device.uuid, device.model], device, sample, look

    def _agent_itself(self) -> Iterator[Metric]:
        looks = self._agent.looks.values()
        nodes = GaugeMetricFamily(
            "dovetail_agent_nodes", "Nodes by whether their devices can be read.", labels=["readable"]
        )
        nodes.add_metric(["true"], sum(1 for look in looks if look.inventory))
        nodes.add_metric(["false"], sum(1 for look in looks if not look.inventory))
        yield nodes
        published = CounterMetricFamily(
            "dovetail_agent_published", "Reports that were written, by why.", labels=["why"]
        )
        for why, count in self._agent.published_total.items():
            published.add_metric([why], count)
        yield published
        yield CounterMetricFamily(
            "dovetail_agent_write_failures",
            "Writes that the API server did not take.",
            value=self._agent.write_failures_total,
        )
        yield self._measured()
        age = GaugeMetricFamily(
            "dovetail_agent_cache_age_seconds",
            "Time since the API server last said anything on a watch.",
            labels=["resource"],
        )
        for reflector in self._agent.reflectors:
            age.add_metric([reflector.resource.plural], reflector.age_seconds)
        yield age


def _values(device: DeviceInfo, *, sample: DeviceSample, look: Look) -> dict[str, float | None]:
    shares = [promised_milli(tenant, uuid=device.uuid) for tenant in look.tenants]
    return {
        "utilization_ratio": sample.utilization,
        "memory_total_bytes": device.memory_mib * _MIB,
        "memory_used_bytes": None if sample.used_mib is None else sample.used_mib * _MIB,
        "temperature_celsius": sample.temperature_celsius,
        "power_watts": sample.power_watts,
        "healthy": 0.0 if sample.unhealthy_reason else 1.0,
        "promised_share_ratio": sum(shares) / 1000,
        "promised_memory_bytes": sum(promised_mib(tenant, uuid=device.uuid) for tenant in look.tenants) * _MIB,
        "tenants": sum(1 for share in shares if share),
        "foreign_memory_bytes": None
        if sample.used_mib is None
        else _foreign_mib(device, sample=sample, look=look) * _MIB,
        "remapped_rows": sample.remapped_rows,
    }


def _foreign_mib(device: DeviceInfo, *, sample: DeviceSample, look: Look) -> int:
    promised = {tenant.uid: promised_mib(tenant, uuid=device.uuid) for tenant in look.tenants}
    return foreign_mib(sample, promised=promised)


def _values_by_kind(device: DeviceInfo, *, sample: DeviceSample, look: Look) -> dict[str, Mapping[str, float]]:
    return {
        "tenants_by_workload": _tenants_by_workload(device, look=look),
        "clock_hertz": {clock: mhz * 1e6 for clock, mhz in sample.clocks_mhz.items()},
        "throttled": dict.fromkeys(sample.throttled_by or (), 1),
        "ecc_errors": sample.ecc_errors,
        "xid_errors": {str(xid): count for xid, count in sample.xids.items()},
    }


def _tenants_by_workload(device: DeviceInfo, *, look: Look) -> dict[str, float]:
    kinds = [
        (tenant.workload or "Unspecified").lower()
        for tenant in look.tenants
        if promised_milli(tenant, uuid=device.uuid)
    ]
    return {kind: kinds.count(kind) for kind in _WORKLOADS}
