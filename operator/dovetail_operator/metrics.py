"""The operator's metrics: counted as events happen, or read from the state at a scrape."""

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, get_args

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from dovetail.api.gpujob import GPUJob, Phase, Reason
from dovetail.api.historyquery import OTHERS
from dovetail.api.meta import find_condition
from dovetail.api.reasons.codes import REASONS
from dovetail.formats.durations import moment
from dovetail.jobs.records import gpus_held
from dovetail.kube.leader_election import Leadership
from dovetail.kube.unreadable_objects import UnreadableCollector
from dovetail_operator.state.state import State
from dovetail_operator.watchers.node_tenants import NodeTenants

_WAITING: Final = frozenset({None, "Queued", "Preempted", "Held", "Suspended"})
_QUEUED: Final = frozenset({"Queued", "Preempted"})
_FOR_CAPACITY: Final = frozenset(each.code for each in REASONS.values() if each.resolved_by == "capacity")
# The maximum number of namespaces with series of their own. All others are summed up under one name.
_MOST_NAMESPACES: Final = 500
_WAITS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Metrics that are counted as events happen."""

    admissions: Counter
    reconcile_seconds: Histogram
    cycle_seconds: Histogram
    wait_seconds: Histogram
    overuse_evictions: Counter
    preemptions: Counter
    move_plans: Counter


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
        preemptions=Counter("dovetail_preemptions", "Jobs that have lost their GPUs to others.", registry=registry),
        move_plans=Counter(
            "dovetail_move_plans",
            "Plans of moves that start a waiting job: reported (Plan) or carried out (Apply).",
            ["result"],
            registry=registry,
        ),
    )


def register_collectors(
    registry: CollectorRegistry,
    *,
    state: State,
    tenants: NodeTenants | None,
    office: Leadership,
    now: Callable[[], datetime],
) -> None:
    """Register what is read at a scrape. `tenants` is None if the operator writes none."""
    registry.register(JobsCollector(state))
    registry.register(NamespacesCollector(state, now=now))
    registry.register(NamespaceQueuesCollector(state))
    registry.register(QuotasCollector(state))
    registry.register(LeaseCollector(office))
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
    """Jobs by phase, and waiting jobs by reason with the age of the oldest. Both label sets are closed."""

    def __init__(self, state: State) -> None:
        self._state = state

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Count the jobs in the state."""
        jobs = GaugeMetricFamily("dovetail_jobs", "GPUJobs by phase.", labels=["phase"])
        waiting = GaugeMetricFamily(
            "dovetail_jobs_waiting", "GPUJobs that wait for admission or are held, by reason.", labels=["reason"]
        )
        oldest = GaugeMetricFamily(
            "dovetail_jobs_oldest_waiting_timestamp_seconds",
            "When the oldest of the waiting GPUJobs with this reason was created.",
            labels=["reason"],
        )
        phases, reasons, created = Tally[str](), Tally[str](), dict[str, str]()
        for job in self._state.store.jobs.values():
            phases[job.status.phase or "Queued"] += 1
            if job.status.phase in _WAITING:
                reason = job.status.reason or "Evaluating"
                reasons[reason] += 1
                # RFC 3339 in UTC sorts as text.
                created[reason] = min(created.get(reason, "~"), job.metadata.creation_timestamp)
        for phase in get_args(Phase):
            jobs.add_metric([phase], phases[phase])
        for reason in get_args(Reason):
            waiting.add_metric([reason], reasons[reason])
        for reason, time in created.items():
            oldest.add_metric([reason], moment(time).timestamp())
        return [jobs, waiting, oldest]


