"""The reservations of one scheduling cycle for waiting jobs, and what a job must not delay."""

from collections.abc import Callable
from dataclasses import replace

from dovetail.queue.backfill.advance_reservation import Windows
from dovetail.queue.backfill.reservation import Reservation
from dovetail.queue.model.candidates import Candidate, Room


class JobReservations:
    """The reservations for waiting jobs, next to the advance reservations `windows`.

    That of the first job that does not fit may be postponed: most simulated cycles start no job behind it, and never
    read it.
    """

    def __init__(self, *, windows: Windows) -> None:
        # The rooms that come back to jobs within their guarantees, and those from which others move.
        self.promised: list[Reservation] = []
        # Of a later job, for which others are preempted where that does not delay the first one.
        self.preempting: Reservation | None = None
        self._windows = windows
        self._first: Reservation | None = None
        self._make: Callable[[], Reservation | None] | None = None

    @property
    def first(self) -> Reservation | None:
        """The reservation of the first job that does not fit."""
        if self._make is not None:
            make, self._make = self._make, None
            self._first = make()
        return self._first

    @property
    def has_first(self) -> bool:
        """Whether there is one, made or postponed."""
        return self._make is not None or self._first is not None

    def reserve(self, first: Reservation | None) -> None:
        """Set the first one."""
        self._first, self._make = first, None

    def postpone(self, make: Callable[[], Reservation | None]) -> None:
        """Let `make` make the first one when it is read, which is before the ledger changes."""
        self._first, self._make = None, make

    def begin(self, *, first: Reservation | None) -> None:
        """Begin another cycle, in which that one goes on."""
        self.promised, self.preempting = [], None
        self.reserve(first)

    def drop(self, key: str) -> bool:
        """Drop what is reserved for a job that starts. Returns whether there was something."""
        # A cycle judges each job once, so only one that outlives a simulated cycle can be of this job.
        if self._first is None or self._first.job.key != key:
            return False
        self._first = None
        return True

    def of(self, key: str) -> Reservation | None:
        """That of a job, if it is made."""
        made = (*self.promised, self._first, self.preempting)
        return next((each for each in made if each is not None and each.job.key == key), None)

    def all(self) -> list[Reservation]:
        """All of them."""
        return [*self.promised, *(each for each in (self.first, self.preempting) if each is not None)]

    def delayed_by(self, job: Candidate, *, start_seconds: float) -> list[Reservation]:
        """Those of other jobs that begin before this one ends."""
        end = start_seconds + job.run_seconds if job.limited else float("inf")
        return [each for each in self.all() if each.job.key != job.key and end > each.at_seconds]

    def against(self, job: Candidate, *, start_seconds: float) -> list[Reservation]:
        """The reservations and advance reservations that the job must not delay."""
        if job.ask.gpu is None:
            return []
        windows = self._windows.against(job, start_seconds=start_seconds)
        return [*windows, *self.delayed_by(job, start_seconds=start_seconds)]

    def is_backfilled(self, job: Candidate, *, room: Room, start_seconds: float) -> bool:
        """Whether its time limit alone lets the job use nodes that reservations keep."""
        if not job.limited or not room.claims:
            return False
        respected = {each.job.key for each in self.against(job, start_seconds=start_seconds)}
        without_limit = self.against(replace(job, limited=False), start_seconds=start_seconds)
        nodes = {claim.node for claim in room.claims}
        passed = (each for each in without_limit if each.job.key not in respected)
        return any(claim.node in nodes for each in passed for claim in each.claims)
