"""GPUs in MIG mode as the planner sees them: what they can have, what they have, and what is requested. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace as with_fields

from dovetail.api.gpunode import GPUNode, Reshape
from dovetail.cluster.availability import of_device, unreadable
from dovetail.formats.durations import moment
from dovetail.gpu import mig
from dovetail.gpu.geometry import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A MIG instance of a GPU. `usable`: healthy, not cordoned by people and without strangers."""

    uuid: str
    profile: str
    usable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU whose agent can partition it again. `request` is what is requested of it now.

    `answered` is the `requestedTime` of the last request that the agent has finished, `finished` when that was, and
    `problem` why it failed; empty if it did not.
    """

    node: str
    uuid: str
    index: int
    model: str
    slots: tuple[Slot, ...]
    instances: tuple[Instance, ...] = ()
    request: Reshape | None = None
    answered: str = ""
    finished: datetime | None = None
    problem: str = ""

    @property
    def name(self) -> str:
        """The GPU in a sentence."""
        return f"GPU {self.index} of node {self.node}"


def cards_of(gpunode: GPUNode) -> tuple[Card, ...]:
    """The GPUs of a node that its agent can partition again; none while it cannot read them."""
    status = gpunode.status
    if unreadable(gpunode):
        return ()
    return tuple(
        Card(
            node=gpunode.metadata.name,
            uuid=card.uuid,
            index=card.index,
            model=card.model,
            slots=tuple(
                with_fields(slot, profile=profile) for slot in card.slots if (profile := mig.normalised(slot.profile))
            ),
            instances=tuple(_instances(gpunode, of=card.uuid)),
            request=gpunode.spec.reshape.get(card.uuid),
            answered=card.answered or "",
            finished=moment(card.finished_time) if card.finished_time else None,
            problem=card.problem,
        )
        for card in status.reshapable
    )


def _instances(gpunode: GPUNode, *, of: str) -> Iterable[Instance]:
    for device in gpunode.status.devices:
        if device.parent == of:
            usable = all(each.cause == "Reshaping" for each in of_device(device, gpunode=gpunode))
            yield Instance(
                uuid=device.uuid, profile=mig.normalised(device.mig_profile) or device.mig_profile, usable=usable
            )
