"""Runs turns: looks find the tenants that want them, the clock decides, a suspender freezes and thaws.

No tenant is frozen unless three conditions hold: a cgroup of our own was frozen and thawed, a watchdog is present to
thaw if the agent ends, and the agent's own heartbeat is written. `GPUNode.status.enforcement.turns` reports exactly
that.
"""

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from dovetail.api.gpunode import GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.logs import get_logger
from dovetail_agent.devices.model import DeviceSample
from dovetail_agent.feature.enforcement import with_enforcement
from dovetail_agent.feature.protocol import Feature, Seen, Wake
from dovetail_agent.turns.cgroup_freezer import Freezing, NoFreezer, probe
from dovetail_agent.turns.freezer import Freezer
from dovetail_agent.turns.schedule import Contender, Turns, step
from dovetail_agent.turns.state_files import Marks
from dovetail_agent.turns.suspender import Refusal, Suspender
from dovetail_agent.turns.watchdog import AGENT, WATCHDOG


def contenders(
    seen: Seen, *, away: Collection[str] = (), resting: Collection[str] = ()
) -> Iterator[tuple[Contender, NodeTenant]]:
    """Yield the TimeShared tenants that run and have work on their devices.

    A pod that starts or terminates is left alone: it could not do either while frozen. A tenant without a process on
    its devices rests: it runs, and nothing waits for it. Where processes cannot be matched to pods, every tenant counts
    as having work. A tenant in `away` has its memory on the host, is on no device and wants one. A tenant in `resting`
    has processes that compute nothing.
    """
    samples = _samples(seen)
    for tenant in seen.tenants:
        devices = frozenset(device.uuid for device in tenant.devices)
        if tenant.mode == "TimeShared" and devices and tenant.running and not tenant.leaving:
            if tenant.uid in resting:
                continue
            known = devices <= samples.keys() and tenant.uid not in away
            if known and all(_rests(tenant, on=samples[uuid]) for uuid in devices):
                continue
            yield Contender(uid=tenant.uid, devices=devices, weight=max(1, tenant.priority)), tenant


def at_rest(seen: Seen, *, judged: Collection[str]) -> frozenset[str]:
    """Return the UIDs in `judged` whose processes were measured to compute nothing.

    Pass only tenants that were able to compute.
    """
    busy: dict[str, set[bool | None]] = {}
    for sample in _samples(seen).values():
        for process in sample.processes or ():
            is_busy = None if process.utilization is None else process.utilization > 0
            busy.setdefault(process.pod_uid, set()).add(is_busy)
    return frozenset(uid for uid in judged if busy.get(uid) == {False})


def _samples(seen: Seen) -> dict[str, DeviceSample]:
    if seen.inventory is None or seen.sample is None:
        return {}
    return {info.uuid: sample for info, sample in zip(seen.inventory.devices, seen.sample.devices, strict=True)}


def _rests(tenant: NodeTenant, *, on: DeviceSample) -> bool:
    return on.used_by_tenant_mib is not None and not on.used_by_tenant_mib.get(tenant.uid)


log = get_logger(__name__)

BEAT_SECONDS: Final = 1.0
# Without measurements, the turns of half an hour.
_MOST_RUNS: Final = 1024
# Without rivals, the loop only checks whether turns are possible.
_IDLE_SECONDS: Final = 10.0
# Moving the memory of a whole device to the host and another's back takes 1-2 minutes. After this limit the move hangs:
# the agent stops its heartbeat, and the watchdog thaws.
_LONGEST_CHANGE_SECONDS: Final = 180


