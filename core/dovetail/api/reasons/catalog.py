"""The rows of the table by their codes."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import takewhile
from types import MappingProxyType, ModuleType
from typing import Final

from msgspec.structs import replace

from dovetail.api.meta import MessageDetail
from dovetail.api.reasons import (
    arrays,
    capacity,
    conditions,
    end,
    events,
    nodes,
    queue,
    quotas,
    refusals,
    start,
)
from dovetail.api.reasons.clause import NOTHING, Clause, ClauseForDevices, Sentence

# The modules of what is said of jobs, nodes and quotas.
SUBJECTS: Final = (capacity, nodes, queue, start, arrays, end, conditions, events, quotas, refusals)


def clauses_of(subject: ModuleType) -> Iterator[Clause]:
    """The rows of one module of the table, in its order."""
    for value in vars(subject).values():
        if isinstance(value, Clause):
            yield value
        elif isinstance(value, ClauseForDevices):
            yield from (value.of_gpus, value.of_instances)
    if subject is nodes:
        for cause in nodes.CAUSES.values():
            yield from (each for each in (cause.on_node, cause.on_device, cause.anywhere) if each is not None)


CLAUSES: Final[Mapping[str, Clause]] = MappingProxyType(
    {each.code: each for subject in SUBJECTS for each in clauses_of(subject)}
)


def every_subject() -> tuple[ModuleType, ...]:
    """All modules of the table: also those of sentences that only answers have."""
    from dovetail.api.reasons import explain, moves, problems, remedies  # noqa: PLC0415 - an operator rarely says any of them

    return (*SUBJECTS, moves, explain, remedies, problems)


@cache
def every_clause() -> Mapping[str, Clause]:
    """All rows by their codes."""
    return {each.code: each for subject in every_subject() for each in clauses_of(subject)}


def rendered(details: Iterable[MessageDetail]) -> Sentence:
    """The sentence that consists of these clauses. Raises `KeyError` for a code or parameter that no row has."""
    found = NOTHING
    for each in details:
        row = CLAUSES.get(each.code) or every_clause()[each.code]
        found += row(**each.parameters)
    return found


def about_pod(sentence: Sentence) -> Sentence:
    """The sentence about a job, as one about a pod."""
    if not any(each.code in queue.OF_PODS for each in sentence.clauses):
        return sentence
    return rendered(
        replace(each, code=queue.OF_PODS[each.code].code) if each.code in queue.OF_PODS else each
        for each in sentence.clauses
    )


def opening(details: Iterable[MessageDetail]) -> Sentence:
    """The beginning of a sentence, up to the first clause that explains it after a colon."""
    return rendered(takewhile(lambda each: not CLAUSES[each.code].template.startswith(":"), details))
