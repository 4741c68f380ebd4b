"""When what running jobs hold ends: by their limits and leases, as configured, or because their pods leave. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.formats.durations import moment
from dovetail.jobs.deadlines import deadline_seconds
from dovetail.pods.demand import fields_of
from dovetail.queue.estimates.expectations import Expectations
from dovetail.queue.model.candidates import DAY_SECONDS, Leaving

# What Kubernetes gives a container to end when its time is over.
_GRACE_SECONDS: Final = 30
_ENDED: Final = frozenset({"Succeeded", "Failed"})
# What is assumed of pods that are about to go, and the least of a job that runs longer than it was taken to.
_SOON_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that is taken to last `seconds` from its `start`, and the keys of the claims that it holds till then.

    None for a run that has not started yet. Where it is `limited` it lasts no longer than that.
    """

    job: GPUJob
    start: datetime | None
    seconds: float
    limited: bool
    held: tuple[str, ...]

    def leaving(self, *, now: datetime, learned: Expectations | None = None) -> list[Leaving]:
        """When what it holds is taken to end, and by what is `learned` of such jobs is likely to."""
        if self.start is None or not self.held:
            return []
        ran = (now - self.start).total_seconds()
        at = self.seconds - ran
        if at <= 0:
            # Nothing ends a job without a limit: it may well go on as long again.
            at = _SOON_SECONDS if self.limited else max(_SOON_SECONDS, ran)
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
        """In how many seconds it is likely to end, and between which with the same chance."""
        in_all = learned.run_seconds(self.job, so_far_seconds=ran)
        parts = learned.range_seconds(self.job, so_far_seconds=ran)
        likely = None if in_all is None else min(at_most, max(0.0, in_all - ran))
        return likely, None if parts is None else tuple(min(at_most, max(0.0, part - ran)) for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """How long jobs without a time limit are taken to run."""

    default_seconds: float = DAY_SECONDS
    by_namespace: Mapping[str, float] = field(default_factory=dict)

    def run_seconds(self, job: GPUJob, *, child: Job | None = None) -> float:
        """How long the job is taken to hold its devices, from its start."""
        limit = deadline_seconds(job, child=child)
        if limit is None:
            return self.by_namespace.get(job.metadata.namespace, self.default_seconds)
        return limit + _grace_seconds(job)

    def run_of(self, job: GPUJob, child: Job, pods: Iterable[Pod]) -> Run:
        """The job's run by its batch Job and that one's pods."""
        start = child.status.start_time
        return Run(
            job=job,
            start=None if start is None else moment(start),
            seconds=self.run_seconds(job, child=child),
            limited=is_limited(job),
            held=tuple(pod.metadata.uid for pod in pods if _holds(pod) and not pod.metadata.deletion_timestamp),
        )


def is_limited(job: GPUJob) -> bool:
    """Whether something ends the job in time, whatever happens: a lease does not, it may be renewed."""
    return job.spec.reservation is None and deadline_seconds(job) is not None


def leaving_soon(pods: Iterable[Pod]) -> list[Leaving]:
    """The ends of pods that are being deleted, or whose job does not run any more."""
    return [
        Leaving(key=pod.metadata.uid, job=pod.metadata.uid, at_seconds=_SOON_SECONDS) for pod in pods if _holds(pod)
    ]


def _holds(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase not in _ENDED


class _Ending(msgspec.Struct, frozen=True, rename="camel"):
    """Of a template how long its pods may take to end."""

    termination_grace_period_seconds: Any = None


def _grace_seconds(job: GPUJob) -> int:
    grace = fields_of(job, _Ending).termination_grace_period_seconds
    return grace if isinstance(grace, int) else _GRACE_SECONDS