class TurnsFeature(Feature):
    """Turns on one node.

    `around` wraps the freezer in the suspender to use. `away` returns the tenants whose memory it has moved to the
    host, and `shortest_turn` the shortest length of their turns in seconds. A tenant that is `in_the_way` with its
    memory never rests on a device, whatever it computes.
    """

    name = "turns"

    def __init__(
        self,
        freezing: Callable[[], Freezing],
        *,
        marks: Marks,
        turn_seconds: float,
        around: Callable[[Freezer], Suspender] = lambda freezer: freezer,
        away: Callable[[], Collection[str]] = frozenset,
        shortest_turn: Callable[[], float] = float,
        in_the_way: Callable[[NodeTenant], bool] = lambda _tenant: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = freezing
        self._marks = marks
        self._turn_seconds = turn_seconds
        self._around = around
        self._away = away
        self._shortest_turn = shortest_turn
        self._in_the_way = in_the_way
        self._clock = clock
        self._changed = asyncio.Event()
        self._wanted: dict[str, tuple[Contender, NodeTenant]] = {}
        self._turns = Turns()
        # Since when each tenant runs, and what has ended of that since the last measurement: UID, begin and end.
        self._running: dict[str, float] = {}
        self._ran: deque[tuple[str, float, float]] = deque(maxlen=_MOST_RUNS)
        self._resting: frozenset[str] = frozenset()
        self._measured_at: datetime | None = None
        self._measured_clock = 0.0
        self._stopped: dict[str, NodeTenant] = {}
        self._hands = threading.Lock()
        self._ending = False
        self._suspender: Suspender | None = None
        self._problem: str | None = "not tried yet"
        self._refused: dict[str, Refusal] = {}
        self._changes: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:
        """Report whether turns are possible, and update the tenants that want them."""
        self._judge(seen)
        resting = {each.uid for each in seen.tenants if each.uid in self._resting and not self._in_the_way(each)}
        # On a crowded device, a new allocation must not meet another tenant's memory: a tenant gets a turn before it
        # has a process.
        crowding = {each.uid for each in seen.tenants if each.mode == "TimeShared" and self._in_the_way(each)}
        wanting = contenders(seen, away=crowding | set(self._away()), resting=resting)
        wanted = {contender.uid: (contender, tenant) for contender, tenant in wanting}
        if {uid: each[0] for uid, each in wanted.items()} != {uid: each[0] for uid, each in self._wanted.items()}:
            self._changed.set()
        self._wanted = wanted
        return with_enforcement(status, name="turns", holds=self._problem is None, why=self._problem or "")

    def _judge(self, seen: Seen) -> None:
        """Find, at each new measurement, the tenants that computed nothing although they could.

        Only those could that ran for half a turn or more since the measurement before: less may not show, and of each
        turn half is on one side of a measurement.
        """
        measured_at = seen.sample.measured_at or seen.now if seen.sample else None
        if measured_at is None or measured_at == self._measured_at:
            return
        since, until = self._measured_clock, self._clock() - (seen.now - measured_at).total_seconds()
        ran: dict[str, float] = {}
        for uid, began, ended in (*self._ran, *((uid, began, until) for uid, began in self._running.items())):
            ran[uid] = ran.get(uid, 0.0) + max(0.0, min(ended, until) - max(began, since))
        able = {uid for uid, seconds in ran.items() if seconds >= self._turn_seconds / 2}
        self._resting = at_rest(seen, judged=able | self._resting)
        self._measured_at, self._measured_clock = measured_at, until
        while self._ran and self._ran[0][2] <= until:
            self._ran.popleft()

    async def run(self, wake: Wake) -> None:
        """Schedule turns until cancelled, and leave no tenant frozen."""
        self._ending = False
        try:
            while True:
                await self._find_out(wake)
                await self._deal()
                await self._until_something_is_due()
        finally:
            self._wake_all()

    async def _find_out(self, wake: Wake) -> None:
        problem = await asyncio.to_thread(self._trouble)
        if problem == self._problem:
            return
        self._problem = problem
        if problem:
            log.warning("no turns: tenants of a device run at the same time", problem=problem)
        else:
            log.info("turns", turn_seconds=self._turn_seconds)
        wake()

    def _trouble(self) -> str | None:
        """Return why no tenant may be frozen; None if turns are possible."""
        try:
            if self._suspender is None:
                self._prepare()
        except (NoFreezer, OSError) as error:
            return str(error)
        return None if self._marks.alive(WATCHDOG) else "no watchdog would thaw if this agent died"

    def _prepare(self) -> None:
        freezing = self._find()
        probe(freezing)
        self._marks.prepare()
        freezer = Freezer(freezing, marks=self._marks)
        for failed in freezer.thaw_all():
            log.warning("left frozen by an agent before", problem=failed)
        self._suspender = self._around(freezer)

    async def _deal(self) -> None:
        now = self._clock()
        wanted = [contender for contender, _ in self._wanted.values()] if self._problem is None else []
        self._turns = step(
            self._turns,
            contenders=wanted,
            now=now,
            turn_seconds=max(self._turn_seconds, self._shortest_turn()),
        )
        runs = self._turns.standings.keys() - self._turns.waiting
        self._ran.extend((uid, self._running.pop(uid), now) for uid in self._running.keys() - runs)
        waiting = [self._wanted[uid][1] for uid in sorted(self._turns.waiting)]
        if waiting or self._stopped:
            await self._apply_with_beats(waiting)
        begun = self._clock()
        for uid in runs:
            self._running.setdefault(uid, begun)

    async def _apply_with_beats(self, waiting: Iterable[NodeTenant]) -> None:
        work = asyncio.create_task(asyncio.to_thread(self._apply, waiting))
        for _ in range(_LONGEST_CHANGE_SECONDS):
            self._marks.beat(AGENT)
            done, _ = await asyncio.wait({work}, timeout=BEAT_SECONDS)
            if done:
                break
        await work

    async def _until_something_is_due(self) -> None:
        beat = BEAT_SECONDS if self._stopped else _IDLE_SECONDS
        # Check more often until the watchdog is up: pods are waiting for turns.
        idle = BEAT_SECONDS if self._problem and self._wanted else beat
        seconds = min(idle, max(0.0, self._turns.next_at - self._clock()))
        # Not wait_for: in Python 3.11 it loses a cancellation that arrives with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    def _apply(self, waiting: Iterable[NodeTenant]) -> None:
        """Freeze the tenants whose turn is over, then thaw the others.

        Runs in a thread: both can block.
        """
        suspender, keep = self._suspender, {tenant.uid: tenant for tenant in waiting}
        assert suspender is not None, "turns begin only with a way to stop tenants"
        for tenant in keep.values():
            with self._hands:
                if self._ending:
                    return
                self._stop(suspender, tenant=tenant)
        for uid, tenant in list(self._stopped.items()):
            if uid not in keep:
                with self._hands:
                    self._go_on(suspender, tenant=tenant)

    def _stop(self, suspender: Suspender, *, tenant: NodeTenant) -> None:
        # Includes tenants that are already frozen: a watchdog may have thawed them while this process hung.
        new = tenant.uid not in self._stopped
        self._stopped[tenant.uid] = tenant
        refusal = suspender.suspend(tenant)
        if refusal is not None:
            del self._stopped[tenant.uid]
        elif new:
            self._changes["suspend"] += 1
        self._note(tenant, refusal=refusal)

    def _go_on(self, suspender: Suspender, *, tenant: NodeTenant) -> None:
        if tenant.uid not in self._stopped:
            return
        refusal = suspender.resume(tenant)
        if refusal is None or refusal.lost:
            del self._stopped[tenant.uid]
            self._changes["resume"] += 1
        self._note(tenant, refusal=refusal)

    def _note(self, tenant: NodeTenant, *, refusal: Refusal | None) -> None:
        if refusal is None:
            self._refused.pop(tenant.uid, None)
            return
        self._refusals[refusal.reason] += 1
        if self._refused.get(tenant.uid) != refusal:
            self._refused[tenant.uid] = refusal
            log.warning(
                "turn failed", pod=f"{tenant.namespace}/{tenant.name}", why=refusal.reason, said=refusal.message
            )

    def _wake_all(self) -> None:
        self._ending = True
        with self._hands:
            if self._suspender is not None:
                for tenant in list(self._stopped.values()):
                    self._go_on(self._suspender, tenant=tenant)
            self._marks.leave(AGENT)
        self._turns, self._running, self._problem = Turns(), {}, "ended"

    def metrics(self) -> Iterable[Metric]:
        """Whether turns are possible, how many tenants are frozen, and what failed."""
        yield GaugeMetricFamily(
            "dovetail_turns_live", "1 where turns are enforced.", value=float(self._problem is None)
        )
        yield GaugeMetricFamily(
            "dovetail_turns_waiting", "Tenants that stand still until their turn.", value=len(self._stopped)
        )
        changes = CounterMetricFamily("dovetail_turns_changes", "Tenants stopped and woken.", labels=["change"])
        for change in ("suspend", "resume"):
            changes.add_metric([change], self._changes[change])
        yield changes
        refusals = CounterMetricFamily(
            "dovetail_turns_refusals", "Tenants that could not be stopped or woken, by why.", labels=["reason"]
        )
        for reason, count in sorted(self._refusals.items()):
            refusals.add_metric([reason], count)
        yield refusals
