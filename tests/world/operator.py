"""The real operator over an API server in memory, in virtual time: it can be killed after any of its writes."""

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast
from unittest import mock

from prometheus_client import CollectorRegistry

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.jobs.moves import MoveRules
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.kube.workqueue import WorkQueue
from dovetail.queue import cycle as core_cycle
from dovetail.queue import verdicts
from dovetail.queue.preemption.policy import Rules
from dovetail_operator.controller.controller import Controller, build_controller
from dovetail_operator.controller.informers import Informers
from dovetail_operator.job.drain import DrainRules
from dovetail_operator.metrics import make_counters
from dovetail_operator.queue.quota_status import QuotaStatusWriter
from dovetail_operator.queue.time_slices import TimeSlices
from dovetail_operator.state import decisions
from dovetail_operator.state.decisions import Failing
from dovetail_operator.state.pending_writes import PendingWrites
from dovetail_operator.state.state import State, build_state
from dovetail_operator.state.store import Utilization
from dovetail_operator.watchers.guests.keeper import GuestKeeper
from dovetail_operator.watchers.waiting_pods import WaitingPods
from dovetail_operator.writes.evictions import PodEvictions
from dovetail_operator.writes.job_numbers import Numbers
from tests.core.queue.twin import CheckedCycle
from tests.operator_.builders import make_keeper
from tests.virtual_time import VirtualLoop
from tests.world.api import ApiClient, ApiServer, Values, as_typed, never

START: Final = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
PREEMPTION: Final = Rules(
    gap=10, min_run_seconds=0.0, grace_seconds=3.0, per_job=100, left=1000, reclaim_grace_seconds=2.0
)
DRAIN: Final = DrainRules(restarts=True, grace_seconds=2.0)
MOVES: Final = MoveRules(rest_seconds=0.0, per_hour=1000)
# How late a write arrives, its answer and each event, in seconds; mostly at once.
DELAYS: Final = (0.0, 0.0, 0.0, 0.01, 0.2, 1.3)
_KINDS: Final = {
    "gpujobs": "_on_job", "jobs": "_on_child", "pods": "_on_pod", "nodes": "_on_node", "gpunodes": "_on_gpunode",
    "gpuquotas": "_on_quota", "poddisruptionbudgets": "_on_budget",
}  # fmt: skip


class _Slices(TimeSlices):
    """Work that pauses wherever it may, for `pause_seconds`, and takes no time of the processor."""

    pause_seconds = 0.0

    async def pause_if_due(self) -> None:
        await asyncio.sleep(self.pause_seconds)

    @property
    def busy_seconds(self) -> float:
        return 0.0

    @property
    def is_due(self) -> bool:
        return True


@contextmanager
def watched(
    loop: VirtualLoop, *, failures: list[Exception], slow_cycles: bool, checked_cycles: bool = True
) -> Iterator[None]:
    """All clocks of the operator show the loop's time, and what it would log and try again is a failure.

    With `slow_cycles` each verdict takes long enough for reconciles in between. `checked_cycles` are each compared with
    the plain twin, which takes most of the time.
    """

    def failed(_event: str, *, error: Exception, **_more: object) -> None:
        if not isinstance(error, KubeError):
            failures.append(error)

    record = Failing.record

    def recorded(self: Failing, job: GPUJob, *, error: Exception) -> bool:
        failures.append(error)
        return record(self, job, error=error)

    with ExitStack() as stack:
        for module in ("queue.loop", "queue.start_estimates", "queue.move_planner", "controller.controller"):
            stack.enter_context(mock.patch(f"dovetail_operator.{module}.log_failure", failed))
        stack.enter_context(mock.patch.object(Failing, "record", recorded))
        stack.enter_context(mock.patch.object(_Slices, "pause_seconds", 0.3 if slow_cycles else 0.0))
        stack.enter_context(mock.patch("time.monotonic", loop.time))
        for part in (PendingWrites, Utilization, GuestKeeper, PodEvictions):
            defaults: Any = part.__init__.__kwdefaults__
            stack.enter_context(mock.patch.dict(defaults, clock=loop.time))
        for module in ("loop", "start_estimates", "move_planner"):
            stack.enter_context(mock.patch(f"dovetail_operator.queue.{module}.TimeSlices", _Slices))
        if checked_cycles:
            stack.enter_context(mock.patch.object(core_cycle, "SchedulingCycle", CheckedCycle))
        # Few jobs start at a time: their plans follow their batch Jobs all the same.
        stack.enter_context(mock.patch.object(decisions, "MANY_STARTS", 0))
        # Few jobs wait at a time: all but the first one keep their verdicts without another judgement.
        stack.enter_context(mock.patch.object(verdicts, "RENEWED_JOBS", 1))
        yield


