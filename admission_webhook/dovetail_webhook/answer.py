"""What answers reviews, and an answer. Data only."""

from dataclasses import dataclass
from typing import Literal, Protocol

Outcome = Literal["patched", "unchanged", "denied", "failed", "converted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to the API server, with the object's kind and the outcome for metrics."""

    body: bytes
    kind: str
    outcome: Outcome


class Answerer(Protocol):
    """Answers one kind of review."""

    def answer(self, body: bytes | bytearray) -> Answer:
        """The answer to a review. Raises only `ReviewError`, if the body has no uid to answer to."""

    def refuse(self, uid: str, *, problem: str) -> Answer:
        """The answer to a review that is not read, and why."""
