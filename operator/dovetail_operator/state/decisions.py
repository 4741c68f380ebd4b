"""The decisions that the operator has made and not yet written to the API server. No I/O.

The table is lost with the process and rebuilt from the store. Each column has one writer:

| column | written by |
|---|---|
| `verdicts` | `queue.verdict_updates`; withdrawn when the job is refused, fails or cannot start |
| `notices` | `queue.preemption_notices`: jobs that others preempt |
| `moves`, move clauses | `queue.move_planner`: moves that are not in a status yet, and what a plan of moves would do |
| `overtaken` | `queue.loop`: why a started job's plan no longer holds |
| `reshapes` | `queue.reshaping.decisions`: GPUs that are to be partitioned again |
| reshape problems | `queue.reshaping.requests`: why the last change of a GPU for the job failed |
| `replacements` | `queue.loop`: plans with other nodes for lost workers |
| `numbers` | `queue.loop`: numbers that are allotted and not in a status yet |
| `is_rush` | `queue.loop`: whether many jobs end for others or many workers start |
| starts | `controller.action_runner`: when the latest jobs started |
| refusals | `controller`: why the API server refuses the job's objects; `queue.loop`: pauses after plans |
| `failures` | whatever catches an error of our own code: `queue.cycle`, `controller.reconciler`, `state.requests` |
| `idle` | `watchers.idle`: since when a job leaves its devices idle |
| `kueue` | `watchers.kueue`: why Kueue has not admitted a batch Job, by the batch Job's UID |

The key of every other column is the UID of the GPUJob.
"""

from collections.abc import Container, KeysView, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.gpujob import GPUJob, Move, Placement
from dovetail.api.meta import key_of
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.api.reasons.start import OWN_FAULT
from dovetail.jobs.obstacle import Obstacle
from dovetail.logs import get_logger
from dovetail.queue.reshaping.decision import Change
from dovetail.queue.verdicts import Admitted, Verdict
from dovetail_operator.job.observation import Notice
from dovetail_operator.job.status_pacing import MANY, Burst