class Operator:
    """One process of the operator. `seed` decides what is late; with None nothing is."""

    _client_type: type[ApiClient] = ApiClient

    def __init__(self, server: ApiServer, *, loop: VirtualLoop, seed: int | None, died: Callable[[], None]) -> None:
        self._server, self._loop, self._died = server, loop, died
        self._late = None if seed is None else random.Random(seed)
        self._is_dead = False
        self.writes: list[str] = []
        # After so many more writes the process dies.
        self.left: int | None = None
        self._events: dict[str, deque[tuple[EventType, Any]]] = defaultdict(deque)
        self.state = make_empty_state()
        client = cast("Client", self._client_type(server, before=self._before, after=self._after))
        queue = WorkQueue()
        self.queue = queue
        self.controller: Controller = build_controller(
            client,
            state=self.state,
            queue=queue,
            numbers=Numbers(client, namespace="home"),
            counters=make_counters(CollectorRegistry()),
            post=lambda _news: None,
            now=self.now,
            rng=random.Random(7),
            pods={},
            guests=(guests := self._make_guests(client)),
        )
        self._informers = Informers(client, transform=self.state.store.lean)
        self._informers.connect(
            self.controller.changes,
            on_unreadable_job=self.controller.changes.job_unreadable,
            tenants=None,
            guests=guests,
            # Only followed: what it would say is no decision.
            waiting=WaitingPods(client, state=self.state, nodes={}, post=lambda _news: None, rng=random.Random(7)),
        )
        self._quotas = QuotaStatusWriter(client, state=self.state, now=self.now)
        self._task: asyncio.Task[None] | None = None

    def now(self) -> datetime:
        return now(self._loop)

    def _make_guests(self, client: Client) -> GuestKeeper:
        return make_keeper(client, state=self.state)

    def _seen_as(self, plural: str, values: Values) -> Iterator[tuple[str, Any]]:
        """The informers that show an object, and what they decode."""
        if plural in _KINDS:
            yield plural, as_typed(plural, values)

    def start(self) -> None:
        """List everything, and run."""
        for plural in list(self._server.objects):
            for values in self._server.all(plural):
                for informer, found in self._seen_as(plural, values):
                    self._deliver(informer, "ADDED", found)
        self._server.watches.append(self._watch)
        self._task = self._loop.create_task(self._run())

    async def kill(self) -> None:
        """Nothing of it happens any more."""
        self._is_dead = True
        self._server.watches.remove(self._watch)
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    def check(self) -> None:
        """The process has not died of itself."""
        if self._task is not None and self._task.done() and not self._is_dead:
            self._task.result()

    @property
    def is_idle(self) -> bool:
        """Whether all events were delivered, and no job is to be reconciled."""
        return not self.queue.load and not any(self._events.values())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.controller.run())
            tasks.create_task(self._quotas.run())
            for part in self._more_parts():
                tasks.create_task(part)

    def _more_parts(self) -> list[Coroutine[Any, Any, None]]:
        return []

    # --- events ------------------------------------------------------------------------------------------------

    def _watch(self, plural: str, type_: EventType, values: Values) -> None:
        if self._is_dead:
            return
        for informer, found in self._seen_as(plural, values):
            self._events[informer].append((type_, found))
            self._loop.call_later(self._delay(), self._deliver_next, informer)

    def _deliver_next(self, plural: str) -> None:
        # In order, however late each of them is.
        if not self._is_dead:
            self._deliver(plural, *self._events[plural].popleft())

    def _deliver(self, plural: str, type_: EventType, found: Any) -> None:
        getattr(self._informers, _KINDS[plural])(type_, found)

    # --- writes ------------------------------------------------------------------------------------------------

    async def _before(self) -> None:
        await asyncio.sleep(self._delay())
        if self._is_dead:
            await never()

    async def _after(self, what: str) -> None:
        self.writes.append(what)
        if self.left is not None:
            self.left -= 1
            if self.left <= 0 and not self._is_dead:
                self._is_dead = True
                self._died()
        if self._is_dead:
            await never()
        await asyncio.sleep(self._delay())

    def _delay(self) -> float:
        return 0.0 if self._late is None else self._late.choice(DELAYS)


def make_empty_state() -> State:
    """The state of an operator that has seen nothing."""
    return build_state(ClusterView(ledger=Ledger()), preemption=PREEMPTION, drain=DRAIN, moves=MOVES)


def now(loop: VirtualLoop) -> datetime:
    return START + timedelta(seconds=loop.time() - 1000.0)
