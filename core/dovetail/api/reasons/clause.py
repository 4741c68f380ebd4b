"""A row of the table of clauses, and the sentences that rows render."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Protocol, Self, get_args

from dovetail.api import gpujob
from dovetail.api.meta import MOST_DETAILS, MessageDetail
from dovetail.api.reasons.codes import Reason

Parameter = str | int | float

# `{count}` is a parameter, `{count:GPU|GPUs}` the number with its word in singular or plural, `{count!is|are}` the word
# alone.
_PLACE: Final = re.compile(r"\{(\w+)(?:([:!])([^|{}]*)\|([^|{}]*))?\}")
# In templates of `for_devices`: the number of GPUs, or of MIG instances of the profile.
_DEVICES: Final = re.compile(r"\{(\w+):#\}")


_OF_JOBS: Final[Mapping[str, gpujob.Reason]] = {each: each for each in get_args(gpujob.Reason)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A reason, and the sentence that the table of clauses renders for it.

    Adding one to another goes on with its clauses, and the last clause that states a reason decides which it is.

    - `reason`: the code of the reason; empty where the clauses state none
    - `message`: the sentence
    - `clauses`: code and parameters of its clauses, in order
    """

    reason: str = ""
    message: str
    clauses: tuple[MessageDetail, ...] = field(default=(), compare=False)

    def __add__(self, other: "Sentence") -> "Sentence":
        """This sentence, and what the other adds to it."""
        # A cycle adds nothing to the sentences of thousands of jobs.
        if other is NOTHING and type(self) is Sentence:
            return self
        if self is NOTHING and type(other) is Sentence:
            return other
        return Sentence(
            reason=other.reason or self.reason,
            message=self.message + other.message,
            clauses=(*self.clauses, *other.clauses),
        )

    def __str__(self) -> str:
        return self.message

    @property
    def listed(self) -> list[MessageDetail]:
        """The clauses as a status has them: none where they are more than it may have."""
        return list(self.clauses) if len(self.clauses) <= MOST_DETAILS else []

    @classmethod
    def of(cls, sentence: "Sentence") -> Self:
        """The same sentence as a value of this subclass."""
        return cls(reason=sentence.reason, message=sentence.message, clauses=sentence.clauses)

    def with_reason(self, reason: str) -> "Sentence":
        """The same sentence with another reason, such as one of kubelet's."""
        return Sentence(reason=reason, message=self.message, clauses=self.clauses)

    @property
    def wait_reason(self) -> gpujob.Reason:
        """The reason of a job that waits. Raises `KeyError` where the clauses state none."""
        return _OF_JOBS[self.reason]


class Explained(Protocol):
    """What has a reason and its sentence, such as the status of a job or the answer of a dry run."""

    @property
    def reason(self) -> str:
        """The code of the reason."""

    @property
    def message(self) -> str:
        """The sentence."""

    @property
    def details(self) -> list[MessageDetail]:
        """The clauses of the sentence."""


def sentence_from(status: Explained) -> Sentence:
    """The sentence that a status or an answer has."""
    return Sentence(reason=status.reason, message=status.message, clauses=tuple(status.details))


NOTHING: Final = Sentence(message="")


class SaidError(Exception):
    """The root of errors that the table of clauses states."""

    def __init__(self, sentence: Sentence) -> None:
        self.sentence = sentence
        super().__init__(sentence.message)


@dataclass(frozen=True, kw_only=True)
class Clause:
    """A row of the table: its code, its template, and the reason that it states if it states one.

    The template of a clause that follows another one begins with the punctuation between them. Calling it with the
    parameters that the template names renders it.
    """

    code: str
    template: str
    reason: Reason | None = None

    def __call__(self, **parameters: Parameter) -> Sentence:
        """The sentence with these parameters, which are the template's. Raises `KeyError` for one that is missing."""
        shown = {name: _shown(value) for name, value in parameters.items()}
        return Sentence(
            reason="" if self.reason is None else self.reason.code,
            message=render(self._parts, parameters=shown),
            clauses=(MessageDetail(code=self.code, parameters=shown),),
        )

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the parameters."""
        return frozenset(name for _, name, *_ in self._parts if name)

    @cached_property
    def _parts(self) -> "tuple[_Part, ...]":
        return parts_of(self.template)


@dataclass(frozen=True, kw_only=True)
class ClauseForDevices:
    """Two rows with one sentence: one counts GPUs, the other MIG instances of a profile."""

    of_gpus: Clause
    of_instances: Clause

    def __call__(self, *, profile: str, **parameters: Parameter) -> Sentence:
        """The sentence about instances of this profile, or about GPUs where it is empty."""
        return self.of_instances(profile=profile, **parameters) if profile else self.of_gpus(**parameters)


# A text, then a parameter (empty after the last text), how it is shown, and the singular and plural of its word.
_Part = tuple[str, str, str, str, str]


def parts_of(template: str) -> tuple[_Part, ...]:
    """The template cut at its parameters."""
    parts, at = [], 0
    for found in _PLACE.finditer(template):
        name, how, one, other = found.groups(default="")
        parts.append((template[at : found.start()], name, how, one, other))
        at = found.end()
    return (*parts, (template[at:], "", "", "", ""))


def render(parts: tuple[_Part, ...], *, parameters: dict[str, str]) -> str:
    """The sentence. Raises `KeyError` for a parameter that is missing."""
    said = []
    for text, name, how, one, other in parts:
        said.append(text)
        if name:
            value = parameters[name]
            word = one if value == "1" else other
            said.append(value if not how else word if how == "!" else f"{value} {word}")
    return "".join(said)


def clause(code: str, template: str, *, reason: Reason | None = None) -> Clause:
    """A row of the table."""
    return Clause(code=code, template=template, reason=reason)


def for_devices(of_gpus: str, of_instances: str, template: str, *, reason: Reason | None = None) -> ClauseForDevices:
    """Two rows of the table, with these codes. Their template counts devices as `{count:#}`."""
    gpus = _DEVICES.sub(r"{\1:GPU|GPUs}", template)
    instances = _DEVICES.sub(r"{\1:instance|instances} of {profile}", template)
    return ClauseForDevices(
        of_gpus=clause(of_gpus, gpus, reason=reason), of_instances=clause(of_instances, instances, reason=reason)
    )


def _shown(value: Parameter) -> str:
    """A number as sentences have it: 0.5, and 1 for 1.0."""
    return f"{value:g}" if isinstance(value, float) else str(value)
