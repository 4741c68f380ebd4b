"""When running jobs free their devices: limits, leases, defaults, leaving pods. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail.api.builtin import Job, Pod, is_terminated
from dovetail.api.gpujob import GPUJob
from dovetail.formats.durations import moment
from dovetail.jobs.batch_job import deadline_seconds
from dovetail.pods.demand import fields_of
from dovetail.queue.estimates.expectations import Expectations
from dovetail.queue.model.candidates import DAY_SECONDS, SOON_SECONDS, Leaving, seconds_left

# Kubernetes' default termination grace period.
_GRACE_SECONDS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that is assumed to last `seconds` from its `start`, and the keys of its claims.

    `start` is None before the run starts. A `limited` run lasts no longer than `seconds`.
    """

    job: GPUJob
    start: datetime | None
    seconds: float
    limited: bool
    held: tuple[str, ...]

    def leaving(self, *, now: datetime, learned: Expectations | None = None) -> list[Leaving]:
        """The end of each claim as assumed, and the likely end if `learned` has runs of such jobs."""
        if self.start is None or not self.held:
            return []
        ran = (now - self.start).total_seconds()
        at = seconds_left(self.seconds, ran=ran, limited=self.limited)
        likely, within = (None, None) if learned is None else self._expected(learned, ran=ran, at_most=at)
        return [
            Leaving(
                key=key,
                job=self.job.metadata.uid,
                at_seconds=at,
                assumed=not self.limited,
                likely_seconds=likely,
                likely_range=within,
            )
            for key in self.held
        ]

    def _expected(
        self, learned: Expectations, *, ran: float, at_most: float
    ) -> tuple[float | None, tuple[float, ...] | None]:
        """Seconds until the likely end, and the bounds of equally likely intervals of the end."""
        in_all = learned.run_seconds(self.job, so_far_seconds=ran)
        parts = learned.range_seconds(self.job, so_far_seconds=ran)
        likely = None if in_all is None else min(at_most, max(0.0, in_all - ran))
        return likely, None if parts is None else tuple(min(at_most, max(0.0, part - ran)) for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """The assumed run time of jobs without a time limit, in seconds."""

    default_seconds: float = DAY_SECONDS
    by_namespace: Mapping[str, float] = field(default_factory=dict)

    def run_seconds(self, job: GPUJob, *, child: Job | None = None) -> float:
        """Seconds from its start for which the job is assumed to hold its devices."""
        limit = deadline_seconds(job, child=child)
        if limit is None:
            return self.by_namespace.get(job.metadata.namespace, self.default_seconds)
        return limit + _grace_seconds(job)

    def run_of(self, job: GPUJob, *, child: Job, pods: Iterable[Pod]) -> Run:
        """The job's run, from its batch Job and the pods of that batch Job."""
        start = child.status.start_time
        return Run(
            job=job,
            start=None if start is None else moment(start),
            seconds=self.run_seconds(job, child=child),
            limited=is_limited(job),
            held=tuple(pod.metadata.uid for pod in pods if _holds(pod) and not pod.metadata.deletion_timestamp),
        )


def is_limited(job: GPUJob) -> bool:
    """Whether the job has a limit that always ends it. A lease does not: it may be renewed."""
    return job.spec.reservation is None and deadline_seconds(job) is not None


def leaving_soon(pods: Iterable[Pod]) -> list[Leaving]:
    """The ends of pods that are being deleted, or whose job no longer runs."""
    return [Leaving(key=pod.metadata.uid, job=pod.metadata.uid, at_seconds=SOON_SECONDS) for pod in pods if _holds(pod)]


def _holds(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and not is_terminated(pod)


class _Ending(msgspec.Struct, frozen=True, rename="camel"):
    """The termination grace period in a job's template."""

    termination_grace_period_seconds: Any = None


def leave_seconds(job: GPUJob) -> float | None:
    """How long the pods of the job take at most to end, once they have to; None if it may not be preempted."""
    return float(_grace_seconds(job)) if job.spec.preemptible else None


def _grace_seconds(job: GPUJob) -> int:
    grace = fields_of(job, as_type=_Ending).termination_grace_period_seconds
    return grace if isinstance(grace, int) else _GRACE_SECONDS
