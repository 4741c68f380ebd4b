"""Who reads an answer, and what it may name to them. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from dovetail.api.meta import MessageDetail
from dovetail.api.reasons.clause import Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """The reader of an answer.

    - `sees`: whether objects of a namespace may be named
    - `readable`: a sentence without hidden names
    - `everything`: whether nothing is hidden
    """

    sees: Callable[[str], bool]
    readable: Callable[[str], str]
    everything: bool

    def details(self, sentence: Sentence) -> list[MessageDetail]:
        """The clauses of a sentence without hidden names."""
        return self.readable_details(sentence.clauses)

    def readable_details(self, clauses: Iterable[MessageDetail]) -> list[MessageDetail]:
        """The clauses without hidden names."""
        return [
            MessageDetail(
                code=each.code,
                parameters={name: self.readable(value) for name, value in each.parameters.items()},
            )
            for each in clauses
        ]


EVERYTHING: Final = Reader(sees=lambda _namespace: True, readable=lambda sentence: sentence, everything=True)
