"""The progress of a campaign, from its observed jobs. No I/O; the clock is an argument."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail.api.gpujob import FINISHED, GPUJob
from dovetail.api.gpunode import Device
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.query.jobs.states import phase_of
from dovetail_cli.replay.device_holders import allocated_milli

# Reasons that remain even when other jobs end. The report lists such a job, and the campaign does not wait for it.
HOPELESS: Final = frozenset({"ExceedsCapacity", "Invalid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of a campaign's jobs by state; with those not submitted yet, they add up to `jobs`.

    jobs             all jobs of the campaign
    submitted        accepted by the API server
    waiting          without a place, with the hopeless ones
    hopeless         waiting for a reason that remains even when other jobs end
    running          with a place, and not ended
    succeeded        ended with success
    failed           ended otherwise
    allocated_milli  compute that they hold now, in thousandths of a device
    reasons          how many wait for each reason
    """

    jobs: int
    submitted: int
    waiting: int
    hopeless: int
    running: int
    succeeded: int
    failed: int
    allocated_milli: int
    reasons: Counter[str]

    @property
    def done(self) -> bool:
        """Whether all are submitted and none is worth waiting for."""
        return self.submitted == self.jobs and self.waiting == self.hopeless and self.running == 0


@dataclass(slots=True, kw_only=True)
class Tally:
    """What was seen of each job, by name, with the seconds since the campaign began."""

    jobs: int
    nodes: Mapping[str, Sequence[Device]]
    seen: dict[str, GPUJob] = field(default_factory=dict)
    submitted_at: dict[str, float] = field(default_factory=dict)
    placed_at: dict[str, float] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    changed_at: float = 0.0
    _samples: list[tuple[float, int]] = field(default_factory=list)

    def submitted(self, name: str, *, at: float) -> None:
        """The API server took a job."""
        self.submitted_at[name] = self.changed_at = at

    def saw(self, job: GPUJob, *, at: float) -> None:
        """A job was added or changed."""
        name = job.metadata.name
        before = self.seen.get(name)
        self.seen[name] = job
        if before is None or phase_of(before) != phase_of(job):
            self.changed_at = at
        if name not in self.placed_at and job.status.nodes:
            self.placed_at[name] = at

    def gone(self, name: str) -> None:
        """Record that a job was deleted."""
        self.seen.pop(name, None)
        self.deleted.add(name)

    def counts(self) -> Counts:
        """How things are now."""
        phases = Counter(phase_of(job) for job in self.seen.values())
        waiting = [job for job in self.seen.values() if is_waiting(job)]
        reasons = Counter(job.status.reason or "Evaluating" for job in waiting)
        # Accepted by the API server, but not yet in the watch.
        unseen = len(self.submitted_at.keys() - self.seen.keys() - self.deleted)
        reasons.update({"Evaluating": unseen} if unseen else {})
        ended = sum(phases[phase] for phase in FINISHED)
        return Counts(
            jobs=self.jobs,
            submitted=len(self.submitted_at),
            waiting=len(waiting) + unseen,
            hopeless=sum(reasons[reason] for reason in HOPELESS),
            running=len(self.seen) - len(waiting) - ended,
            succeeded=phases["Succeeded"],
            failed=ended - phases["Succeeded"] + len(self.deleted),
            allocated_milli=allocated_milli(self.seen.values()),
            reasons=reasons,
        )

    def sample(self, *, at: float) -> Counts:
        """Note how much is allocated now, for peak and mean; returns the standing."""
        standing = self.counts()
        self._samples.append((at, standing.allocated_milli))
        return standing

    @property
    def device_milli(self) -> int:
        """Compute of all devices together, in thousandths of one."""
        return WHOLE_MILLI * sum(map(len, self.nodes.values()))

    @property
    def peak_ratio(self) -> float:
        """The largest part of all devices' compute that was allocated at once (0-1)."""
        return self._ratio(max((milli for _, milli in self._samples), default=0))

    @property
    def mean_ratio(self) -> float:
        """The part that was allocated over time (0-1): each sample holds until the next."""
        pairs = list(zip(self._samples, self._samples[1:], strict=False))
        seconds = sum(later - at for (at, _), (later, _) in pairs)
        if seconds <= 0:
            return self.peak_ratio
        return self._ratio(sum(milli * (later - at) for (at, milli), (later, _) in pairs) / seconds)

    @property
    def waits_seconds(self) -> list[float]:
        """From the submission to the place, of every job that got one, in order of length."""
        return sorted(at - self.submitted_at.get(name, at) for name, at in self.placed_at.items())

    def _ratio(self, milli: float) -> float:
        return milli / self.device_milli if self.device_milli else 0.0


def is_waiting(job: GPUJob) -> bool:
    """Whether the job has no place yet."""
    return phase_of(job) in {"Queued", "Held", "Suspended", "Preempted"}


def quantile(ordered: list[float], *, ratio: float) -> float | None:
    """The quantile `ratio` of the ordered values, by the nearest rank; None without values."""
    return ordered[max(0, math.ceil(round(len(ordered) * ratio, 6)) - 1)] if ordered else None
