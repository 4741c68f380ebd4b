"""Builders for the tests of MPS."""

from dataclasses import dataclass, field, replace

from msgspec.structs import replace as with_fields

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.mps.devices import DevicesUnreadable, MpsDevice
from tests.agent.builders import allocated, make_tenant


def fractional(index: int, *, share_milli: int = 500, memory_mib: int = 8192, uid: str = "pod-uid") -> NodeTenant:
    device = allocated(index, share_milli=share_milli, memory_mib=memory_mib)
    return with_fields(make_tenant(device, uid=uid), mode="Fractional")


@dataclass
class FakeCards:
    """Cards without a driver: `modes` is what was set, in order."""

    cards: dict[str, MpsDevice] = field(default_factory=dict)
    modes: list[tuple[str, bool]] = field(default_factory=list)
    problem: str = ""

    def list_devices(self) -> dict[str, MpsDevice]:
        if self.problem:
            raise DevicesUnreadable(self.problem)
        return dict(self.cards)

    def keep(self, uuid: str, *, exclusive: bool) -> None:
        self.modes.append((uuid, exclusive))
        self.cards[uuid] = replace(self.cards[uuid], exclusive=exclusive)
