"""Jobs that have ended, from the history's records.

A query is an object that the operator answers.
"""

from typing import Final

import msgspec

from dovetail.api.historyquery import HistoryQuerySpec, HistoryQueryStatus, JobRecord
from dovetail.kube.queries import history as queries
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui.errors import CommandError

ANSWER_SECONDS: Final = 30.0


class NoHistoryError(CommandError):
    """No history of jobs is kept in this cluster."""


async def ask(cluster: Cluster, *, question: HistoryQuerySpec, seconds: float = ANSWER_SECONDS) -> HistoryQueryStatus:
    """The answer to one query.

    Raises `NoHistoryError`, and `CommandError` if there is no answer, or if the answer is an error.
    """
    try:
        return await queries.ask(cluster.client, namespace=cluster.namespace, question=question, seconds=seconds)
    except queries.NoHistoryError as error:
        raise NoHistoryError(str(error)) from error
    except queries.HistoryError as error:
        raise CommandError(str(error)) from error


async def records(cluster: Cluster, *, question: HistoryQuerySpec) -> list[JobRecord]:
    """All records that the question means, page after page, the latest end first."""
    found: list[JobRecord] = []
    while True:
        answer = await ask(cluster, question=question)
        found += answer.records
        if not answer.next:
            return found
        question = msgspec.structs.replace(question, after=answer.next)
