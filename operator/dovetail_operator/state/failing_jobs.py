"""Jobs on which our own code fails: each is told so, and tried again after a while, later each time. No I/O.

What it fails on may lie in the cluster and pass, or in the job and stay: then it costs a look every few minutes.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.jobs.obstacle import Obstacle
from dovetail.logs import get_logger

log = get_logger("dovetail.operator")

_FIRST_SECONDS: Final = 30.0
_LONGEST_SECONDS: Final = 300.0


@dataclass(slots=True)
class _Failure:
    """That it fails on a generation of the job; `until` it is not tried again, None until somebody asks."""

    generation: int
    message: str
    times: int
    until: datetime | None = None
    tried: bool = False


class Failing:
    """The jobs, by UID."""

    def __init__(self) -> None:
        self._known: dict[str, _Failure] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def note(self, job: GPUJob, error: Exception) -> bool:
        """It fails on this generation of the job. False where that is known and it is not time for another try."""
        known = self._known.get(job.metadata.uid)
        again = known is not None and known.generation == job.metadata.generation
        if known is not None and again and not known.tried:
            return False
        if not again:
            log.error("job cannot be handled", exc_info=error, job=key_of(job.metadata))
        message = f"Dovetail fails on this job, which is a fault of its own: {type(error).__name__}: {error}"
        times = known.times + 1 if known is not None and again else 1
        self._known[job.metadata.uid] = _Failure(job.metadata.generation, message, times)
        return True

    def obstacle_of(self, job: GPUJob, *, now: datetime) -> Obstacle | None:
        """What the job is told; None where nothing has failed on it, or where it is time to try it again."""
        known = self._known.get(job.metadata.uid)
        if known is None or known.generation != job.metadata.generation or known.tried:
            return None
        if known.until is None:
            seconds = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(10, known.times - 1))
            known.until = now + timedelta(seconds=seconds)
        known.tried = known.until <= now
        return None if known.tried else Obstacle(message=known.message, until=known.until)

    def is_tried(self, job: GPUJob) -> bool:
        """Whether it has failed on this generation of the job, which is now being tried again."""
        known = self._known.get(job.metadata.uid)
        return known is not None and known.generation == job.metadata.generation and known.tried

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._known.pop(uid, None)
