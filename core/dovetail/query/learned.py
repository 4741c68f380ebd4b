"""Estimates learned from the cluster's jobs: run times, memory and arrivals. Pure."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.cluster.view import ClusterView
from dovetail.config.settings import Settings
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.ranking import Rankings
from dovetail.gpu.memory_strategy import AGGRESSIVE, FRACTIONS
from dovetail.gpu.request import RequestError
from dovetail.jobs.batch_job import is_guests
from dovetail.jobs.memory_use import Learning
from dovetail.pods.demand import as_started, ask_of_job
from dovetail.pods.device_plugin import asks_by_kind
from dovetail.pods.options.annotations import check_job
from dovetail.queue.estimates.calibration import calibration_in
from dovetail.queue.estimates.expectations import Expectations


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The estimates that the operator has after it has seen the same jobs."""

    expectations: Expectations
    memory: Learning
    settings: Settings
    rankings: Rankings
    view: ClusterView

    def ways_of(self, job: GPUJob, *, child: Job | None) -> tuple[Ask, ...]:
        """The ways to meet each worker's request, with its estimated memory. Raises `RequestError`."""
        ranking, vendors = self.rankings.of(job.metadata.namespace), self.view.vendors
        if child is None and job.status.placement is None:
            check_job(job, ranking=ranking)
        ask = ask_of_job(job, ranking=ranking, vendors=vendors, levels=self.settings.levels)
        ways = asks_by_kind(ask, vendors=vendors)
        # The webhook has completed a guest's pods for the first kind of node.
        ways = ways[:1] if is_guests(job) else ways
        use = self.memory.use_of(job, ask=ways[0], child=child, most_mib=self._most_mib)
        return tuple(as_started(way, job=job, use=use) for way in ways)

    def readable_ways(self, job: GPUJob, *, child: Job | None) -> tuple[Ask, ...]:
        """The same as `ways_of`, but empty for an unreadable request."""
        try:
            return self.ways_of(job, child=child)
        except RequestError:
            return ()

    def _most_mib(self) -> int:
        return int(self.view.ledger.largest_mib * FRACTIONS[AGGRESSIVE])


def learned_from(
    jobs: Sequence[GPUJob], *, settings: Settings, view: ClusterView, estimates: Mapping[str, str]
) -> Learned:
    """Learn from these jobs, and from `estimates`: what the operator has learned of its own, which no job shows."""
    expectations = Expectations()
    with suppress(ValueError):
        if (known := calibration_in(estimates)) is not None:
            expectations.misses.restore(known.factors, held=known.held)
    memory = Learning(default=settings.memory_guard, look_seconds=settings.monitor_update_interval)
    puts: tuple[Callable[[GPUJob], None], ...] = (expectations.observe, memory.observe)
    for job in jobs:
        for put in puts:
            put(job)
    return Learned(expectations=expectations, memory=memory, settings=settings, rankings=settings.rankings, view=view)
