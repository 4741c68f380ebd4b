"""Jobs on which our own code fails: reported to the user and retried with a growing delay.

No I/O.

The cause may lie in the cluster and pass, or in the job and stay. A lasting cause costs one attempt every 300 s.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.start import OWN_FAULT
from dovetail.jobs.obstacle import Obstacle
from dovetail.logs import get_logger

log = get_logger("dovetail.operator")

_FIRST_SECONDS: Final = 30.0
_LONGEST_SECONDS: Final = 300.0


@dataclass(slots=True)
class _Failure:
    """A failure on one generation of a job.

    `until` is the time of the next attempt, None before `obstacle_of` is first called. `tried`: the next attempt is
    due.
    """

    generation: int
    why: Sentence
    times: int
    until: datetime | None = None
    tried: bool = False


class Failing:
    """The failing jobs, by UID."""

    def __init__(self) -> None:
        self._known: dict[str, _Failure] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def record(self, job: GPUJob, *, error: Exception) -> bool:
        """Record a failure on this generation. False if it is known and no retry was due."""
        known = self._known.get(job.metadata.uid)
        again = known is not None and known.generation == job.metadata.generation
        if known is not None and again and not known.tried:
            return False
        if not again:
            log.error("job cannot be handled", exc_info=error, job=key_of(job.metadata))
        why = OWN_FAULT(error=f"{type(error).__name__}: {error}")
        times = known.times + 1 if known is not None and again else 1
        self._known[job.metadata.uid] = _Failure(job.metadata.generation, why, times)
        return True

    def obstacle_of(self, job: GPUJob, *, now: datetime) -> Obstacle | None:
        """The obstacle that the job's status shows; None if nothing failed or a retry is due."""
        known = self._known.get(job.metadata.uid)
        if known is None or known.generation != job.metadata.generation or known.tried:
            return None
        if known.until is None:
            seconds = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(10, known.times - 1))
            known.until = now + timedelta(seconds=seconds)
        known.tried = known.until <= now
        return None if known.tried else replace(Obstacle.of(known.why), until=known.until)

    def is_tried(self, job: GPUJob) -> bool:
        """Whether our code failed on this generation of the job and now retries it."""
        known = self._known.get(job.metadata.uid)
        return known is not None and known.generation == job.metadata.generation and known.tried

    def forget(self, uid: str) -> None:
        """Drop a deleted job."""
        self._known.pop(uid, None)
