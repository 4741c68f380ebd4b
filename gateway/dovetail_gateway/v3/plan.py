"""v3: the plan: since when each job runs and until when at most, and when each waiting job is estimated to start."""

from collections.abc import Iterator
from typing import Any

from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.formats.timestamps import after, moment, timestamp
from dovetail.query.jobs.owners import user_of
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.v3.paging import page
from dovetail_gateway.v3.rows import job_devices
from dovetail_gateway.v3.types.plan import PlanFilter, PlanPage, PlanRow


class Plan:
    """The handler of `/api/v3/plan`. The estimates are those that the operator has written into the jobs."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    async def get_plan(self, call: Call[Nothing, PlanFilter, Any]) -> Answer:
        """A page of the jobs that run or have an estimated start, in the order of their starts."""
        rows = {
            f"{row.starts_at} {row.namespace}/{row.name}": row
            for row in self._rows(call.sees, namespace=call.query.namespace)
        }
        chosen, following = page(sorted(rows), cursor=call.query.cursor, limit=call.query.limit)
        return Answer(value=PlanPage(items=[rows[key] for key in chosen], next=following))

    def _rows(self, sees: Visibility, *, namespace: str | None) -> Iterator[PlanRow]:
        for job in self._cache.jobs.values():
            here = job.metadata.namespace
            if sees.sees(here) and namespace in {None, here} and (row := plan_row(job)) is not None:
                yield row


def plan_row(job: GPUJob) -> PlanRow | None:
    """A job's place in the plan; None for one that has ended, or whose start is not known."""
    status, place = job.status, job.status.queue
    estimated = None if place is None else place.estimated_start
    starts_at = status.start_time or estimated
    if starts_at is None or is_finished(job):
        return None
    return PlanRow(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        number=status.number,
        user=user_of(job) or "",
        phase=status.phase or "Queued",
        request=status.request,
        workers=job.spec.workers,
        starts_at=starts_at,
        earliest=None if place is None or status.start_time else place.estimated_start_earliest,
        latest=None if place is None or status.start_time else place.estimated_start_latest,
        ends_by=_end(job, starts_at=starts_at),
        position=None if place is None else place.position,
        nodes=status.nodes,
        devices=job_devices(job),
    )


def _end(job: GPUJob, *, starts_at: str) -> str | None:
    """When the job's lease or time limit ends it; None without either."""
    if job.status.lease is not None and job.status.lease.expiration_time:
        return job.status.lease.expiration_time
    limit = job.spec.active_deadline_seconds
    return None if limit is None else timestamp(after(moment(starts_at), seconds=limit))
