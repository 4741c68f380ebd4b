"""Asks the operator for records of jobs that have ended: a query is an object, and its status is the answer.

HistoryError
├── UnansweredError    no operator has answered in time
└── RefusedQueryError  the operator cannot answer this query; the message says why
    └── NoHistoryError no history of jobs is kept in this cluster
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from dovetail.api.historyquery import HistoryQuery, HistoryQuerySpec, HistoryQueryStatus
from dovetail.api.meta import ObjectMeta
from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import SaidError, Sentence
from dovetail.api.resources import HISTORYQUERIES
from dovetail.kube.errors import KubeError

if TYPE_CHECKING:
    # Commands that list start without it.
    from dovetail.kube.client import Client

_LOOK_SECONDS: Final = 0.05


class HistoryError(SaidError):
    """No records for a query."""


class UnansweredError(HistoryError):
    """No operator has answered in time."""

    def __init__(self, *, seconds: float) -> None:
        super().__init__(says.HISTORY_UNANSWERED(seconds=seconds))


class RefusedQueryError(HistoryError):
    """The operator cannot answer this query."""


class NoHistoryError(RefusedQueryError):
    """No history of jobs is kept in this cluster."""


async def ask(client: "Client", *, namespace: str, question: HistoryQuerySpec, seconds: float) -> HistoryQueryStatus:
    """The answer to one query of a namespace, whose object is deleted afterwards.

    Raises `HistoryError` and `KubeError`.
    """
    body = HistoryQuery(metadata=ObjectMeta(generate_name="ask-"), spec=question)
    asked = await client.create(
        HISTORYQUERIES, body=msgspec.to_builtins(body), as_type=HistoryQuery, namespace=namespace
    )
    try:
        answer = await _answered(client, asked=asked, namespace=namespace, seconds=seconds)
    finally:
        await _forget(client, name=asked.metadata.name, namespace=namespace)
    if answer.message:
        raise _refusal(answer)
    return answer


def _refusal(answer: HistoryQueryStatus) -> RefusedQueryError:
    said = Sentence(message=answer.message, clauses=tuple(answer.details))
    if any(each.code == says.NO_HISTORY.code for each in answer.details):
        return NoHistoryError(said)
    return RefusedQueryError(said if answer.details else says.HISTORY_REFUSES(message=answer.message))


async def _answered(client: "Client", *, asked: HistoryQuery, namespace: str, seconds: float) -> HistoryQueryStatus:
    name, found = asked.metadata.name, asked
    try:
        async with asyncio.timeout(seconds):
            while not found.status.answered:
                await asyncio.sleep(_LOOK_SECONDS)
                found = await client.get(HISTORYQUERIES, name=name, as_type=HistoryQuery, namespace=namespace)
    except TimeoutError as error:
        raise UnansweredError(seconds=seconds) from error
    return found.status


async def _forget(client: "Client", *, name: str, namespace: str) -> None:
    # An answer that is there counts, and so does the error of one that is not: the operator deletes what is left.
    with suppress(KubeError):
        await client.delete(HISTORYQUERIES, name=name, namespace=namespace)
