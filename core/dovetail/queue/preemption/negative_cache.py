"""Negative cache for preemption.

Skips a victim search whose inputs have not changed since it failed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from dovetail.engine.ledger.ledger import Content
from dovetail.queue.backfill.reservation import Reservation

# So many jobs search and find no victims in a few cycles.
_ASKED: Final = 64


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The inputs of a victim search: whether some of the `potential_victims` free room for a `shape`.

    - `shape`: the shape of the waiting job
    - `potential_victims`: the jobs that may end, in order, each by its key and the keys of its claims
    - `nodes`: names of the nodes that the waiting job may use; None for all
    - `content`: the content of the ledger
    - `guarantees`: what the quotas above the possible victims are guaranteed and use; empty where that is no matter
    """

    shape: object
    potential_victims: tuple[tuple[str, tuple[str, ...]], ...]
    nodes: tuple[str, ...] | None
    content: Content
    guarantees: tuple[object, ...] = ()


class NegativeCache:
    """The inputs of the last searches that failed, by the job that searched.

    turns               whose turn it is to get a guarantee back
    turns_at_limits     the same of jobs that a limit keeps waiting
    """

    def __init__(self) -> None:
        self._asked: dict[str, tuple[Question, int]] = {}
        self.turns = SearchTurns()
        self.turns_at_limits = SearchTurns()

    @property
    def is_behind(self) -> bool:
        """Whether another cycle is necessary without a change: not all jobs could search in the last one."""
        return self.turns.is_behind or self.turns_at_limits.is_behind

    def knows(self, job: str, *, asks: Callable[[], Question], most: int) -> bool:
        """Whether a search with these inputs for at most `most` victims is known to fail."""
        known = self._asked.get(job)
        return known is not None and most <= known[1] and known[0] == asks()

    def clear(self) -> None:
        """Drop all searches: the rules have changed."""
        self._asked.clear()

    def record(self, job: str, *, asked: Question, most: int) -> None:
        """Record that a search for at most `most` victims failed."""
        last = next(reversed(self._asked.values()), None)
        if last is not None and last[0].content == asked.content:
            # A content is as large as the cluster: the searches of one cycle share it.
            asked = replace(asked, content=last[0].content)
        self._asked.pop(job, None)
        self._asked[job] = asked, most
        for key in list(self._asked)[:-_ASKED]:
            del self._asked[key]
