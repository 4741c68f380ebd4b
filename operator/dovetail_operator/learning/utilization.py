"""The mean utilization of a job's devices while it ran, from the agents' reports.

In memory, no I/O.

A report counts until the next one. The job's status has the mean so far, and a restarted operator continues from it.
Only what came after the last status write is lost.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dovetail.api.gpujob import GPUJob, Measured
from dovetail.api.gpunode import GPUNode
from dovetail.engine.model.claims import Claim


@dataclass(slots=True)
class _Sum:
    """One job's sum of utilization times seconds, and each device's last report with its time."""

    weighted: float = 0.0
    seconds: float = 0.0
    last: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, uuid: str, *, until: float) -> None:
        value, since = self.last.pop(uuid)
        self.weighted += value * (until - since)
        self.seconds += until - since


class Utilization:
    """The measurements of each job, by its UID. `clock` is monotonic, in seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sums: dict[str, _Sum] = {}

    def reported(self, gpunode: GPUNode, *, claims: Iterable[Claim], jobs: Mapping[str, GPUJob]) -> None:
        """Add an agent's report.

        `claims` are those on its node, `jobs` the GPUJobs by their pods' UIDs.
        """
        now = self._clock()
        values = {device.uuid: device.utilization for device in gpunode.status.devices}
        for claim in claims:
            job = jobs.get(claim.key)
            if job is None:
                continue
            held = self._sums.setdefault(job.metadata.uid, _begun(job))
            for device in claim.devices:
                if device.uuid in held.last:
                    held.add(device.uuid, until=now)
                if (value := values.get(device.uuid)) is not None:
                    held.last[device.uuid] = (value, now)

    def measure(self, job: GPUJob, *, running: bool) -> Measured | None:
        """The mean utilization (0-1) so far. Once the pods have ended, nothing more is added."""
        held = self._sums.get(job.metadata.uid)
        if held is None:
            return job.status.measured
        now = self._clock()
        for uuid, (value, _) in list(held.last.items()):
            held.add(uuid, until=now)
            if running:
                held.last[uuid] = (value, now)
        if held.seconds <= 0:
            return job.status.measured
        mean = min(1.0, max(0.0, held.weighted / held.seconds))
        return Measured(mean_utilization=round(mean, 3), device_seconds=round(held.seconds, 1))

    def drop(self, job: GPUJob) -> None:
        """Drop a deleted job."""
        self._sums.pop(job.metadata.uid, None)


def _begun(job: GPUJob) -> _Sum:
    measured = job.status.measured
    return (
        _Sum()
        if measured is None
        else _Sum(measured.mean_utilization * measured.device_seconds, measured.device_seconds)
    )
