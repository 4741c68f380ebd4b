"""The feature that polls kubelet for device assignments and keeps its last answer.

Its client asks the PodResources API, over the socket on kubelet's node.

PodResourcesError   kubelet does not answer or refuses: names the socket and the reason
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from dovetail.api.gpunode import Assignment, GPUNodeStatus
from dovetail.gpu.device_plugins import Vendors
from dovetail.logs import get_logger
from dovetail_agent.devices.assignments import HeldDevice, Holder, matched
from dovetail_agent.feature.protocol import Feature, Seen, Wake
from dovetail_agent.kubelet.v1.podresources_pb2 import (
    ContainerResources,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
)
from dovetail_agent.report.node_status import condition

_LIST: Final = "/v1.PodResourcesLister/List"
_TIMEOUT_SECONDS: Final = 5.0


class PodResourcesError(Exception):
    """Kubelet's socket does not answer. The text is one sentence for people."""

    def __init__(self, socket: Path, *, problem: str) -> None:
        super().__init__(f"kubelet's PodResources socket {socket}: {problem}")


async def holders(socket: Path, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> tuple[Holder, ...]:
    """Return the pods that hold devices of any kind, in kubelet's order.

    Raises `PodResourcesError`.
    """
    channel = Channel(path=str(socket))
    try:
        async with asyncio.timeout(timeout_seconds):
            ask = UnaryUnaryMethod(channel, _LIST, ListPodResourcesRequest, ListPodResourcesResponse)
            answer = await ask(ListPodResourcesRequest())
    except TimeoutError as error:
        raise PodResourcesError(socket, problem=f"no answer within {timeout_seconds:g} s") from error
    except OSError as error:
        raise PodResourcesError(socket, problem=error.strerror or str(error)) from error
    except GRPCError as error:
        raise PodResourcesError(socket, problem=f"{error.status.name}: {error.message}") from error
    except (StreamTerminatedError, ProtocolError) as error:
        raise PodResourcesError(socket, problem=str(error) or type(error).__name__) from error
    finally:
        channel.close()
    found = (
        Holder(
            namespace=pod.namespace,
            name=pod.name,
            devices=tuple(sorted({device for each in pod.containers for device in _devices(each)})),
        )
        for pod in answer.pod_resources
    )
    return tuple(holder for holder in found if holder.devices)


def _devices(container: ContainerResources) -> Iterator[HeldDevice]:
    for part in container.devices:
        yield from (HeldDevice(asked_by=part.resource_name, id=name) for name in part.device_ids)
    for claim in container.dynamic_resources:
        for given in claim.claim_resources:
            yield HeldDevice(asked_by=given.driver_name, id=given.device_name)


log = get_logger(__name__)

CONDITION: Final = "PodResources"
# Kubelet assigns devices when it admits a pod, a moment after the pod was bound. Some pods it never admits.
_SOON_SECONDS: Final = 1.0
_SOON_TIMES: Final = 10


class KubeletDevices(Feature):
    """Reports kubelet's assignments on one node. The last answer stays while kubelet is down."""

    name = "pod-resources"

    def __init__(self, *, node: str, socket: Path, every_seconds: float, vendors: Vendors) -> None:
        self._node = node
        self._socket = socket
        self._every_seconds = every_seconds
        self._vendors = vendors
        self._holders: tuple[Holder, ...] | None = None
        self._problem = ""
        # UIDs of the present pods, and of those present when kubelet was last asked. Kubelet gives only names, and a
        # new pod can have the name of one that has just ended.
        self._present: frozenset[str] = frozenset()
        self._asked_for: frozenset[str] = frozenset()
        self._soon = 0
        self._asked = asyncio.Event()

    async def run(self, wake: Wake) -> None:
        """Ask at a steady interval, and every second for a while after a new pod appears."""
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
        """Return kubelet's last answer.

        Before its first answer, return the reported assignments of pods that are still there.
        """
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
        """Report in a condition whether kubelet answers."""
        if seen.node.metadata.name != self._node or (self._holders is None and not self._problem):
            return status
        registered = condition(
            CONDITION,
            status="False" if self._problem else "True",
            reason="KubeletSilent" if self._problem else "Listed",
            message=self._problem or "kubelet says which pods hold which devices",
            previous=seen.previous,
            now=seen.now,
        )
        return msgspec.structs.replace(status, conditions=[*status.conditions, registered])

    def _look_for(self, present: frozenset[str]) -> None:
        """Ask at once, and repeatedly for a while, after new pods appear."""
        news, self._present = present - self._present, present
        if news:
            self._soon = _SOON_TIMES
            self._asked.set()

    async def _read(self) -> bool:
        """Ask kubelet once. Return whether the answer has changed."""
        before, present = (self._holders, self._problem, self._asked_for), self._present
        try:
            self._holders, self._problem, self._asked_for = await holders(self._socket), "", present
        except PodResourcesError as error:
            self._problem = str(error)
            if before[1] != self._problem:
                log.warning("kubelet does not say who holds which devices", problem=self._problem)
        return (self._holders, self._problem, self._asked_for) != before
