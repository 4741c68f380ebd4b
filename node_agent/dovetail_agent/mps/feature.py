"""Reports MPS from the state file of the node's supervisor, as long as the file is fresh."""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric

from dovetail.api.gpunode import GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import Condition, find_condition
from dovetail.decoding import convert
from dovetail_agent.feature.enforcement import with_enforcement
from dovetail_agent.feature.protocol import Feature, Seen, Wake
from dovetail_agent.mps import state_file
from dovetail_agent.mps.limits import limits_of
from dovetail_agent.mps.state_file import OLD_SECONDS, State
from dovetail_agent.report.node_status import timestamp

CONDITION: Final = "MPS"
_EVERY_SECONDS: Final = 5.0
_SILENT: Final = State(at=0.0, reason="Silent", message="the supervisor (dovetail-mps) of this node says nothing")


class MpsFeature(Feature):
    """Reads the file `path` every 5 s. `clock` is the time of day in seconds since 1970."""

    name = "mps"

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._state = _SILENT

    async def run(self, wake: Wake) -> None:
        """Follow the file, and request a look when its claim changes."""
        while True:
            state = await asyncio.to_thread(self._read)
            changed = (state.live, state.reason, state.message) != (
                self._state.live, self._state.reason, self._state.message,
            )  # fmt: skip
            self._state = state
            if changed:
                wake()
            await asyncio.sleep(_EVERY_SECONDS)

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:
        """Report whether MPS enforces limits, as enforcement and as the condition MPS."""
        state = self._state
        why = _cooperative(seen.tenants) if state.live else f"MPS: {state.message}"
        status = with_enforcement(status, name="mps", holds=state.live, why=why)
        others = [condition for condition in status.conditions if condition.type != CONDITION]
        return msgspec.structs.replace(status, conditions=[*others, _condition(state, seen=seen)])

    def metrics(self) -> Iterable[Metric]:
        """Whether the supervisor is heard. The supervisor has metrics of its own."""
        yield GaugeMetricFamily(
            "dovetail_mps_supervisor_heard",
            "Whether the node's MPS supervisor has been heard of lately (1) or not (0).",
            value=float(self._state.reason != _SILENT.reason),
        )

    def _read(self) -> State:
        state = state_file.read(self._path)
        if state is None or self._clock() - state.at > OLD_SECONDS:
            return _SILENT
        return state


def _cooperative(tenants: Iterable[NodeTenant]) -> str:
    """Name the tenants that MPS limits only while they keep their environment.

    These are the tenants that were promised less than the largest promise on their device.
    """
    listed = list(tenants)
    limits = limits_of(listed)
    less = sorted(
        f"{tenant.namespace}/{tenant.name}"
        for tenant in listed
        if tenant.mode == "Fractional"
        and any(
            each.memory_mib < limits.memory_mib[each.uuid] or each.share_milli // 10 < limits.percentage
            for each in tenant.devices
        )
    )
    if not less:
        return ""
    return f"limits below the node's largest bind a program only while it keeps its environment: {', '.join(less)}"


def _condition(state: State, *, seen: Seen) -> Condition:
    before = find_condition(seen.previous.conditions, type=CONDITION) if seen.previous else None
    status = "True" if state.live else "False"
    since = timestamp(seen.now) if before is None or before.status != status else before.last_transition_time
    values: dict[str, Any] = {"type": CONDITION, "status": status, "reason": state.reason or "Unknown"}
    return convert({**values, "message": state.message, "lastTransitionTime": since}, as_type=Condition)
