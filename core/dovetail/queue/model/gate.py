"""The gate of the queue: limits that keep a job waiting even where there is room.

Values and the protocol.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from dovetail.api.gpujob import Reason
from dovetail.api.reasons.clause import Sentence
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.quota_tree.loans import Loans


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Sentence):
    """A limit keeps the job waiting: one reason of the closed set and one sentence with numbers."""

    reason: Reason


# The terms of a job that no other job shares.
APART: Final = object()


class Gate(Protocol):
    """Counts what the jobs of one scheduling cycle take of their limits.

    A cycle uses it up, as it does the ledger.

    A job that the gate refuses gets no reservation and blocks no one.
    """

    @property
    def loans(self) -> Loans | None:
        """The use of the tree of quotas; None without a tree."""

    def terms_of(self, job: Candidate) -> object:
        """What the gate judges the job by: jobs of one shape with the identical object are judged alike.

        None for a job without limits. `APART` for a job that it judges by its own name, or by those before it.
        """

    def refusal(self, job: Candidate) -> Refused | None:
        """Why a limit keeps the job waiting now; None where it may start if there is room."""

    def allows_without(self, job: Candidate, *, ended: Iterable[str]) -> bool:
        """Whether the limits let the job start once these running jobs have ended."""

    def workers(self, job: Candidate) -> int:
        """The number of workers with which an elastic job may start within its limits now."""

    def narrows(self, job: Candidate) -> str:
        """The limit that allows no more workers than that; empty where the job may have all of them."""

    def started(self, job: Candidate) -> None:
        """Count a job that the cycle admits, with the workers that `job` has."""

    def ended(self, key: str) -> None:
        """Uncount the job `key`, which ends in the simulated future."""


class Open:
    """No limits."""

    loans: Loans | None = None

    def terms_of(self, job: Candidate) -> object:  # noqa: ARG002 - the protocol's
        """No terms."""
        return None

    def refusal(self, job: Candidate) -> Refused | None:  # noqa: ARG002 - the protocol's
        """No refusal."""
        return None

    def allows_without(self, job: Candidate, *, ended: Iterable[str]) -> bool:  # noqa: ARG002 - the protocol's
        """Always."""
        return True

    def workers(self, job: Candidate) -> int:
        """All workers of the job."""
        return job.workers

    def narrows(self, job: Candidate) -> str:  # noqa: ARG002 - the protocol's
        """No limit."""
        return ""

    def started(self, job: Candidate) -> None:
        """Count nothing."""

    def ended(self, key: str) -> None:
        """Count nothing."""
