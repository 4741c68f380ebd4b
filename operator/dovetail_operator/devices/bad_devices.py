"""Jobs on unhealthy devices: which devices, the job's condition and its event. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.gpunode import Device, GPUNode
from dovetail.api.meta import Condition, find_condition
from dovetail.api.reasons.conditions import GPU_UNHEALTHY, HELD_GPUS_UNHEALTHY, NONE_UNHEALTHY, condition
from dovetail.api.reasons.events import BAD_CARDS
from dovetail.api.reasons.nodes import DETAIL
from dovetail.engine.ledger.ledger import Ledger
from dovetail_operator.events.announcement import Announcement

CONDITION: Final = "DevicesHealthy"
_SHOWN: Final = 4


class BadDevices:
    """The unhealthy devices of all nodes, from the agents' reports."""

    def __init__(self) -> None:
        # By node and UUID: the device's index, and what is wrong with it in a sentence.
        self._of_node: dict[str, dict[str, tuple[int, str]]] = {}

    def changed(self, gpunode: GPUNode) -> set[str]:
        """Take a report. Returns the UUIDs of the devices whose health or reason has changed."""
        name, before = gpunode.metadata.name, self._of_node.get(gpunode.metadata.name, {})
        after = {
            device.uuid: (device.index, _sentence(device, node=name))
            for device in gpunode.status.devices
            if device.health == "Unhealthy"
        }
        self._of_node[name] = after
        return {uuid for uuid in before.keys() | after.keys() if before.get(uuid) != after.get(uuid)}

    def gone(self, node: str) -> None:
        """Drop a node whose GPUNode is deleted."""
        self._of_node.pop(node, None)

    def held_by(self, pods: Iterable[Pod], *, ledger: Ledger) -> tuple[str, ...]:
        """The unhealthy devices that unfinished pods hold, as sentences, by node and index."""
        claims = [
            claim for pod in pods if not is_terminated(pod) and (claim := ledger.claim(pod.metadata.uid)) is not None
        ]
        held = {(claim.node, device.uuid) for claim in claims for device in claim.devices}
        bad = ((node, *known) for node, uuid in held if (known := self._of_node.get(node, {}).get(uuid)) is not None)
        return tuple(text for _, _, text in sorted(bad))


def _sentence(device: Device, *, node: str) -> str:
    found = GPU_UNHEALTHY(index=device.index, node=node, device=device.uuid)
    return (found + DETAIL(detail=device.health_reason) if device.health_reason else found).message


def sentence(bad: Sequence[str]) -> str:
    """The unhealthy devices of a job in one sentence."""
    more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    return "; ".join(bad[:_SHOWN]) + more


def condition_of(bad: Sequence[str], *, before: Condition | None, finished: bool, now: str) -> Condition | None:
    """Whether the job's devices are healthy; None before the first fault.

    A finished job keeps its condition.
    """
    if bad:
        return condition(CONDITION, status="False", why=HELD_GPUS_UNHEALTHY(gpus=sentence(bad)), at=now)
    if before is None or finished:
        return before
    return condition(CONDITION, status="True", why=NONE_UNHEALTHY(), at=now)


def announcement_of(job: GPUJob, *, status: GPUJobStatus) -> Announcement | None:
    """The event for a status that lists other unhealthy devices than before, else None."""
    before, after = (find_condition(each.conditions, type=CONDITION) for each in (job.status, status))
    if after is None or after.status != "False":
        return None
    if before is not None and (before.status, before.message) == (after.status, after.message):
        return None
    return Announcement(about=job.metadata, severity="Warning", why=BAD_CARDS(gpus=after.message))