# So many jobs that end for others, or workers without a node, are a rush.
_RUSH: Final = 64
# How long a rush lasts after that: the last workers have their nodes, and begin to run.
RUSH_LASTS: Final = timedelta(seconds=15)
# So many starts within a second are worth a delay of the statuses.
MANY_STARTS: Final = MANY
# What lasts longer than this is no rush. Hundreds of workers may wait for hours for their volumes.
_LONGEST_RUSH: Final = timedelta(minutes=5)


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
    """The jobs on which our own code fails, by UID: reported to the user, and retried with a growing delay.

    The cause may lie in the cluster and pass, or in the job and stay. A lasting cause costs one attempt every 300 s.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Failure] = {}

    @property
    def uids(self) -> KeysView[str]:
        """The jobs with a known failure."""
        return self._known.keys()

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


class Decisions:
    """The table. Any module may read its columns; only the writers above call its methods."""

    def __init__(self) -> None:
        self.failures = Failing()
        self._verdicts: dict[str, Verdict] = {}
        # The UIDs of the verdicts that admit a job.
        self._admitted: set[str] = set()
        self._notices: dict[str, Notice] = {}
        self._moves: dict[str, Move] = {}
        self._move_clauses: dict[str, Sentence] = {}
        self._overtaken: dict[str, str] = {}
        self._replacements: dict[str, Placement] = {}
        self._scale_ups = frozenset[str]()
        self._starts = Burst(MANY_STARTS)
        self._reshapes: tuple[Change, ...] = ()
        self._reshape_problems: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        # Since when so many jobs end or workers start, and until when that is a rush.
        self._many_since: datetime | None = None
        self._rush_until: datetime | None = None
        self._refusals: dict[str, tuple[int, Obstacle]] = {}
        self._idle: dict[str, datetime] = {}
        self._kueue: dict[str, str] = {}

    # --- the queue's columns -----------------------------------------------------------------------------------

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """The queue's latest verdict on each job, by UID."""
        return self._verdicts

    def set_verdict(self, uid: str, *, verdict: Verdict) -> None:
        """Record the queue's verdict on a job."""
        self._verdicts[uid] = verdict
        if isinstance(verdict, Admitted):
            self._admitted.add(uid)
        else:
            self._admitted.discard(uid)

    def withdraw_verdict(self, uid: str) -> None:
        """Drop the verdict on a job because it no longer holds."""
        self._verdicts.pop(uid, None)
        self._admitted.discard(uid)

    def keep_verdicts(self, uids: AbstractSet[str]) -> None:
        """Drop the verdicts on all other jobs, which no longer wait."""
        for uid in self._verdicts.keys() - uids:
            self.withdraw_verdict(uid)

    @property
    def notices(self) -> Mapping[str, Notice]:
        """The running jobs that are to be preempted, by UID."""
        return self._notices

    def set_notices(self, notices: Mapping[str, Notice]) -> None:
        """Replace all preemption notices with those of the latest cycle."""
        self._notices = dict(notices)

    def withdraw_notice(self, uid: str) -> None:
        """Drop the preemption notice of a job that no longer has to end."""
        self._notices.pop(uid, None)

    @property
    def moves(self) -> Mapping[str, Move]:
        """The moves, begun or given up, that the statuses of their jobs do not show yet, by UID."""
        return self._moves

    def set_move(self, uid: str, *, move: Move) -> None:
        """Record what a job's status is to say of its move."""
        self._moves[uid] = move

    def forget_move(self, uid: str) -> None:
        """Drop the decision on a move: the job's status has it, or it no longer counts."""
        self._moves.pop(uid, None)

    def move_clause(self, uid: str) -> Sentence:
        """What moves would do for a waiting job; empty where none were tried."""
        return self._move_clauses.get(uid, NOTHING)

    def set_move_clauses(self, clauses: Mapping[str, Sentence]) -> None:
        """Replace all of them."""
        self._move_clauses = dict(clauses)

    @property
    def overtaken(self) -> Mapping[str, str]:
        """Why the plans of started jobs no longer hold, by UID."""
        return self._overtaken

    def set_overtaken(self, overtaken: Mapping[str, str]) -> None:
        """Replace all overtaken plans with those of the latest cycle."""
        self._overtaken = dict(overtaken)

    @property
    def replacements(self) -> Mapping[str, Placement]:
        """Plans of running jobs with other nodes for workers that have lost theirs, by UID."""
        return self._replacements

    def set_replacements(self, replacements: Mapping[str, Placement]) -> None:
        """Replace all of them with those of the latest cycle."""
        self._replacements = dict(replacements)

    @property
    def scale_ups(self) -> frozenset[str]:
        """The running elastic jobs that restart with more workers, by UID."""
        return self._scale_ups

    def set_scale_ups(self, uids: frozenset[str]) -> None:
        """Replace all of them with those of the latest cycle."""
        self._scale_ups = uids

    @property
    def reshapes(self) -> tuple[Change, ...]:
        """The changes of GPUs for a waiting job that the latest cycle has decided on."""
        return self._reshapes

    def set_reshapes(self, reshapes: tuple[Change, ...]) -> None:
        """Replace all of them with those of the latest cycle."""
        self._reshapes = reshapes

    def reshape_problem(self, uid: str) -> str:
        """Why the last change of a GPU for the job failed; empty if it did not."""
        return self._reshape_problems.get(uid, "")

    def set_reshape_problem(self, uid: str, *, message: str) -> None:
        """Record why a change of a GPU for the job failed. An empty message clears the entry."""
        if message:
            self._reshape_problems[uid] = message
        else:
            self._reshape_problems.pop(uid, None)

    @property
    def numbers(self) -> Mapping[str, int]:
        """Allotted short numbers, by UID."""
        return self._numbers

    def set_number(self, uid: str, *, number: int) -> None:
        """Record the short number that a job has received."""
        self._numbers[uid] = number

    @property
    def is_rush(self) -> bool:
        """Whether many jobs end for others or many workers start. What is less urgent than that may wait."""
        return self._rush_until is not None or (self._many_since is None and len(self._notices) >= _RUSH)

    def set_at_work(self, *, starting: int, ended: int, now: datetime) -> None:
        """Record what a cycle saw: workers without a node, and jobs ended for one that waits."""
        if max(starting, ended, len(self._notices)) < _RUSH:
            self._many_since = None
        elif self._many_since is None:
            self._many_since = now
        if self._many_since is not None and now - self._many_since < _LONGEST_RUSH:
            self._rush_until = now + RUSH_LASTS
        elif self._rush_until is not None and self._rush_until <= now:
            self._rush_until = None

    def note_start(self, now: datetime) -> None:
        """Record that a job starts."""
        self._starts.note(now.timestamp())

    def many_start(self, now: datetime) -> bool:
        """Whether many jobs have started within the last second."""
        return self._starts.is_one(now.timestamp())

    def plans_may_follow(self, now: datetime) -> bool:
        """Whether many jobs start and none waits, by the latest verdicts."""
        return self.many_start(now) and len(self._verdicts) == len(self._admitted)

    # --- what keeps a job from starting ------------------------------------------------------------------------

    def refuse(self, job: GPUJob, *, obstacle: Obstacle) -> None:
        """Keep this generation of the job from starting until `retry` or the obstacle's own time."""
        self._refusals[job.metadata.uid] = (job.metadata.generation, obstacle)
        self.withdraw_verdict(job.metadata.uid)

    def retry(self, job: GPUJob) -> None:
        """Clear the refusal, so that the API server is asked again."""
        self._refusals.pop(job.metadata.uid, None)

    def expire_refusals(self, *, now: datetime) -> None:
        """Drop the refusals whose time is over."""
        over = [uid for uid, (_, refusal) in self._refusals.items() if refusal.until and refusal.until <= now]
        for uid in over:
            del self._refusals[uid]

    def refusal_of(self, job: GPUJob, *, now: datetime) -> Obstacle | None:
        """The refusal of this generation of the job, or None."""
        generation, refusal = self._refusals.get(job.metadata.uid, (0, None))
        if refusal is None or generation != job.metadata.generation:
            return None
        return None if refusal.until is not None and refusal.until <= now else refusal

    def record_failure(self, job: GPUJob, *, error: Exception) -> bool:
        """Record that our own code fails on this generation of the job. False if that is known."""
        if not self.failures.record(job, error=error):
            return False
        self.withdraw_verdict(job.metadata.uid)
        return True

    @property
    def held(self) -> set[str]:
        """The UIDs of jobs that are admitted or refused, or on which our code has failed."""
        return self._admitted | self._refusals.keys() | self.failures.uids

    # --- the watchers' columns ---------------------------------------------------------------------------------

    @property
    def idle(self) -> Mapping[str, datetime]:
        """Since when jobs leave their devices idle, by UID."""
        return self._idle

    def set_idle(self, uid: str, *, since: datetime) -> None:
        """Record that a job leaves its devices idle."""
        self._idle[uid] = since

    def clear_idle(self, uid: str) -> bool:
        """Record that a job uses its devices. Returns whether it was idle before."""
        return self._idle.pop(uid, None) is not None

    def keep_idle(self, uids: Container[str]) -> None:
        """Drop all other jobs, which hold no devices."""
        self._idle = {uid: since for uid, since in self._idle.items() if uid in uids}

    @property
    def kueue(self) -> Mapping[str, str]:
        """Kueue's messages on the batch Jobs that it has not admitted, by the batch Job's UID."""
        return self._kueue

    def set_kueue(self, uid: str, *, message: str) -> None:
        """Record Kueue's message on a batch Job. An empty message clears the entry."""
        if message:
            self._kueue[uid] = message
        else:
            self._kueue.pop(uid, None)

    def replace_kueue(self, messages: Mapping[str, str]) -> None:
        """Replace Kueue's messages on all batch Jobs."""
        self._kueue = dict(messages)

    # --- deletion ----------------------------------------------------------------------------------------------

    def observe(self, job: GPUJob) -> None:
        """Do nothing for an observed version: decisions hold until their writer changes them."""

    def drop(self, job: GPUJob) -> None:
        """Drop all decisions on a deleted GPUJob."""
        uid = job.metadata.uid
        self.failures.forget(uid)
        self.withdraw_verdict(uid)
        for column in (
            self._notices,
            self._moves,
            self._move_clauses,
            self._overtaken,
            self._replacements,
            self._reshape_problems,
            self._numbers,
            self._refusals,
        ):
            column.pop(uid, None)
