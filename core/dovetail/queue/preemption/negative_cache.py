"""For whom nobody can make way, remembered from look to look: a proof over thousands of jobs is not sought anew while
all that it rests on is the same."""

from dataclasses import dataclass
from typing import Final

from dovetail.engine.ledger.ledger import Content

# Of one look a few jobs at most ask in vain.
_ASKED: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Whether some of the `willing`, in this order, make way for a job of that `shape`: all that decides about it.

    The jobs that may leave are known by their key and the keys of their claims. `nodes` are those that the job may go
    to, None for every one.
    """

    shape: object
    willing: tuple[tuple[str, tuple[str, ...]], ...]
    nodes: tuple[str, ...] | None
    content: Content


class InVain:
    """The last questions that were answered with no, by the job that asked."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[Question, int]] = {}

    def knows(self, job: str, *, asks: Question, most: int) -> bool:
        """Whether it is proven that not even so many of the willing make way for the job."""
        known = self._asked.get(job)
        return known is not None and most <= known[1] and known[0] == asks

    def note(self, job: str, *, asked: Question, most: int) -> None:
        """It is: no set of up to so many was found."""
        self._asked.pop(job, None)
        self._asked[job] = asked, most
        for key in list(self._asked)[:-_ASKED]:
            del self._asked[key]
