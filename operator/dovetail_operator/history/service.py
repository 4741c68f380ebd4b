"""The history as one part of the operator: records are kept, and queries on them answered."""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from functools import partial

from prometheus_client import CollectorRegistry

from dovetail.kube.client import Client
from dovetail_operator.history.answers import Answers
from dovetail_operator.history.questions import answer
from dovetail_operator.history.recorder import History
from dovetail_operator.history.store import HistoryStore
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.state import State


class HistoryService:
    """Runs in parallel to the queue, which does not wait for the database."""

    def __init__(self, history: History, *, answers: Answers, store: HistoryStore) -> None:
        self._history = history
        self._answers = answers
        self._store = store

    async def run(self) -> None:
        """Keep records until cancelled, and answer once the database is open."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._history.run())
                await self._history.synced.wait()
                tasks.create_task(self._answers.run())
        finally:
            # SQLite's write-ahead log is then in the file, so that a copy of the one file is complete.
            self._store.close()


def build_history(
    client: Client,
    *,
    state: State,
    url: str,
    dues: Dues,
    keep_days: int,
    registry: CollectorRegistry,
    now: Callable[[], datetime],
    rng: random.Random,
) -> HistoryService:
    """Build the history over the database at `url`. Raises `HistoryError` for a URL that it cannot use."""
    store = HistoryStore(url)
    history = History(
        client, state=state, store=store, dues=dues, keep_days=keep_days, registry=registry, now=now, rng=rng
    )
    return HistoryService(history, answers=Answers(client, answer=partial(answer, store)), store=store)
