"""Probes suspend to host, wraps it around the freezer, reports it, restores leftovers."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from dovetail.api.gpunode import GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import Condition, find_condition
from dovetail.decoding import convert
from dovetail.kube.event_recorder import EventRecorder
from dovetail.logs import get_logger
from dovetail_agent.checkpoint.calls import Calls
from dovetail_agent.checkpoint.node_state import SeenWorld
from dovetail_agent.checkpoint.state_files import CheckpointMarks
from dovetail_agent.checkpoint.suspend_to_host import SuspendToHost
from dovetail_agent.feature.enforcement import with_enforcement
from dovetail_agent.feature.events import warn_pod
from dovetail_agent.feature.protocol import Feature, Seen, Wake
from dovetail_agent.mps.probe import Verdict
from dovetail_agent.report.node_status import timestamp
from dovetail_agent.turns.suspender import Suspender

log = get_logger(__name__)

CONDITION: Final = "SuspendToHost"
# The first interval retries tenants that are left on the host, the second a failed probe.
_RECOVER_SECONDS: Final = 5.0
_PROBE_AGAIN_SECONDS: Final = 300.0
_NOT_TRIED: Final = Verdict(reason="Starting", message="it has not been tried yet")


class CheckpointFeature(Feature):
    """The suspend-to-host feature.

    `probe` tries the driver and blocks. `turn_seconds` is the shortest turn while a tenant's memory is on the host.
    """

    name = "checkpoint"

    def __init__(
        self,
        *,
        calls: Calls,
        marks: CheckpointMarks,
        world: SeenWorld,
        probe: Callable[[], Verdict],
        events: EventRecorder,
        turn_seconds: float,
    ) -> None:
        self._calls = calls
        self._marks = marks
        self._world = world
        self._probe = probe
        self._events = events
        self._turn_seconds = turn_seconds
        self._verdict = _NOT_TRIED
        self._suspender: SuspendToHost | None = None

    def around(self, inner: Suspender) -> Suspender:
        """Wrap the suspender that the turns use.

        Raises `OSError` if the marks' folder cannot be created.
        """
        self._marks.prepare()
        self._suspender = SuspendToHost(inner, calls=self._calls, marks=self._marks, world=self._world)
        return self._suspender

    def away(self) -> frozenset[str]:
        """The UIDs of pods whose memory is on the host.

        They have work although no driver lists their processes.
        """
        return self._suspender.away if self._suspender else frozenset()

    def in_the_way(self, tenant: NodeTenant) -> bool:
        """Whether the tenant's memory keeps others off its devices: idle, it would do so for ever."""
        return self._suspender is not None and self._world.crowded(tenant)

    def shortest_turn(self) -> float:
        """The shortest turn in seconds.

        Moving memory takes seconds and must not take up most of a turn.
        """
        return self._turn_seconds if self.away() else 0.0

    async def run(self, wake: Wake) -> None:
        """Probe the driver until it succeeds, and restore tenants that are left on the host."""
        probed_at = -_PROBE_AGAIN_SECONDS
        clock = asyncio.get_running_loop().time
        while True:
            if not self._verdict.live and clock() - probed_at >= _PROBE_AGAIN_SECONDS:
                self._verdict = await asyncio.to_thread(self._probe)
                self._world.live, probed_at = self._verdict.live, clock()
                log.info("suspend to host probed", live=self._verdict.live, found=self._verdict.message)
                wake()
            if self._suspender is not None:
                await asyncio.to_thread(self._suspender.recover)
            await asyncio.sleep(_RECOVER_SECONDS)

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:
        """Report in the condition SuspendToHost whether tenants can be moved, and which are lost."""
        self._world.seen = seen
        live = self._verdict.live and self._suspender is not None
        why = "" if live else self._verdict.message
        if self._verdict.live and self._suspender is None:
            why = "there are no turns here, by which tenants are moved"
        status = with_enforcement(status, name="checkpoint", holds=live, why=why)
        others = [condition for condition in status.conditions if condition.type != CONDITION]
        return msgspec.structs.replace(status, conditions=[*others, self._condition(seen, live=live, why=why)])

    async def act(self, seen: Seen, *, status: GPUNodeStatus) -> None:  # noqa: ARG002 - the protocol's
        """Send an event to each pod whose memory could not be moved, or is lost."""
        suspender = self._suspender
        if suspender is None:
            return
        tenants = {tenant.uid: tenant for tenant in seen.tenants}
        await asyncio.to_thread(suspender.forget, frozenset(tenants))
        for uid, trouble in suspender.troubles.items():
            if tenant := tenants.get(uid):
                reason = "SuspendedMemoryLost" if trouble.lost else "NotMovedToHost"
                node = seen.node.metadata.name
                warn_pod(self._events, tenant=tenant, node=node, reason=reason, message=trouble.message)

    def metrics(self) -> Iterable[Metric]:
        """Gauges of suspended and lost tenants, and a counter of successful calls."""
        yield GaugeMetricFamily(
            "dovetail_suspend_to_host_live",
            "1 where tenants can move to the host.",
            value=float(self._verdict.live),
        )
        if self._suspender is None:
            return
        yield GaugeMetricFamily(
            "dovetail_suspend_to_host_away", "Tenants whose memory is on the host.", value=len(self.away())
        )
        lost = sum(trouble.lost for trouble in self._suspender.troubles.values())
        yield GaugeMetricFamily("dovetail_suspend_to_host_lost", "Tenants that the driver lost for good.", value=lost)
        moves = CounterMetricFamily("dovetail_suspend_to_host_calls", "Calls that did their work.", labels=["call"])
        for call in ("lock", "checkpoint", "restore", "unlock"):
            moves.add_metric([call], self._suspender.moves[call])
        yield moves

    def _condition(self, seen: Seen, *, live: bool, why: str) -> Condition:
        troubles = self._suspender.troubles if self._suspender else {}
        lost = [trouble for trouble in troubles.values() if trouble.lost]
        values: dict[str, Any] = {"type": CONDITION, "status": "True" if live and not lost else "False"}
        if lost:
            values |= {"reason": "TenantLost", "message": "; ".join(sorted(trouble.message for trouble in lost))}
        else:
            values |= {"reason": self._verdict.reason, "message": why or self._verdict.message}
        before = find_condition(seen.previous.conditions, type=CONDITION) if seen.previous else None
        same = before is not None and before.status == values["status"]
        since = before.last_transition_time if before is not None and same else timestamp(seen.now)
        return convert({**values, "lastTransitionTime": since}, as_type=Condition)
