"""Which faults of a device still count: those told now, and those that stand in the last report. Pure.

A card that fell off its bus is not mended by a restart of its agent. A fault is over when the node has booted since,
when its driver was loaded anew, or when a person says so in `GPUNode.spec.mended`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from dovetail.api.gpunode import Device, GPUNode, GPUNodeStatus
from dovetail_agent.devices.model import LOST, DeviceInfo, DeviceSample, Fault, Inventory, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What was reported before, and what is over since; `boot_id` empty: not known, then nothing is."""

    status: GPUNodeStatus | None = None
    boot_id: str = ""
    mended: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, gpunode: GPUNode | None, *, boot_id: str) -> "Past":
        """As the API server has it."""
        if gpunode is None:
            return cls(boot_id=boot_id)
        return cls(status=gpunode.status, boot_id=boot_id, mended=gpunode.spec.mended)

    @property
    def devices(self) -> Mapping[str, Device]:
        """The devices by UUID as they were since the node booted."""
        if self.status is None or (self.boot_id and self.status.boot_id not in {"", self.boot_id}):
            return {}
        return {device.uuid: device for device in self.status.devices}


def with_lost(inventory: Inventory, *, past: Past) -> Inventory:
    """The inventory with the cards that answered since the node booted and do no more: their pods are still there.

    A card whose place on the bus has another device was split or joined by MIG.
    """
    places = {device.pci_bus_id for device in inventory.devices} | {""}
    indexes = {device.index for device in inventory.devices}
    lost = [
        _info(device)
        for device in past.devices.values()
        if past.boot_id and device.pci_bus_id not in places and device.index not in indexes
        if device.uuid not in past.mended
    ]
    if not lost:
        return inventory
    return replace(inventory, devices=tuple(sorted([*inventory.devices, *lost], key=lambda device: device.index)))


def standing(sample: Sample, *, answered: Inventory, inventory: Inventory, past: Past) -> Sample:
    """The sample of `inventory`, from that of the devices that answered, with the faults that still count.

    Each device with one has the reason why it takes no work.
    """
    states = dict(zip((info.uuid for info in answered.devices), sample.devices, strict=True))
    before = past.devices if past.status and _same_driver(past.status, inventory) else {}
    return replace(
        sample,
        devices=tuple(
            _with_faults(
                states.get(info.uuid, DeviceSample(unhealthy_reason=LOST)),
                before=before.get(info.uuid),
                over=_latest(info.loaded_at, _time(past.mended.get(info.uuid))),
            )
            for info in inventory.devices
        ),
    )


def _with_faults(sample: DeviceSample, *, before: Device | None, over: datetime | None) -> DeviceSample:
    told = {fault.reason: fault for fault in (*_reported(before), *sample.faults)}
    counting = tuple(fault for fault in told.values() if over is None or fault.at.replace(microsecond=0) > over)
    reason = sample.unhealthy_reason or (counting[0].reason if counting else "")
    return replace(sample, faults=counting, unhealthy_reason=reason)


def _reported(device: Device | None) -> Iterator[Fault]:
    for fault in device.faults if device else ():
        yield Fault(reason=fault.reason, at=datetime.fromisoformat(fault.at))


def _same_driver(status: GPUNodeStatus, inventory: Inventory) -> bool:
    """Another version can only be there after the old one was unloaded."""
    return not status.driver_version or status.driver_version == inventory.driver_version


def _latest(*times: datetime | None) -> datetime | None:
    known: Iterable[datetime] = (each for each in times if each is not None)
    return max(known, default=None)


def _time(text: str | None) -> datetime | None:
    """What a person wrote; None for what is no time."""
    try:
        told = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return told if told.tzinfo else told.replace(tzinfo=UTC)


def _info(device: Device) -> DeviceInfo:
    return DeviceInfo(
        index=device.index,
        uuid=device.uuid,
        vendor=device.vendor,
        model=device.model,
        memory_mib=device.memory_mib,
        reserved_mib=device.reserved_mib,
        compute_capability=device.compute_capability,
        mig_profile=device.mig_profile,
        pci_bus_id=device.pci_bus_id,
        numa_node=device.numa_node,
        links=device.links,
    )
