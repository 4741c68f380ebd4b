"""v3: jobs that have ended, also those whose objects are gone. The operator answers a query that the caller creates."""

from typing import Any, Final

from dovetail.answers.jobs import HistoryPage
from dovetail.api.historyquery import HistoryQuerySpec
from dovetail.kube.queries.history import RefusedQueryError, UnansweredError, ask
from dovetail_gateway.access.callers import Clients
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.v3.times import check_time
from dovetail_gateway.v3.types.history import HistoryFilter

# Below the limit of every answer, so that the sentence says what is missing.
SECONDS: Final = 20.0


class History:
    """The handler of `/api/v3/history`."""

    def __init__(self, *, clients: Clients, seconds: float) -> None:
        self._clients = clients
        self._seconds = seconds

    async def list_history(self, call: Call[Nothing, HistoryFilter, Any]) -> Answer:
        """A page of the jobs of a namespace that have ended, the latest end first."""
        wanted = call.query
        check_time("since", text=wanted.since)
        check_time("until", text=wanted.until)
        try:
            async with self._clients.client_for(call.caller) as client:
                found = await ask(client, namespace=wanted.namespace, question=_question(wanted), seconds=self._seconds)
        except UnansweredError as error:
            raise RequestFailedError(504, reason="Timeout", sentence=error.sentence) from error
        except RefusedQueryError as error:
            raise RequestFailedError(409, reason="History", sentence=error.sentence) from error
        return Answer(value=HistoryPage(items=found.records, next=found.next or None))


def _question(wanted: HistoryFilter) -> HistoryQuerySpec:
    return HistoryQuerySpec(
        since=wanted.since,
        until=wanted.until,
        users=[] if wanted.user is None else [wanted.user],
        names=[] if wanted.name is None else [wanted.name],
        projects=[] if wanted.project is None else [wanted.project],
        numbers=[] if wanted.number is None else [wanted.number],
        phases=[] if wanted.phase is None else [wanted.phase],
        limit=wanted.limit,
        after=wanted.cursor,
    )