class NamespacesCollector(Collector):
    """The GPUs that running jobs hold and leave idle, by namespace. The 500 with the most GPUs have own series."""

    def __init__(self, state: State, *, now: Callable[[], datetime]) -> None:
        self._state = state
        self._now = now

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Sum up the running jobs of the state."""
        held = GaugeMetricFamily(
            "dovetail_gpus_held", "GPUs that running jobs hold; a share counts as its part.", labels=["namespace"]
        )
        idle = GaugeMetricFamily(
            "dovetail_gpus_held_idle",
            "GPUs held by running jobs, times the idle part of the job's busiest device.",
            labels=["namespace"],
        )
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for job in self._state.store.jobs.values():
            if job.status.phase == "Running" and job.status.devices:
                gpus = gpus_held(job)
                utilization = self._state.store.utilization_of(job, now=self._now())
                of_namespace = sums[job.metadata.namespace]
                of_namespace[0] += gpus
                of_namespace[1] += gpus * (0.0 if utilization is None else 1.0 - utilization)
        ordered = sorted(sums.items(), key=lambda item: -item[1][0])
        for namespace, (gpus, unused) in ordered[:_MOST_NAMESPACES]:
            held.add_metric([namespace], gpus)
            idle.add_metric([namespace], unused)
        if rest := ordered[_MOST_NAMESPACES:]:
            held.add_metric([OTHERS], sum(gpus for _, (gpus, _idle) in rest))
            idle.add_metric([OTHERS], sum(unused for _, (_gpus, unused) in rest))
        return [held, idle]


class NamespaceQueuesCollector(Collector):
    """The jobs that wait for capacity, by namespace. The 500 with the most such jobs have own series."""

    def __init__(self, state: State) -> None:
        self._state = state

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Count the waiting jobs of the state."""
        waiting = GaugeMetricFamily(
            "dovetail_namespace_jobs_waiting",
            "GPUJobs that wait for capacity, of each namespace with GPUJobs.",
            labels=["namespace"],
        )
        oldest = GaugeMetricFamily(
            "dovetail_namespace_oldest_waiting_timestamp_seconds",
            "When the oldest GPUJob that waits for capacity was created.",
            labels=["namespace"],
        )
        next_start = GaugeMetricFamily(
            "dovetail_namespace_next_start_timestamp_seconds",
            "The earliest estimated start of a GPUJob that waits for capacity.",
            labels=["namespace"],
        )
        queues: dict[str, list[GPUJob]] = {}
        for job in self._state.store.jobs.values():
            # A namespace whose jobs all run has an empty queue: an autoscaler takes an absent one for an unknown one.
            queues.setdefault(job.metadata.namespace, [])
            if job.status.phase in _QUEUED and job.status.reason in _FOR_CAPACITY:
                queues[job.metadata.namespace].append(job)
        ordered = sorted(queues.items(), key=lambda item: -len(item[1]))
        rest = [job for _, jobs in ordered[_MOST_NAMESPACES:] for job in jobs]
        for namespace, jobs in [*ordered[:_MOST_NAMESPACES], *([(OTHERS, rest)] if rest else [])]:
            waiting.add_metric([namespace], len(jobs))
            if jobs:
                # RFC 3339 in UTC sorts as text.
                oldest.add_metric([namespace], moment(min(job.metadata.creation_timestamp for job in jobs)).timestamp())
            if starts := [
                place.estimated_start for job in jobs if (place := job.status.queue) and place.estimated_start
            ]:
                next_start.add_metric([namespace], moment(min(starts)).timestamp())
        return [waiting, oldest, next_start]


class QuotasCollector(Collector):
    """What the quotas of a tree guarantee, use, lend and borrow, and what waits within a guarantee."""

    def __init__(self, state: State) -> None:
        self._state = state

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The metric families; of at most as many quotas as namespaces have series of their own."""
        labels = ["quota", "kind"]
        family = GaugeMetricFamily("dovetail_quota_gpus", "GPUs of a GPUQuota in a tree, by kind.", labels=labels)
        of_memory = GaugeMetricFamily(
            "dovetail_quota_memory_bytes", "Device memory of a GPUQuota in a tree, by kind.", labels=labels
        )
        wrong = GaugeMetricFamily(
            "dovetail_quota_contradictory", "1 while a GPUQuota contradicts its tree, otherwise 0.", labels=["quota"]
        )
        expected, error = (
            GaugeMetricFamily(f"dovetail_quota_forecast_{name}", text, labels=["quota"])
            for name, text in (
                ("gpus", "GPUs that the jobs of a GPUQuota are expected to request at most in this hour of the week."),
                ("error_gpus", "Mean absolute error of the forecasts of past hours in GPUs."),
            )
        )
        for quota in self._state.store.quotas.all[:_MOST_NAMESPACES]:
            if (forecast := quota.status.forecast) is not None and forecast.hours:
                error.add_metric([quota.metadata.name], forecast.error)
            if forecast is not None and forecast.expected is not None:
                expected.add_metric([quota.metadata.name], forecast.expected)
            if (valid := find_condition(quota.status.conditions, type="Valid")) is not None:
                wrong.add_metric([quota.metadata.name], float(valid.status == "False"))
            known = quota.status.guarantee
            if known is None:
                continue
            kinds = {
                "guaranteed": known.gpus,
                "used": known.used,
                "lent": known.lent,
                "borrowed": known.borrowed,
                "waiting": known.waiting,
            }
            for kind, gpus in kinds.items():
                family.add_metric([quota.metadata.name, kind], gpus)
            if known.memory is not None:
                for name, mib in msgspec.structs.asdict(known.memory).items():
                    of_memory.add_metric([quota.metadata.name, name.removesuffix("_mib")], mib << 20)
        return [family, of_memory, wrong, expected, error]


class LeaseCollector(Collector):
    """Whether this operator may act."""

    def __init__(self, office: Leadership) -> None:
        self._office = office

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The metric family."""
        yield GaugeMetricFamily(
            "dovetail_operator_lease_held",
            "1 while this operator holds the lease and acts, otherwise 0.",
            value=float(self._office.remaining_seconds > 0),
        )
