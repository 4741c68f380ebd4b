"""The feature that asks kubelet again and again who holds which devices, and has its last answer at hand."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from dovetail.api.gpunode import Assignment, GPUNodeStatus
from dovetail.gpu.device_plugins import Vendors
from dovetail.logs import get_logger
from dovetail_agent.devices.assignments import Holder, matched
from dovetail_agent.feature.protocol import Feature, Seen, Wake
from dovetail_agent.kubelet.podresources import PodResourcesError, holders
from dovetail_agent.report.node_status import condition

log = get_logger(__name__)

CONDITION: Final = "PodResources"
# Kubelet picks devices when it takes a pod in, a moment after the pod was bound; some pods it never takes in.
_SOON_SECONDS: Final = 1.0
_SOON_TIMES: Final = 10


class KubeletDevices(Feature):
    """Tells whom kubelet gave what on one node. What was known stays known while kubelet is away."""

    name = "pod-resources"

    def __init__(self, *, node: str, socket: Path, every_seconds: float, vendors: Vendors) -> None:
        self._node = node
        self._socket = socket
        self._every_seconds = every_seconds
        self._vendors = vendors
        self._holders: tuple[Holder, ...] | None = None
        self._problem = ""
        # UIDs of the pods that are there, and of those that were when kubelet was last asked: it tells names alone, and
        # a pod may come under the name of one that has just gone.
        self._present: frozenset[str] = frozenset()
        self._asked_for: frozenset[str] = frozenset()
        self._soon = 0
        self._asked = asyncio.Event()

    async def run(self, wake: Wake) -> None:
        """Ask at a steady pace, and more often for a while when a pod has come whose devices are not known."""
        while True:
            self._asked.clear()
            if await self._read():
                wake()
            pause = min(_SOON_SECONDS, self._every_seconds) if self._soon else self._every_seconds
            self._soon = max(0, self._soon - 1)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._asked.wait()

    def assignments(self, seen: Seen) -> list[Assignment] | None:
        """What kubelet said last; before its first answer what was last reported of pods that are still there."""
        if seen.node.metadata.name != self._node or seen.inventory is None:
            return None
        if self._holders is None:
            present = {tenant.uid for tenant in seen.tenants}
            reported = seen.previous.assignments if seen.previous else []
            return [each for each in reported if each.uid in present]
        self._look_for(frozenset(tenant.uid for tenant in seen.tenants))
        known = [tenant for tenant in seen.tenants if tenant.uid in self._asked_for]
        return matched(self._holders, tenants=known, inventory=seen.inventory, vendors=self._vendors)

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:
        """Whether kubelet answers, as a condition."""
        if seen.node.metadata.name != self._node or (self._holders is None and not self._problem):
            return status
        told = condition(
            CONDITION,
            "False" if self._problem else "True",
            reason="KubeletSilent" if self._problem else "Listed",
            message=self._problem or "kubelet says which pods hold which devices",
            previous=seen.previous,
            now=seen.now,
        )
        return msgspec.structs.replace(status, conditions=[*status.conditions, told])

    def _look_for(self, present: frozenset[str]) -> None:
        """Ask at once and soon again when there are pods that were not there before."""
        news, self._present = present - self._present, present
        if news:
            self._soon = _SOON_TIMES
            self._asked.set()

    async def _read(self) -> bool:
        """Ask kubelet once; whether it said something new."""
        before, present = (self._holders, self._problem, self._asked_for), self._present
        try:
            self._holders, self._problem, self._asked_for = await holders(self._socket), "", present
        except PodResourcesError as error:
            self._problem = str(error)
            if before[1] != self._problem:
                log.warning("kubelet does not say who holds which devices", problem=self._problem)
        return (self._holders, self._problem, self._asked_for) != before
