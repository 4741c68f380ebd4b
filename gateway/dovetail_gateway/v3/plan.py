"""v3: the plan: since when each job runs and until when at most, and when each waiting job is estimated to start."""

import asyncio
from collections.abc import Sequence
from typing import Any

from dovetail.answers.inventory import NodeUse
from dovetail.answers.plan import PlanPage
from dovetail.answers.readers import Reader
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.api.gpuquota import GPUQuota
from dovetail.query.plan import drains, has_room_kept, kept_rooms, plan_rows, windows
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.cluster.other_names import reader_of
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.v3.paging import page
from dovetail_gateway.v3.types.plan import PlanFilter


class Plan:
    """The handler of `/api/v3/plan`. The estimates are those that the operator has written into the jobs."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    async def get_plan(self, call: Call[Nothing, PlanFilter, Any]) -> Answer:
        """A page of the jobs that run or have an estimated start, in the order of their starts."""
        cache, reader, wanted = self._cache, reader_of(call.sees), call.query
        jobs, uses = list(cache.jobs.values()), cache.node_uses() if not wanted.cursor else []
        quotas, restarts = list(cache.quotas), cache.settings.drain.action == "Restart"
        # In a thread: thousands of jobs take a while, and the objects never change.
        found = await asyncio.to_thread(
            _page_of, jobs, wanted=wanted, reader=reader, uses=uses, quotas=quotas, restarts=restarts
        )
        return Answer(value=found)


def _page_of(
    jobs: Sequence[GPUJob],
    *,
    wanted: PlanFilter,
    reader: Reader,
    uses: Sequence[NodeUse],
    quotas: Sequence[GPUQuota],
    restarts: bool,
) -> PlanPage:
    waiting = [job for job in jobs if has_room_kept(job) and not is_finished(job)]
    asked = (job for job in jobs if wanted.namespace in {None, job.metadata.namespace})
    rows = {
        f"{row.starts_at} {row.namespace}/{row.name}": row
        for row in plan_rows(asked, waiting=waiting, reader=reader, bounded=wanted.bounded)
    }
    chosen, following = page(sorted(rows), cursor=wanted.cursor, limit=wanted.limit)
    is_first = not wanted.cursor
    return PlanPage(
        items=[rows[key] for key in chosen],
        kept=[room for job in waiting for room in kept_rooms(job, reader=reader)] if is_first else [],
        windows=list(windows(quotas, reader=reader)) if is_first else [],
        drains=list(drains(uses, restarts=restarts)),
        next=following,
    )
