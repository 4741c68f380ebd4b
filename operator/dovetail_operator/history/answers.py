"""Answers queries on the history: HistoryQuery objects, answered in their status.

The API server therefore decides who may ask, as with all other objects, and no client needs a connection to the
operator.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from dovetail.api.historyquery import HistoryQuery, HistoryQueryStatus
from dovetail.api.meta import EventType, key_of
from dovetail.api.reasons.clause import Sentence
from dovetail.api.resources import HISTORYQUERIES
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, KubeError, NotFound, ServerFault, StatusError, TooManyRequests, Unauthorized
from dovetail.kube.reflector import Reflector
from dovetail.logs import get_logger

log = get_logger("dovetail.operator.history")

# The client takes the answer and deletes the query. This is for queries that were not deleted.
_KEPT_SECONDS: Final = 60.0
# An answer that the API server could not take is sent again after this time.
_AGAIN_SECONDS: Final = 10.0
_MOST_TRIES: Final = 30
_MOST_WORDS: Final = 500


class _Waiting:
    """Waiting queries, one of each namespace in turn, so that a flood in one delays no other."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, deque[HistoryQuery]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def add(self, query: HistoryQuery) -> None:
        """Add a query behind those of its namespace."""
        self._by_namespace.setdefault(query.metadata.namespace, deque()).append(query)

    def take(self) -> HistoryQuery:
        """Remove and return the next query. Its namespace moves to the end."""
        namespace, queries = next(iter(self._by_namespace.items()))
        del self._by_namespace[namespace]
        query = queries.popleft()
        if queries:
            self._by_namespace[namespace] = queries
        return query


class Answers:
    """Answers each query once: namespaces in turn, and in each in order of arrival.

    `answer` is called in a thread, and may block. An answered query is deleted after `kept_seconds`. What the API
    server does not take is sent again after `again_seconds`, an answer at most `most_tries` times.
    """

    def __init__(
        self,
        client: Client,
        *,
        answer: Callable[[HistoryQuery], HistoryQueryStatus],
        kept_seconds: float = _KEPT_SECONDS,
        again_seconds: float = _AGAIN_SECONDS,
        most_tries: int = _MOST_TRIES,
    ) -> None:
        self._client = client
        self._answer = answer
        self._kept_seconds = kept_seconds
        self._again_seconds = again_seconds
        self._most_tries = most_tries
        self._asked = _Waiting()
        self._arrived = asyncio.Event()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # How often the API server refused an answer, by the query's UID.
        self._tries: dict[str, int] = {}
        self._old: asyncio.Queue[HistoryQuery] = asyncio.Queue()
        self._reflector = Reflector(client, resource=HISTORYQUERIES, as_type=HistoryQuery, on_event=self._on_event)

    async def run(self) -> None:
        """Answer until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run())
            tasks.create_task(self._answer_always())
            tasks.create_task(self._tidy_always())

    def _on_event(self, type_: EventType, query: HistoryQuery) -> None:
        uid = query.metadata.uid
        if type_ == "DELETED":
            self._tries.pop(uid, None)
            if timer := self._timers.pop(uid, None):
                timer.cancel()
        elif query.status.answered:
            if uid not in self._timers:
                loop = asyncio.get_running_loop()
                self._timers[uid] = loop.call_later(self._kept_seconds, self._old.put_nowait, query)
        elif type_ == "ADDED":
            self._ask(query)

    def _ask(self, query: HistoryQuery) -> None:
        self._asked.add(query)
        self._arrived.set()

    async def _answer_always(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._asked:
                await self._answer_or_give_up(self._asked.take())

    async def _answer_or_give_up(self, query: HistoryQuery) -> None:
        """Answer a query.

        A refusal of the question is an answer; a failed write is sent at most `most_tries` times.
        """
        uid, name = query.metadata.uid, key_of(query.metadata)
        try:
            await self._send(query, status=await asyncio.to_thread(self._answer, query))
        except (NotFound, Conflict):
            # The query is deleted.
            self._tries.pop(uid, None)
        except KubeError as error:
            self._tries[uid] = self._tries.get(uid, 0) + 1
            if _passes(error) and self._tries[uid] < self._most_tries:
                log.warning("a question is answered later", query=name, error=str(error))
                asyncio.get_running_loop().call_later(self._again_seconds, self._ask, query)
            else:
                log.warning("a question is given up", query=name, error=str(error))
                await self._give_up(query, why=f"the API server does not take the answer: {error}")
        except Exception:  # an unforeseen question costs only its own answer
            log.exception("a question cannot be answered", query=name)
            await self._give_up(query, why="the operator cannot answer this question; its log says more")
        else:
            self._tries.pop(uid, None)

    async def _give_up(self, query: HistoryQuery, *, why: str) -> None:
        """Answer with the reason why there is no result. If even that fails, the query is deleted."""
        self._tries.pop(query.metadata.uid, None)
        try:
            await self._send(query, status=HistoryQueryStatus(answered=True, message=why[:_MOST_WORDS]))
        except KubeError:
            self._old.put_nowait(query)

    async def _send(self, query: HistoryQuery, *, status: HistoryQueryStatus) -> None:
        meta = query.metadata
        patch = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": msgspec.to_builtins(status),
        }
        await self._client.patch(
            HISTORYQUERIES,
            name=meta.name,
            patch=patch,
            as_type=HistoryQuery,
            namespace=meta.namespace,
            subresource="status",
        )

    async def _tidy_always(self) -> None:
        while True:
            query = await self._old.get()
            meta = query.metadata
            try:
                await self._client.delete(HISTORYQUERIES, name=meta.name, namespace=meta.namespace, uid=meta.uid)
            except (NotFound, Conflict):
                continue
            except KubeError as error:
                log.warning("an answer stays for now", query=key_of(meta), error=str(error))
                asyncio.get_running_loop().call_later(self._again_seconds, self._old.put_nowait, query)


def _passes(error: KubeError) -> bool:
    """Whether the same answer may succeed later.

    etcd's size limit appears as an API server error.
    """
    if not isinstance(error, StatusError) or isinstance(error, TooManyRequests | Unauthorized):
        return True
    return isinstance(error, ServerFault) and "too large" not in error.message


def refused(sentence: Sentence) -> HistoryQueryStatus:
    """The answer to a query that has none, with the reason."""
    return HistoryQueryStatus(answered=True, message=sentence.message, details=sentence.listed)
