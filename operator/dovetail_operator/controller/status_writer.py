"""Writes the status of GPUJobs and posts the events that follow from it."""

import time
from collections.abc import Callable

from prometheus_client import Counter

from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.meta import key_of
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound
from dovetail.kube.workqueue import WorkQueue
from dovetail.logs import get_logger
from dovetail_operator.devices import bad_devices, memory_overuse
from dovetail_operator.events.announcement import Announcement, announcement
from dovetail_operator.job.status_pacing import PASSING_SECONDS, Burst, Pacing
from dovetail_operator.state.pending_writes import PendingWrites
from dovetail_operator.state.state import State
from dovetail_operator.writes import jobs

log = get_logger("dovetail.operator")


class StatusWriter:
    """Writes a status if it differs. `queue` gets the jobs whose status is written later."""

    def __init__(
        self,
        client: Client,
        *,
        state: State,
        queue: WorkQueue,
        pacing: Pacing,
        pending: PendingWrites,
        post: Callable[[Announcement], None],
        preemptions: Counter,
    ) -> None:
        self._client = client
        self._state = state
        self._queue = queue
        self._pacing = pacing
        self._pending = pending
        self._post = post
        self._preemptions = preemptions
        self._first = Burst()

    async def write(self, job: GPUJob, *, status: GPUJobStatus) -> bool:
        """Write a changed status and post its events. False if the job has changed or is deleted."""
        if status == job.status:
            return True
        key = key_of(job.metadata)
        try:
            with self._pending.sending(key, status=status):
                written = await jobs.write_status(self._client, job=job, status=status)
        except NotFound:
            # The watch brings the deletion.
            return False
        except Conflict:
            self._pending.await_newer_job(key, job=job, store=self._state.store)
            self._queue.add(key)
            return False
        self._pacing.written(job.metadata.uid)
        self._pending.await_job(key, written=written, store=self._state.store, is_status=True)
        self._post_events(job, status=status)
        self._preemptions.inc(max(0, _preemptions(status) - _preemptions(job.status)))
        return True

    async def write_or_postpone(self, job: GPUJob, *, status: GPUJobStatus) -> None:
        """Write the status, or queue the job for the time when its status may be written again."""
        wait = self._pacing.wait_seconds(
            job.metadata.uid,
            before=job.status,
            after=status,
            rush=self._state.decisions.is_rush,
            now=time.monotonic(),
        )
        if wait > 0:
            self._queue.add_later(key_of(job.metadata), seconds=wait)
        else:
            await self.write(job, status=status)

    def postpone(self, job: GPUJob) -> None:
        """Queue a job whose batch Job has just got the plan: its status follows, with what has happened by then."""
        self._pacing.passing(job.metadata.uid, now=time.monotonic())
        self._queue.add_later(key_of(job.metadata), seconds=PASSING_SECONDS)

    def _post_events(self, job: GPUJob, *, status: GPUJobStatus) -> None:
        for event in (
            bad_devices.announcement_of(job, status=status),
            memory_overuse.announcement_of(job, status=status),
        ):
            if event is not None:
                self._post(event)
        now = time.monotonic()
        self._first.note(now, count=int(job.status.phase is None))
        event = announcement(job, status=status, of_many=self._first.is_one(now))
        if event is not None:
            log.info(
                "job changed",
                job=key_of(job.metadata),
                phase=status.phase,
                reason=status.reason,
                message=event.message,
            )
            self._post(event)


def _preemptions(status: GPUJobStatus) -> int:
    return status.preemption.count if status.preemption else 0
