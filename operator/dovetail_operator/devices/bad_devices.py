"""Jobs on unhealthy devices: which devices, the job's condition and its event. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import Condition, find_condition
from dovetail.engine.ledger.ledger import Ledger
from dovetail_operator.events.announcement import Announcement

CONDITION: Final = "DevicesHealthy"
_SHOWN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BadDevice:
    """An unhealthy device, with the agent's reason."""

    node: str
    index: int
    uuid: str
    reason: str

    @property
    def sentence(self) -> str:
        """The device and its reason as a sentence."""
        why = f": {self.reason}" if self.reason else ""
        return f"GPU {self.index} of {self.node} ({self.uuid}) is unhealthy{why}"


class BadDevices:
    """The unhealthy devices of all nodes, from the agents' reports."""

    def __init__(self) -> None:
        self._of_node: dict[str, dict[str, BadDevice]] = {}

    def changed(self, gpunode: GPUNode) -> set[str]:
        """Take a report. Returns the UUIDs of the devices whose health or reason has changed."""
        name, before = gpunode.metadata.name, self._of_node.get(gpunode.metadata.name, {})
        after = {
            device.uuid: BadDevice(node=name, index=device.index, uuid=device.uuid, reason=device.health_reason)
            for device in gpunode.status.devices
            if device.health == "Unhealthy"
        }
        self._of_node[name] = after
        return {uuid for uuid in before.keys() | after.keys() if before.get(uuid) != after.get(uuid)}

    def gone(self, node: str) -> None:
        """Drop a node whose GPUNode is deleted."""
        self._of_node.pop(node, None)

    def held_by(self, pods: Iterable[Pod], *, ledger: Ledger) -> tuple[BadDevice, ...]:
        """The unhealthy devices that unfinished pods hold."""
        claims = [
            claim for pod in pods if not is_terminated(pod) and (claim := ledger.claim(pod.metadata.uid)) is not None
        ]
        held = {(claim.node, device.uuid) for claim in claims for device in claim.devices}
        bad = (self._of_node.get(node, {}).get(uuid) for node, uuid in held)
        return tuple(sorted(card for card in bad if card is not None))


def sentence(cards: Iterable[BadDevice]) -> str:
    """The unhealthy devices of a job in one sentence."""
    listed = [card.sentence for card in cards]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return "; ".join(listed[:_SHOWN]) + more


def condition_of(
    cards: tuple[BadDevice, ...], *, before: Condition | None, finished: bool, now: str
) -> Condition | None:
    """Whether the job's devices are healthy; None before the first fault.

    A finished job keeps its condition.
    """
    if cards:
        return Condition(
            type=CONDITION, status="False", reason="Unhealthy", message=sentence(cards), last_transition_time=now
        )
    if before is None or finished:
        return before
    return Condition(
        type=CONDITION,
        status="True",
        reason="Healthy",
        message="The job holds no unhealthy GPU any more",
        last_transition_time=now,
    )


def announcement_of(job: GPUJob, *, status: GPUJobStatus) -> Announcement | None:
    """The event for a status that lists other unhealthy devices than before, else None."""
    before, after = (find_condition(each.conditions, type=CONDITION) for each in (job.status, status))
    if after is None or after.status != "False":
        return None
    if before is not None and (before.status, before.message) == (after.status, after.message):
        return None
    return Announcement(about=job.metadata, severity="Warning", reason="BadCard", message=after.message)
