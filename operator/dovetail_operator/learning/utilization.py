"""The mean utilization of a job's devices while it ran, from the agents' reports.

In memory, no I/O.

A report counts until the next one. The agents carry the totals of each pod, from which a restarted operator continues;
the status has the mean over the job's ended runs.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dovetail.api.gpujob import GPUJob, Measured
from dovetail.api.gpunode import GPUNode, TenantTotal
from dovetail.engine.model.claims import Claim
from dovetail.jobs.device_totals import combined


@dataclass(slots=True)
class _Hold:
    """A device in the hands of a pod: utilization times seconds, seconds, and the last report with its time."""

    weighted: float = 0.0
    seconds: float = 0.0
    last: tuple[float, float] | None = None

    def count(self, *, until: float) -> None:
        if self.last is not None:
            value, since = self.last
            self.weighted += value * (until - since)
            self.seconds += until - since
            self.last = (value, until)

    def resume(self, total: TenantTotal) -> None:
        """Continue from what the agent has seen, if that is more: this process may have started later."""
        if total.seconds > self.seconds:
            self.weighted, self.seconds = total.mean_utilization * total.seconds, total.seconds


@dataclass(slots=True)
class _Job:
    """What the status had of ended runs when this process saw the job first, and each (pod, device) since."""

    before: Measured | None
    holds: dict[tuple[str, str], _Hold] = field(default_factory=dict)


class Utilization:
    """The measurements of each job, by its UID. `clock` is monotonic, in seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: dict[str, _Job] = {}

    def reported(self, gpunode: GPUNode, *, claims: Iterable[Claim], jobs: Mapping[str, GPUJob]) -> None:
        """Add an agent's report.

        `claims` are those on its node, `jobs` the GPUJobs by their pods' UIDs.
        """
        now = self._clock()
        devices = {device.uuid: device for device in gpunode.status.devices}
        for claim in claims:
            job = jobs.get(claim.key)
            if job is None:
                continue
            known = self._jobs.setdefault(job.metadata.uid, _Job(job.status.measured))
            for uuid in (device.uuid for device in claim.devices):
                hold = known.holds.setdefault((claim.key, uuid), _Hold())
                hold.count(until=now)
                device = devices.get(uuid)
                hold.last = None if device is None else (device.utilization, now)
                for total in () if device is None else device.totals:
                    if total.uid == claim.key:
                        hold.resume(total)

    def measure(self, job: GPUJob, *, running: bool) -> Measured | None:
        """The mean utilization (0-1) so far. Once the pods have ended, nothing more is added."""
        known = self._jobs.get(job.metadata.uid)
        if known is None:
            return job.status.measured
        now = self._clock()
        weighted = seconds = 0.0
        for hold in known.holds.values():
            hold.count(until=now)
            if not running:
                hold.last = None
            weighted += hold.weighted
            seconds += hold.seconds
        if seconds <= 0:
            return job.status.measured
        total = TenantTotal(uid="", mean_utilization=min(1.0, max(0.0, weighted / seconds)), seconds=seconds)
        return combined(known.before, totals=[total])

    def drop(self, job: GPUJob) -> None:
        """Drop a deleted job."""
        self._jobs.pop(job.metadata.uid, None)
