"""v3: the plan: since when each job runs and until when at most, and when each waiting job is estimated to start."""

from typing import Any

from dovetail.answers.plan import PlanPage
from dovetail.api.gpujob import is_finished
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
        waiting = [job for job in self._cache.jobs.values() if has_room_kept(job) and not is_finished(job)]
        reader, namespace = reader_of(call.sees), call.query.namespace
        jobs = (job for job in self._cache.jobs.values() if namespace in {None, job.metadata.namespace})
        rows = {
            f"{row.starts_at} {row.namespace}/{row.name}": row
            for row in plan_rows(jobs, waiting=waiting, reader=reader)
            if not call.query.bounded or row.planned or row.fills or row.leaves_at
        }
        chosen, following = page(sorted(rows), cursor=call.query.cursor, limit=call.query.limit)
        is_first = not call.query.cursor
        drained = (
            drains(self._cache.node_uses(), restarts=self._cache.settings.drain.action == "Restart") if is_first else ()
        )
        return Answer(
            value=PlanPage(
                items=[rows[key] for key in chosen],
                kept=[room for job in waiting for room in kept_rooms(job, reader=reader)] if is_first else [],
                windows=list(windows(self._cache.quotas, reader=reader)) if is_first else [],
                drains=list(drained),
                next=following,
            )
        )
