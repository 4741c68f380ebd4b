"""Whether a tenant may be moved to the host, and whether there is room for it to come back. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.gpu.memory import CARD_MARGIN_MIB, HOST_MARGIN_MIB
from dovetail_agent.turns.suspender import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCard:
    """A tenant's process on one card: MiB that it has there as measured, or None where that is not told."""

    pid: int
    uuid: str
    used_mib: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A tenant that is to stand still: its processes on its cards, what it was promised there, and its host memory.

    `under_mps` and `in_mig` say that it is a client of MPS, or on a MIG device. `host_free_mib` is how much more of the
    host's memory its pod may use: up to its limit, or what the node has where it has none.
    """

    name: str
    processes: Sequence[OnCard]
    promised_mib: Mapping[str, int]
    host_free_mib: int | None
    under_mps: bool = False
    in_mig: bool = False

    @property
    def needs_mib(self) -> dict[str, int]:
        """What it has on each card, by UUID; what it was promised where the driver does not say."""
        needs: dict[str, int] = {}
        for each in self.processes:
            mib = self.promised_mib.get(each.uuid, 0) if each.used_mib is None else each.used_mib
            needs[each.uuid] = needs.get(each.uuid, 0) + mib
        return needs


@dataclass(frozen=True, slots=True, kw_only=True)
class CardMemory:
    """A card: MiB that can be used, and by tenant the larger of what it was promised and what it uses."""

    usable_mib: int
    wanted_mib: Mapping[str, int] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether all its tenants can stay there together."""
        return sum(self.wanted_mib.values()) <= self.usable_mib


def refusal_of(candidate: Candidate) -> Refusal | None:
    """Why a tenant that has memory on a card cannot be moved to the host; None if it can."""
    pids = {each.pid for each in candidate.processes}
    if candidate.in_mig:
        return _no("MIG", f"{candidate.name} is on a MIG device, which the driver does not checkpoint")
    if candidate.under_mps:
        return _no("MPSClient", f"{candidate.name} is a client of MPS, which the driver does not checkpoint")
    if len(pids) > 1:
        message = f"{candidate.name} has {len(pids)} processes on its cards; only one alone is checkpointed"
        return _no("SeveralProcesses", f"{message}, for those that talk to each other would hang")
    needs = sum(candidate.needs_mib.values()) + HOST_MARGIN_MIB
    if candidate.host_free_mib is None:
        return _no("HostMemoryUnknown", f"what memory {candidate.name} may still use on the host cannot be read")
    if candidate.host_free_mib < needs:
        message = f"{candidate.name} needs {needs} MiB of host memory, only {candidate.host_free_mib} MiB left to it"
        return _no("HostMemoryShort", f"{message}: raise the memory limit of its pod")
    return None


def room_for(needs_mib: Mapping[str, int], *, free_mib: Mapping[str, int]) -> str:
    """Why there is no room on the cards for what a process had there; empty if there is. Unknown is no room."""
    for uuid, needed in needs_mib.items():
        free = free_mib.get(uuid)
        if free is None:
            return f"the free memory of device {uuid} cannot be read"
        if free < needed + CARD_MARGIN_MIB:
            return f"need {needed + CARD_MARGIN_MIB} MiB on device {uuid}, only {free} MiB available"
    return ""


def _no(reason: str, message: str) -> Refusal:
    return Refusal(reason=reason, message=message)
