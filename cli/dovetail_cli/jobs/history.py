"""Jobs that have ended, from the history's records.

A query is an object that the operator answers.
"""

import asyncio
from typing import Final

import msgspec

from dovetail.api.historyquery import HistoryQuery, HistoryQuerySpec, HistoryQueryStatus, JobRecord
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import HISTORYQUERIES
from dovetail.kube.errors import NotFound
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui.errors import CommandError

ANSWER_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.05


async def ask(cluster: Cluster, *, question: HistoryQuerySpec, seconds: float = ANSWER_SECONDS) -> HistoryQueryStatus:
    """The answer to one query.

    Raises `CommandError` if there is none, or if the answer is an error.
    """
    body = HistoryQuery(metadata=ObjectMeta(generate_name="ask-"), spec=question)
    asked = await cluster.client.create(
        HISTORYQUERIES, body=msgspec.to_builtins(body), as_type=HistoryQuery, namespace=cluster.namespace
    )
    try:
        answer = await _answered(cluster, asked=asked, seconds=seconds)
    finally:
        await _forget(cluster, asked=asked)
    if answer.message:
        raise CommandError(answer.message)
    return answer


async def records(cluster: Cluster, *, question: HistoryQuerySpec) -> list[JobRecord]:
    """All records that the question means, page after page, the latest end first."""
    found: list[JobRecord] = []
    while True:
        answer = await ask(cluster, question=question)
        found += answer.records
        if not answer.next:
            return found
        question = msgspec.structs.replace(question, after=answer.next)


async def _answered(cluster: Cluster, *, asked: HistoryQuery, seconds: float) -> HistoryQueryStatus:
    name, found = asked.metadata.name, asked
    try:
        async with asyncio.timeout(seconds):
            while not found.status.answered:
                await asyncio.sleep(_LOOK_SECONDS)
                found = await cluster.client.get(
                    HISTORYQUERIES, name=name, as_type=HistoryQuery, namespace=cluster.namespace
                )
    except TimeoutError as error:
        raise CommandError(
            f"no operator has answered within {seconds:g} s what ran here: is dovetail-operator running?"
        ) from error
    return found.status


async def _forget(cluster: Cluster, *, asked: HistoryQuery) -> None:
    try:
        await cluster.client.delete(HISTORYQUERIES, name=asked.metadata.name, namespace=cluster.namespace)
    except NotFound:
        return
