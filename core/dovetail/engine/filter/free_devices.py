"""The devices of one node that an ask can take now, with what the choice among them looks at. Values only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dovetail.api.devices import AllocatedDevice
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.inventory import DeviceFacts
from dovetail.gpu.request import WHOLE_MILLI


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeDevices:
    """The free devices of a node for one container's ask. All sequences but `slots` have a value for each slot.

    node          the node's name
    ask           what is asked of it, with a GPU request
    facts         the devices as last reported
    slots         the slots of the free devices, in rising order
    share_left    milli that are not promised
    allowed_mib   memory that may be promised to all tenants of a free device together
    free_mib      memory of a free device that is neither promised nor used by foreign processes
    total_mib     memory without the driver's reserve
    tenants       how many tenants a device has
    utilization   how busy a device is, 0 to 1
    """

    node: str
    ask: Ask
    facts: Sequence[DeviceFacts]
    slots: Sequence[int]
    share_left: Sequence[int]
    allowed_mib: Sequence[int]
    free_mib: Sequence[int]
    total_mib: Sequence[int]
    tenants: Sequence[int]
    utilization: Sequence[float]

    def claims(self, slots: Iterable[int]) -> tuple[AllocatedDevice, ...]:
        """The ask's claim on each of these slots.

        A whole device may have less free memory than the ask would get, because foreign processes may use a little.
        """
        gpu = self.ask.gpu
        assert gpu is not None, "only for an ask with a GPU request"
        return tuple(
            AllocatedDevice(
                index=self.facts[slot].index,
                uuid=self.facts[slot].uuid,
                share_milli=gpu.share_milli,
                memory_mib=min(self._needed_mib(slot), self.free_mib[slot]),
                mig=gpu.mig,
            )
            for slot in slots
        )

    def _needed_mib(self, slot: int) -> int:
        return needed_mib(self.ask, allowed_mib=self.allowed_mib[slot], total_mib=self.total_mib[slot])


def needed_mib(ask: Ask, *, allowed_mib: int, total_mib: int) -> int:
    """Memory that the ask takes of a device with `total_mib`, of which all tenants may be promised `allowed_mib`."""
    gpu = ask.gpu
    assert gpu is not None, "only for an ask with a GPU request"
    if ask.mode != "Exclusive" and (asked := gpu.memory_on(total_mib)) is not None:
        return asked
    return allowed_mib * gpu.share_milli // WHOLE_MILLI
