"""Carries out the operator's requests to partition idle GPUs in MIG mode again.

A request that is not `drained` is left alone. A drained one is carried out unless a pod of the node still has an
instance of the GPU or a process uses it, which the driver is asked right before. The report of the new instances and
`answered` are one write, so no reader sees the end of a request with the instances from before it. An agent that was
killed in between finds the request again, and a GPU that has the requested instances already is left as it is.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from dovetail.api.builtin import Node
from dovetail.api.gpunode import GPUNodeStatus, ReshapableCard, Reshape
from dovetail.logs import get_logger
from dovetail_agent.devices.model import SplitCard
from dovetail_agent.feature.protocol import Feature, Seen, Wake
from dovetail_agent.report.node_status import timestamp

log = get_logger(__name__)

_LONGEST_PROBLEM: Final = 1024


class Partitioner(Protocol):
    """What partitions a GPU; each provider does."""

    async def reshape(self, node: Node, *, card: str, profiles: Sequence[str]) -> str:
        """Partition the GPU; why that failed, empty if it did not."""
        ...


def _no_wake() -> None:
    pass


class ReshapeFeature(Feature):
    """Reports which GPUs can be partitioned again, and does it on request."""

    name = "reshape"

    def __init__(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner
        self._wake: Wake = _no_wake
        # What this process has finished, by node and the GPU's UUID.
        self._finished: dict[tuple[str, str], ReshapableCard] = {}

    async def run(self, wake: Wake) -> None:
        """Take note of how to ask for a look."""
        self._wake = wake

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:
        """Return the status with the GPUs that can be partitioned again. An unreadable node keeps its last ones."""
        if seen.inventory is None:
            return status
        cards = [self._card(card, seen=seen) for card in seen.inventory.split if card.slots]
        return msgspec.structs.replace(status, reshapable=cards)

    async def act(self, seen: Seen, *, status: GPUNodeStatus) -> None:
        """Carry out each drained request that is not answered yet."""
        if seen.inventory is None or seen.gpunode is None:
            return
        for card in status.reshapable:
            request = seen.gpunode.spec.reshape.get(card.uuid)
            if request is not None and request.drained and card.answered != request.requested_time:
                await self._carry_out(request, card=card, seen=seen)

    async def _carry_out(self, request: Reshape, *, card: ReshapableCard, seen: Seen) -> None:
        node = seen.node.metadata.name
        problem = _tenant_on(card, seen=seen) or await self._partitioner.reshape(
            seen.node, card=card.uuid, profiles=request.profiles
        )
        log.info("reshaped", node=node, device=card.uuid, profiles=request.profiles, problem=problem)
        self._finished[node, card.uuid] = msgspec.structs.replace(
            card,
            answered=request.requested_time,
            finished_time=timestamp(seen.now),
            problem=problem[:_LONGEST_PROBLEM],
        )
        self._wake()

    def _card(self, card: SplitCard, *, seen: Seen) -> ReshapableCard:
        """The GPU, with how its last request ended by this process, or by the last report."""
        reported = {each.uuid: each for each in seen.previous.reshapable} if seen.previous else {}
        last = self._finished.get((seen.node.metadata.name, card.uuid)) or reported.get(card.uuid)
        return ReshapableCard(
            uuid=card.uuid,
            index=card.index,
            model=card.model,
            slots=list(card.slots),
            answered=last.answered if last else None,
            finished_time=last.finished_time if last else None,
            problem=last.problem if last else "",
        )


def _tenant_on(card: ReshapableCard, *, seen: Seen) -> str:
    """Why the GPU is not idle as far as the node's pods say; empty if it is."""
    assert seen.inventory is not None, "read before"
    uuids = {device.uuid for device in seen.inventory.devices if device.parent == card.uuid}
    for tenant in seen.tenants:
        if any(device.uuid in uuids for device in tenant.devices):
            return "a pod has an instance of the GPU"
    return ""
