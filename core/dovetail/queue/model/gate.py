"""Limits that keep a job back whether there is room or not, as the queue asks about them: values and the protocol."""

from dataclasses import dataclass
from typing import Protocol

from dovetail.api.gpujob import Reason
from dovetail.queue.model.candidates import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A limit keeps the job back: one word of the closed set and one sentence with numbers."""

    reason: Reason
    message: str


class Gate(Protocol):
    """Counts what the jobs of one look take of their limits. It is used up by a look, as the ledger is.

    A job that it refuses reserves nothing and keeps nobody.
    """

    def refusal(self, job: Candidate) -> Refused | None:
        """Why a limit keeps the job back now; None where it may start if there is room."""

    def workers(self, job: Candidate) -> int:
        """With how many of its workers a job that may have fewer may start by its limits now."""

    def narrows(self, job: Candidate) -> str:
        """Which limit leaves it no more of its workers than that; empty where it may have all."""

    def started(self, job: Candidate) -> None:
        """The look has let the job go, with so many workers as it says."""

    def ended(self, key: str) -> None:
        """While looking ahead, the job `key` is taken to have ended."""


class Open:
    """No limits."""

    def refusal(self, job: Candidate) -> Refused | None:  # noqa: ARG002 - the protocol's
        """None."""
        return None

    def workers(self, job: Candidate) -> int:
        """All."""
        return job.workers

    def narrows(self, job: Candidate) -> str:  # noqa: ARG002 - the protocol's
        """None."""
        return ""

    def started(self, job: Candidate) -> None:
        """Count nothing."""

    def ended(self, key: str) -> None:
        """Count nothing."""
