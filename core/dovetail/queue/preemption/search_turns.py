"""Whose turn it is to search for victims: a cycle has time for a few searches that find none. Pure."""

from dovetail.queue.backfill.reservation import Reservation


class SearchTurns:
    """The jobs that searched and found no victims, over many cycles.

    Where a cycle has no time for all, those that have searched wait until all others have had their turn.
    """

    def __init__(self) -> None:
        # By job, the reservation without which its search would have found victims.
        self._this_round: dict[str, Reservation | None] = {}
        self._last_round: dict[str, Reservation | None] = {}
        # Whether jobs have missed their turn so far in this round.
        self._some_missed = False
        self.is_behind = False
        """Whether jobs that could not search in the last cycle do so in the next one."""

    def may_search(self, job: str) -> bool:
        """Whether the job does not have to wait for others that have missed their turn."""
        return not self._some_missed or job not in self._this_round

    def failed(self, job: str, *, kept: Reservation | None = None) -> None:
        """Record that the job has searched and found no victims; `kept` is what kept their room from it."""
        self._this_round[job] = kept

    def has_failed(self, job: str) -> bool:
        """Whether the job's last search, in this round or the one before, found no victims."""
        return job in self._this_round or job in self._last_round

    def kept_back(self, job: str) -> Reservation | None:
        """The reservation that kept the room of victims from the job at its last search."""
        return self._this_round.get(job, self._last_round.get(job))

    def end_cycle(self, *, missed: bool, skipped: bool) -> None:
        """Begin a new round unless a job has `missed` its turn in the cycle, for lack of time.

        `skipped` says that jobs did not search because it was not their turn.
        """
        self._some_missed = missed
        if not missed:
            self._last_round, self._this_round = self._this_round, {}
        self.is_behind = missed or skipped
