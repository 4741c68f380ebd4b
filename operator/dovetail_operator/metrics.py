"""The operator's metrics: counted as events happen, or read from the state at a scrape."""

from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from dovetail.api.gpujob import Phase, Reason
from dovetail.kube.unreadable_objects import UnreadableCollector
from dovetail_operator.state.state import State
from dovetail_operator.watchers.node_tenants import NodeTenants

_WAITING: Final = frozenset({None, "Queued", "Preempted", "Held", "Suspended"})
_WAITS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Metrics that are counted as events happen."""

    admissions: Counter
    reconcile_seconds: Histogram
    cycle_seconds: Histogram
    wait_seconds: Histogram
    overuse_evictions: Counter


def make_counters(registry: CollectorRegistry) -> Counters:
    """Create and register the counters."""
    return Counters(
        admissions=Counter("dovetail_admissions", "Jobs that the queue has admitted.", registry=registry),
        reconcile_seconds=Histogram(
            "dovetail_reconcile_duration_seconds", "Time to bring one job to what it should be.", registry=registry
        ),
        cycle_seconds=Histogram(
            "dovetail_queue_cycle_duration_seconds", "Time of one look at all jobs that wait.", registry=registry
        ),
        wait_seconds=Histogram(
            "dovetail_job_wait_seconds",
            "Time from submission until the queue let a job go.",
            buckets=_WAITS,
            registry=registry,
        ),
        overuse_evictions=Counter(
            "dovetail_overuse_evictions",
            "Reports that asked to evict a pod for its memory, by what came of them.",
            ["result"],
            registry=registry,
        ),
    )


def register_collectors(registry: CollectorRegistry, *, state: State, tenants: NodeTenants | None) -> None:
    """Register what is read at a scrape. `tenants` is None if the operator writes none."""
    registry.register(JobsCollector(state))
    registry.register(UnreadableCollector())
    if tenants is not None:
        registry.register(TenantsCollector(tenants))


class TenantsCollector(Collector):
    """How often the tenants of a node were written for its agent."""

    def __init__(self, tenants: NodeTenants) -> None:
        self._tenants = tenants

    def collect(self) -> Iterable[CounterMetricFamily]:
        """The metric family."""
        yield CounterMetricFamily(
            "dovetail_node_tenants_writes",
            "Writes of the objects that tell a node's programs of its pods.",
            value=self._tenants.writes_total,
        )


class JobsCollector(Collector):
    """Jobs by phase, and waiting jobs by reason. Both label sets are closed."""

    def __init__(self, state: State) -> None:
        self._state = state

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Count the jobs in the state."""
        jobs = GaugeMetricFamily("dovetail_jobs", "GPUJobs by phase.", labels=["phase"])
        waiting = GaugeMetricFamily(
            "dovetail_jobs_waiting", "GPUJobs that wait for admission or are held, by reason.", labels=["reason"]
        )
        statuses = [job.status for job in self._state.store.jobs.values()]
        phases = Tally(status.phase or "Queued" for status in statuses)
        reasons = Tally(status.reason or "Evaluating" for status in statuses if status.phase in _WAITING)
        for phase in get_args(Phase):
            jobs.add_metric([phase], phases[phase])
        for reason in get_args(Reason):
            waiting.add_metric([reason], reasons[reason])
        return [jobs, waiting]
