"""The extender's Prometheus metrics.

Every label has a bounded set of values: verbs, policies, kinds of refusal, results of binds, states of holds, causes of
devices that take no work, kinds of objects.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dovetail.api.gpunode import Cause
from dovetail.engine.ledger.ledger import Ledger
from dovetail.kube.unreadable_objects import UnreadableCollector

HOLD_STATES: Final = ("decided", "nominated", "planned", "reserved", "binding")
_MIB: Final = 1 << 20
_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_NODES: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The extender's state at the time of a scrape.

    `holds` counts holds by state: decided (prioritize chose a node), nominated (victims are leaving), planned (a worker
    of a plan is not bound yet), reserved (kept for a waiting job), binding (sent, and not in the cache yet).
    """

    in_office: bool = False
    waiting_pods: int = 0
    holds: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(HOLD_STATES, 0))
    unsettled_binds: int = 0
    fragmented_gpus: float = 0.0
    idle_gpus: float = 0.0
    ages_seconds: Mapping[str, float] = field(default_factory=dict)


class Metrics:
    """The extender's metrics in a registry of their own."""

    def __init__(self, *, ledger: Ledger, read: Callable[[], Reading]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(UnreadableCollector())
        self.duration = Histogram(
            "dovetail_extender_request_duration_seconds",
            "Time to answer a request of kube-scheduler.",
            ["verb"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.nodes_in = Histogram(
            "dovetail_extender_nodes_in",
            "Nodes in a request of kube-scheduler.",
            ["verb"],
            buckets=_NODES,
            registry=self.registry,
        )
        self.nodes_out = Histogram(
            "dovetail_extender_nodes_out",
            "Nodes that filter answered with.",
            buckets=(0, *_NODES),
            registry=self.registry,
        )
        self.refusals = Counter(
            "dovetail_extender_refusals",
            "Nodes that filter refused, by kind of refusal.",
            ["kind"],
            registry=self.registry,
        )
        self.decisions = Counter(
            "dovetail_extender_decisions",
            "Answers to filter by the policy of the pod, and whether any node fitted.",
            ["policy", "outcome"],
            registry=self.registry,
        )
        self.binds = Counter(
            "dovetail_extender_binds", "Binds by what became of them.", ["result"], registry=self.registry
        )
        self.bad_requests = Counter(
            "dovetail_extender_bad_requests",
            "Requests whose body could not be read.",
            ["verb"],
            registry=self.registry,
        )
        self.refused_clients = Counter(
            "dovetail_extender_refused_clients",
            "Requests over mutual TLS whose client's certificate has no allowed name, or has expired.",
            registry=self.registry,
        )
        self.client_expiry = Gauge(
            "dovetail_extender_client_certificate_expiry_timestamp_seconds",
            "When the certificate expires that kube-scheduler last showed over mutual TLS; 0 without one.",
            registry=self.registry,
        )
        self.wakeups = Counter(
            "dovetail_extender_wakeups",
            "Times that kube-scheduler was made to look again at pods that were refused.",
            registry=self.registry,
        )
        self.registry.register(_State(ledger=ledger, read=read))


class _State(Collector):
    """Gauges that are computed from the state at each scrape."""

    def __init__(self, *, ledger: Ledger, read: Callable[[], Reading]) -> None:
        self._ledger = ledger
        self._read = read

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering does not call `collect` before the state exists."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges with their current values."""
        totals = self._ledger.totals()
        yield _gauge("devices", text="Healthy devices of the cluster.", value=totals.devices)
        closed = dict.fromkeys(get_args(Cause), 0) | self._ledger.closed_devices()
        yield _by("closed_devices", text="Devices that take no new work, by cause.", cause=closed)
        yield _gauge("share_milli", text="Compute of these devices, in thousandths of one.", value=totals.milli)
        yield _gauge(
            "promised_share_milli", text="Compute that is promised, in thousandths.", value=totals.promised_milli
        )
        yield _gauge("memory_bytes", text="Device memory that could be promised.", value=totals.memory_mib * _MIB)
        yield _gauge("promised_memory_bytes", text="Device memory that is promised.", value=totals.promised_mib * _MIB)
        found = self._read()
        yield _gauge(
            "fragmented_gpus", text="Idle compute that no pod of the usual mix could use.", value=found.fragmented_gpus
        )
        yield _gauge("idle_gpus", text="Idle compute.", value=found.idle_gpus)
        yield _gauge("waiting_pods", text="Pods that were refused and wait.", value=found.waiting_pods)
        yield _by("holds", text="Promises to pods that are not seen bound yet.", state=found.holds)
        yield _gauge("unsettled_binds", text="Binds whose result is not known yet.", value=found.unsettled_binds)
        yield _gauge("lease_held", text="1 while this extender may bind, else 0.", value=found.in_office)
        yield _by(
            "cache_age_seconds",
            text="Time since the API server last said anything about these objects.",
            kind=found.ages_seconds,
        )


def _gauge(name: str, *, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"dovetail_extender_{name}", text, value=value)


def _by(name: str, *, text: str, **values: Mapping[str, float]) -> Metric:
    """A gauge with one label, named after the keyword argument."""
    ((label, by_value),) = values.items()
    family = GaugeMetricFamily(f"dovetail_extender_{name}", text, labels=[label])
    for value, number in by_value.items():
        family.add_metric([value], number)
    return family
