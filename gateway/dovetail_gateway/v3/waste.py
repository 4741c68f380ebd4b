"""v3: right sizes of jobs, and what is wrong with nodes."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from dovetail.answers.waste import RightSizePage, RightSizeRow
from dovetail.query.right_sizes import right_sizes
from dovetail_gateway.cluster.answers import Answers
from dovetail_gateway.cluster.measured_jobs import MeasuredJobs
from dovetail_gateway.routing.table import Answer, Call, Nothing, Strictly
from dovetail_gateway.v3.paging import page
from dovetail_gateway.v3.types.common import Page

# Sort keys are text: what saves more has the smaller key.
_LARGEST: Final = 10_000_000


class Waste:
    """The handlers of right sizes and findings."""

    def __init__(self, measured: MeasuredJobs, *, answers: Answers, now: Callable[[], datetime]) -> None:
        self._measured = measured
        self._now = now
        self._answers = answers

    async def list_right_sizes(self, call: Call[Nothing, Page, Any]) -> Answer:
        """A page of right sizes, those that save the most GPUs first."""
        wanted = call.query
        jobs = await self._measured.all(now=self._now())
        own = [
            each
            for each in jobs
            if call.sees.sees(each.job.metadata.namespace) and wanted.namespace in {None, each.job.metadata.namespace}
        ]
        found = await asyncio.to_thread(right_sizes, own)
        rows = {_key(row): row for row in found.rows}
        chosen, after = page(sorted(rows), cursor=wanted.cursor, limit=wanted.limit)
        items = [rows[key] for key in chosen]
        return Answer(value=RightSizePage(items=items, next=after, total=len(rows), teams=found.teams))

    async def list_findings(self, call: Call[Nothing, Strictly, Any]) -> Answer:
        """What is wrong with nodes."""
        return Answer(value=await self._answers.node_findings(who=call.who, sees=call.sees))


def _key(row: RightSizeRow) -> str:
    saved = max(0, _LARGEST - round(row.saved_gpus * 1000))
    return f"{saved:08d} {row.namespace}/{row.name} {row.user}"
