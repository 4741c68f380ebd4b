"""The answer about what else a change to a job would do. Types only."""

from dovetail.answers import Row
from dovetail.answers.jobs import JobReference
from dovetail.answers.questions import DryRun


class ShiftedJob(Row, frozen=True, kw_only=True):
    """A waiting job that would start at another time, in seconds from now: 0 for now, null where no start is known."""

    job: JobReference
    before_seconds: float | None
    after_seconds: float | None


class CancelledJob(Row, frozen=True, kw_only=True):
    """A job that would be cancelled in turn, because `after` could then never meet its dependency."""

    job: JobReference
    after: str


class Effects(Row, frozen=True, kw_only=True):
    """What a change would do, in the likeliest future of the queue as it is now.

    `own` is the queue's decision on the changed job; null for one that runs, ends or is held. `sooner` and `later`
    count all jobs that would start at another time, and `othersSooner` and `othersLater` those of other tenants,
    which are not among the `shifted`. `tasks` counts the tasks of an array that change with it. The `released` would
    no longer wait for their dependencies. The `heldUp` depend on the job, and wait for as long as it is held. At most
    50 jobs of each kind are named. Starts are compared for the next `simulatedSeconds`; null for as long as ends of
    jobs are known.
    """

    own: DryRun | None
    sooner: int
    later: int
    others_sooner: int
    others_later: int
    shifted: list[ShiftedJob]
    tasks: int
    cancelled: list[CancelledJob]
    released: list[JobReference]
    held_up: list[JobReference]
    simulated_seconds: float | None
