"""The agent's metrics, gathered when they are asked for. A figure that is not available has no sample."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dovetail_agent.agent import Agent, Look
from dovetail_agent.provider import DeviceInfo, DeviceSample
from dovetail_agent.tenants import promised_mib, promised_milli

_MIB: Final = 1 << 20
_LABELS: Final = ("node", "index", "uuid", "model")
_DEVICE_GAUGES: Final = {
    "utilization_ratio": "Utilization as measured, from 0 to 1.",
    "memory_total_bytes": "Total memory of the device.",
    "memory_used_bytes": "Memory in use as measured.",
    "temperature_celsius": "Temperature.",
    "power_watts": "Power draw.",
    "healthy": "1 where the device may take work, else 0.",
    "promised_share_ratio": "Share of the device's compute that pods were promised; above 1 where they take turns.",
    "promised_memory_bytes": "Memory that pods were promised.",
    "tenants": "Pods that were promised a part of the device.",
}


class AgentCollector(Collector):
    """All metrics of one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterator[Metric]:
        """As prometheus_client asks for it."""
        yield from self._devices()
        yield from self._agent_itself()

    def describe(self) -> Iterator[Metric]:
        """The same names without values: a registry must not look at nodes when it is filled."""
        return self.collect()

    def _devices(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(f"dovetail_device_{name}", text, labels=_LABELS)
            for name, text in _DEVICE_GAUGES.items()
        }
        for node, look in self._agent.looks.items():
            for labels, values in _readings(node, look):
                for name, value in values.items():
                    if value is not None:
                        families[name].add_metric(labels, value)
        yield from families.values()

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
        age = GaugeMetricFamily(
            "dovetail_agent_cache_age_seconds",
            "Time since the API server last said anything on a watch.",
            labels=["resource"],
        )
        for reflector in self._agent.reflectors:
            age.add_metric([reflector.resource.plural], reflector.age_seconds)
        yield age


def _readings(node: str, look: Look) -> Iterator[tuple[list[str], dict[str, float | None]]]:
    if look.inventory is None or look.sample is None:
        return
    for device, sample in zip(look.inventory.devices, look.sample.devices, strict=True):
        yield [node, str(device.index), device.uuid, device.model], _values(device, sample, look=look)


def _values(device: DeviceInfo, sample: DeviceSample, *, look: Look) -> dict[str, float | None]:
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
    }
