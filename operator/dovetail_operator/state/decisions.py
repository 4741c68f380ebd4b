"""The table of decisions: what the operator has decided and not written to the API server yet. No I/O.

It is lost with the process and made again from the store. Each column has one writer:

| column | written by |
|---|---|
| `verdicts` | `queue.loop`; withdrawn when the job is refused, fails or cannot be read |
| `notices` | `queue.loop`: jobs that others preempt |
| `overtaken` | `queue.loop`: why a started job's plan no longer holds |
| `numbers` | `queue.loop`: numbers that are allotted and not in a status yet |
| `running_jobs` | `queue.loop`: how many jobs run or start |
| refusals | `controller`: what the API server has against the job's objects; `queue.loop`: a rest after a plan |
| `failures` | what catches an error of our own code: `queue.cycle`, `controller.reconciler`, `state.requests` |
| `idle` | `watchers.idle`: since when a job leaves its devices idle |
| `kueue` | `watchers.kueue`: why Kueue has not admitted a batch Job, by the batch Job's UID |

All others are by the UID of the GPUJob.
"""

from collections.abc import Container, Mapping
from datetime import datetime

from dovetail.api.gpujob import GPUJob
from dovetail.jobs.obstacle import Obstacle
from dovetail.queue.verdicts import Admitted, Verdict
from dovetail_operator.job.observation import Notice
from dovetail_operator.state.failing_jobs import Failing


class Decisions:
    """The table. Everybody may read its columns; only the writers above call its methods."""

    def __init__(self) -> None:
        self.failures = Failing()
        self._verdicts: dict[str, Verdict] = {}
        self._notices: dict[str, Notice] = {}
        self._overtaken: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._running_jobs = 0
        self._refusals: dict[str, tuple[int, Obstacle]] = {}
        self._idle: dict[str, datetime] = {}
        self._kueue: dict[str, str] = {}

    # --- the queue's columns -----------------------------------------------------------------------------------

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """What the queue has decided, by UID."""
        return self._verdicts

    def set_verdict(self, uid: str, *, verdict: Verdict) -> None:
        """The queue has decided on a job."""
        self._verdicts[uid] = verdict

    def withdraw_verdict(self, uid: str) -> None:
        """What was decided on a job no longer holds."""
        self._verdicts.pop(uid, None)

    def keep_verdicts(self, uids: Container[str]) -> None:
        """Drop the verdicts on all other jobs: they no longer wait."""
        self._verdicts = {uid: verdict for uid, verdict in self._verdicts.items() if uid in uids}

    @property
    def notices(self) -> Mapping[str, Notice]:
        """Which running jobs are to be preempted, by UID."""
        return self._notices

    def set_notices(self, notices: Mapping[str, Notice]) -> None:
        """The queue has found all jobs that are to be preempted."""
        self._notices = dict(notices)

    def withdraw_notice(self, uid: str) -> None:
        """A job is not to be preempted after all."""
        self._notices.pop(uid, None)

    @property
    def overtaken(self) -> Mapping[str, str]:
        """Why plans of started jobs no longer hold, by UID."""
        return self._overtaken

    def set_overtaken(self, overtaken: Mapping[str, str]) -> None:
        """The queue has found all plans that no longer hold."""
        self._overtaken = dict(overtaken)

    @property
    def numbers(self) -> Mapping[str, int]:
        """Short numbers that are allotted, by UID."""
        return self._numbers

    def set_number(self, uid: str, *, number: int) -> None:
        """A job has got its short number."""
        self._numbers[uid] = number

    @property
    def running_jobs(self) -> int:
        """How many jobs run or start, as of the last cycle."""
        return self._running_jobs

    def set_running_jobs(self, count: int) -> None:
        """A cycle has counted the jobs that run or start."""
        self._running_jobs = count

    # --- what keeps a job from starting ------------------------------------------------------------------------

    def refuse(self, job: GPUJob, *, obstacle: Obstacle) -> None:
        """This generation of the job cannot start until `retry`, or until the obstacle's own time."""
        self._refusals[job.metadata.uid] = (job.metadata.generation, obstacle)
        self.withdraw_verdict(job.metadata.uid)

    def retry(self, job: GPUJob) -> None:
        """Whatever refused the job is to be asked again."""
        self._refusals.pop(job.metadata.uid, None)

    def expire_refusals(self, *, now: datetime) -> None:
        """Drop the refusals whose time is over."""
        over = [uid for uid, (_, refusal) in self._refusals.items() if refusal.until and refusal.until <= now]
        for uid in over:
            del self._refusals[uid]

    def refusal_of(self, job: GPUJob, *, now: datetime) -> Obstacle | None:
        """What refuses this generation of the job."""
        generation, refusal = self._refusals.get(job.metadata.uid, (0, None))
        if refusal is None or generation != job.metadata.generation:
            return None
        return None if refusal.until is not None and refusal.until <= now else refusal

    def record_failure(self, job: GPUJob, *, error: Exception) -> bool:
        """Our own code fails on this generation of the job. False if that is known already."""
        if not self.failures.note(job, error):
            return False
        self.withdraw_verdict(job.metadata.uid)
        return True

    def leaves_alone(self, uid: str) -> bool:
        """Whether the job is neither admitted nor refused, and nothing has failed on it."""
        held = uid in self._refusals or uid in self.failures
        return not held and not isinstance(self._verdicts.get(uid), Admitted)

    # --- the watchers' columns ---------------------------------------------------------------------------------

    @property
    def idle(self) -> Mapping[str, datetime]:
        """Since when jobs leave their devices idle, by UID."""
        return self._idle

    def set_idle(self, uid: str, *, since: datetime) -> None:
        """A job leaves its devices idle."""
        self._idle[uid] = since

    def clear_idle(self, uid: str) -> bool:
        """A job uses its devices; whether it was idle before."""
        return self._idle.pop(uid, None) is not None

    def keep_idle(self, uids: Container[str]) -> None:
        """Drop all other jobs: they hold no devices."""
        self._idle = {uid: since for uid, since in self._idle.items() if uid in uids}

    @property
    def kueue(self) -> Mapping[str, str]:
        """Why Kueue has not admitted batch Jobs, in its words, by their UIDs."""
        return self._kueue

    def set_kueue(self, uid: str, *, message: str) -> None:
        """Kueue says this of a batch Job; an empty message clears the entry."""
        if message:
            self._kueue[uid] = message
        else:
            self._kueue.pop(uid, None)

    def replace_kueue(self, messages: Mapping[str, str]) -> None:
        """Kueue says this of all batch Jobs."""
        self._kueue = dict(messages)

    # --- deletion ----------------------------------------------------------------------------------------------

    def put(self, job: GPUJob) -> None:
        """A version of a GPUJob was observed: decisions stay until their writer changes them."""

    def drop(self, job: GPUJob) -> None:
        """A GPUJob is deleted, and all that was decided on it."""
        uid = job.metadata.uid
        self.failures.forget(uid)
        for column in (self._verdicts, self._notices, self._overtaken, self._numbers, self._refusals):
            column.pop(uid, None)
