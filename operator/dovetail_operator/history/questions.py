"""What the records answer to a query, within what one object holds. Blocks.

A module of its own: the service builds what keeps records, and this only reads them.
"""

from typing import Final

import msgspec

from dovetail.api.gpujob import FINISHED
from dovetail.api.historyquery import (
    MOST_GROUPS,
    HistoryQuery,
    HistoryQuerySpec,
    HistoryQueryStatus,
    HistorySums,
    JobRecord,
)
from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import SaidError
from dovetail_operator.history.answers import refused
from dovetail_operator.history.store import HistoryError, HistoryStore

# etcd accepts 1.5 MiB per object.
_MOST_BYTES: Final = 900_000


def answer(store: HistoryStore, query: HistoryQuery) -> HistoryQueryStatus:
    """The answer, with a message if the question cannot be answered. Blocks."""
    question, namespace = query.spec, query.metadata.namespace
    try:
        _check(question)
        if question.group_by is not None:
            return HistoryQueryStatus(answered=True, sums=_sums_that_fit(store, query=query))
        records, after = store.find(namespace, question=question)
    except SaidError as error:
        return refused(error.sentence)
    except (HistoryError, ValueError, OverflowError) as error:
        return HistoryQueryStatus(answered=True, message=str(error))
    kept = _that_fit(records)
    if len(kept) < len(records):
        after = f"{kept[-1].ended} {kept[-1].uid}"
    return HistoryQueryStatus(answered=True, records=kept, next=after)


def _sums_that_fit(store: HistoryStore, *, query: HistoryQuery) -> list[HistorySums]:
    """The sums of as many groups as fit in one object, because names may be long."""
    most = MOST_GROUPS
    while True:
        found = store.sums(query.metadata.namespace, question=query.spec, most=most)
        if len(msgspec.json.encode(found)) <= _MOST_BYTES or most == 1:
            return found
        most //= 2


def _check(question: HistoryQuerySpec) -> None:
    for phase in question.phases:
        if phase not in FINISHED:
            raise SaidError(says.HISTORY_PHASE(phase=phase, allowed=", ".join(sorted(FINISHED))))
    if question.after and " " not in question.after:
        raise SaidError(says.HISTORY_AFTER(after=question.after))


def _that_fit(records: list[JobRecord]) -> list[JobRecord]:
    """The first records that fit in one object; at least one."""
    total = 0
    for at, record in enumerate(records):
        total += len(msgspec.json.encode(record))
        if total > _MOST_BYTES and at:
            return records[:at]
    return records
