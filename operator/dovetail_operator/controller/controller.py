"""The controller: events mark jobs dirty, workers reconcile them, and a loop queues jobs.

Nothing is kept here that the API server does not have: a restart at any point leads to the same result.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from dovetail.api.builtin import Event, Pod
from dovetail.gpu.device_plugins import Delivery
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail.kube.retry_log import log_failure
from dovetail.kube.workqueue import WorkQueue
from dovetail.process.guarded_loops import repeat
from dovetail_operator.controller.action_runner import ActionRunner
from dovetail_operator.controller.event_handlers import Changes
from dovetail_operator.controller.informers import build_refusals
from dovetail_operator.controller.reconciler import Reconciler
from dovetail_operator.controller.status_writer import StatusWriter
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.job.status_pacing import Pacing
from dovetail_operator.metrics import Counters
from dovetail_operator.queue.loop import SchedulingLoop
from dovetail_operator.state.pending_writes import PendingWrites
from dovetail_operator.state.state import State
from dovetail_operator.watchers.guests.keeper import GuestKeeper
from dovetail_operator.writes.evictions import PodEvictions
from dovetail_operator.writes.job_numbers import Numbers

WORKERS: Final = 64
# With this many jobs to reconcile, their statuses come before events and estimates.
RUSH: Final = 8
_CLOCK_SECONDS: Final = 5.0


class Controller:
    """Drives all GPUJobs. Pass every event to its `changes`, then `run` it. `build_controller` builds it."""

    def __init__(
        self,
        state: State,
        *,
        queue: WorkQueue,
        scheduling: SchedulingLoop,
        changes: Changes,
        evictions: PodEvictions,
        refusals: Sequence[Reflector[Event]],
        reconciler: Reconciler,
        counters: Counters,
        rng: random.Random,
    ) -> None:
        self.queue = queue
        self.changes = changes
        self.reconciler = reconciler
        self._state = state
        self._scheduling = scheduling
        self._evictions = evictions
        self._refusals = refusals
        self._counters = counters
        self._rng = rng

    def rules_changed(self) -> None:
        """Queue all jobs again: the configuration has changed."""
        self._scheduling.rules_changed()

    def pools_changed(self) -> None:
        """Run a cycle soon: the growing pools have changed."""
        self._scheduling.jobs_changed()

    async def run(self) -> None:
        """Run until cancelled.

        All caches must be complete: a queue with half the objects decides wrongly.
        """
        for key in self._state.store.jobs:
            self.queue.add(key)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.queue.serve(self._timed, hands=WORKERS, failed=_tried_again, rng=self._rng))
            tasks.create_task(self._scheduling.run())
            tasks.create_task(repeat(self.changes.time_passes, every_seconds=_CLOCK_SECONDS, what="time"))
            tasks.create_task(self._evictions.run())
            for refusals in self._refusals:
                tasks.create_task(refusals.run())

    async def _timed(self, key: str) -> None:
        with self._counters.reconcile_seconds.time():
            await self.reconciler.reconcile(key)


def build_controller(
    client: Client,
    *,
    state: State,
    queue: WorkQueue,
    numbers: Numbers,
    counters: Counters,
    post: Callable[[Announcement], None],
    now: Callable[[], datetime],
    rng: random.Random,
    term: Callable[[], int | None] = lambda: None,
    mps_directory: str = "",
    delivery: Delivery = "RuntimeClass",
    endings: EndingRules | None = None,
    pods: Mapping[str, Pod],
    guests: GuestKeeper,
) -> Controller:
    """Build the controller of all GPUJobs in `state`.

    `queue` gets the keys of GPUJobs to reconcile. `pods` are all pods of the API server, by `namespace/name`. The other
    parameters are those of `ActionRunner`.
    """
    pacing, pending = Pacing(many_start=state.decisions.many_start, now=now), PendingWrites()
    scheduling = _build_scheduling(state, queue=queue, numbers=numbers, counters=counters, now=now, rng=rng)
    evictions = PodEvictions(
        client,
        is_of_a_job=state.store.is_of_a_job,
        pod=lambda namespace, name: pods.get(f"{namespace}/{name}"),
        rules=endings or EndingRules(),
        count=counters.overuse_evictions,
    )
    changes = Changes(
        state, queue=queue, scheduling=scheduling, evictions=evictions, pacing=pacing, pending=pending, now=now
    )
    guests.connect(changes.child_event)
    actions = ActionRunner(
        client,
        store=state.store,
        changes=changes,
        scheduling=scheduling,
        pending=pending,
        counters=counters,
        post=post,
        now=now,
        term=term,
        mps_directory=mps_directory,
        guests=guests,
        delivery=delivery,
    )
    statuses = StatusWriter(
        client, state=state, queue=queue, pacing=pacing, pending=pending, post=post, preemptions=counters.preemptions
    )
    return Controller(
        state,
        queue=queue,
        scheduling=scheduling,
        changes=changes,
        evictions=evictions,
        refusals=build_refusals(client, on_event=changes.refusal_event),
        reconciler=Reconciler(
            client,
            state=state,
            queue=queue,
            scheduling=scheduling,
            pending=pending,
            actions=actions,
            statuses=statuses,
            now=now,
        ),
        counters=counters,
        rng=rng,
    )


def _build_scheduling(
    state: State,
    *,
    queue: WorkQueue,
    numbers: Numbers,
    counters: Counters,
    now: Callable[[], datetime],
    rng: random.Random,
) -> SchedulingLoop:
    return SchedulingLoop(
        state,
        numbers=numbers,
        counters=counters,
        changed=queue.add,
        # Start jobs on free devices before writing why other jobs wait.
        admitted=partial(queue.add, first=True),
        now=now,
        rng=rng,
        is_busy=lambda: queue.load >= RUSH,
    )


def _tried_again(key: str, error: Exception, wait: float) -> None:
    log_failure("job is tried again", error=error, wait=wait, job=key)
