"""Recreates deleted Services of gangs as long as their workers look for each other.

This runs in parallel to the queue. A job's Service is created before its batch Job, so it is missing only if a user has
deleted it.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.api.meta import EventType, key_of
from dovetail.api.reasons.events import NO_SERVICE
from dovetail.api.resources import SERVICES
from dovetail.jobs.batch_job import has_ended, is_going, is_managed, is_owned, is_past
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail.kube.retry import Backoff
from dovetail.kube.retry_log import log_failure
from dovetail.kube.workqueue import WorkQueue
from dovetail.logs import get_logger
from dovetail.names import LABEL_JOB
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.manifests import rendezvous
from dovetail_operator.state.state import State
from dovetail_operator.writes import services
from dovetail_operator.writes.services import Named

log = get_logger("dovetail.operator")

_HANDS: Final = 2
# A Service that is deleted with its namespace or GPUJob is deleted first: after this time the owner is usually gone
# too.
_SETTLE_SECONDS: Final = 1.0
_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=30.0)


class _InTheWayError(Exception):
    """The Service cannot be created as long as an obstacle remains."""


class ServiceKeeper:
    """Follows the Services with our label. `run` it once the state is complete."""

    def __init__(
        self,
        client: Client,
        *,
        state: State,
        post: Callable[[Announcement], None],
        rng: random.Random,
        settle_seconds: float = _SETTLE_SECONDS,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        self._client = client
        self._state = state
        self._post = post
        self._rng = rng
        self._settle_seconds = settle_seconds
        self._backoff = backoff
        self._queue = WorkQueue()
        self._services = Reflector(
            client, resource=SERVICES, as_type=Named, on_event=self._on_event, label_selector=LABEL_JOB
        )
        # Jobs whose owners have received the event that the Service cannot be created.
        self._announced: set[str] = set()

    async def run(self) -> None:
        """Keep the Services until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._services.run())
            await self._services.synced.wait()
            for key, job in self._state.store.jobs.items():
                if self._is_missing(job):
                    self._queue.add(key)
            tasks.create_task(
                self._queue.serve(self._keep, hands=_HANDS, failed=_tried_again, rng=self._rng, backoff=self._backoff)
            )

    def _on_event(self, type_: EventType, service: Named) -> None:
        if type_ == "DELETED":
            self._queue.add_later(key_of(service.metadata), seconds=self._settle_seconds)

    def _is_missing(self, job: GPUJob) -> bool:
        found = self._services.store.get(key_of(job.metadata))
        is_there = found is not None and is_owned(found.metadata, by=job)
        return not is_there and needs_service(job, child=self._state.store.child_of(job))

    async def _keep(self, key: str) -> None:
        job = self._state.store.jobs.get(key)
        if job is None or not self._is_missing(job):
            self._announced.discard(key)
            return
        obstacle = await services.ensure(self._client, job=job, manifest=rendezvous.service_of(job))
        if obstacle is None:
            self._announced.discard(key)
            log.info("a gang's Service was missing and is there again", job=key)
            return
        if key not in self._announced:
            self._announced.add(key)
            why = NO_SERVICE(why=obstacle.message)
            self._post(Announcement(about=job.metadata, severity="Warning", why=why))
        raise _InTheWayError(obstacle.message)


def needs_service(job: GPUJob, *, child: Job | None) -> bool:
    """Whether workers of the job look for each other, or soon may. `child` is its batch Job."""
    if not rendezvous.meets(job) or not is_managed(job) or is_finished(job) or is_going(job):
        return False
    if child is None:
        # Its batch Job may be about to be created, after a Service that has been deleted since.
        return job.status.phase == "Starting"
    return not has_ended(child) and not is_past(job, child=child)


def _tried_again(key: str, error: Exception, wait: float) -> None:
    if isinstance(error, _InTheWayError):
        log.warning("a gang's Service is missing", job=key, error=str(error), wait_seconds=round(wait, 1))
    else:
        log_failure("a gang's Service is missing", error=error, wait=wait, job=key)
