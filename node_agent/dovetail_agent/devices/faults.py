"""Decides which faults of a device still count: current ones and those in the last report.

Pure. A restart of the agent does not repair a device that fell off its bus. A fault ends when the node boots, when its
driver is reloaded, or when a user acknowledges the repair in `GPUNode.spec.mended`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from dovetail.api.gpunode import LOST, Device, GPUNode, GPUNodeStatus
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Fault, Inventory, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The last report, and which of its faults have ended.

    An empty `boot_id` is unknown and ends none.
    """

    status: GPUNodeStatus | None = None
    boot_id: str = ""
    mended: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_gpunode(cls, gpunode: GPUNode | None, *, boot_id: str) -> "Past":
        """Build it from the GPUNode in the API server."""
        if gpunode is None:
            return cls(boot_id=boot_id)
        return cls(status=gpunode.status, boot_id=boot_id, mended=gpunode.spec.mended)

    @property
    def devices(self) -> Mapping[str, Device]:
        """The reported devices by UUID; empty if the node has booted since."""
        if self.status is None or (self.boot_id and self.status.boot_id not in {"", self.boot_id}):
            return {}
        return {device.uuid: device for device in self.status.devices}

    def is_mended_since(self, uuid: str) -> bool:
        """Whether a user has acknowledged a repair since the last report.

        The last report may show the device as working: an earlier acknowledgement is of an earlier fault.
        """
        at, reported = _time(self.mended.get(uuid)), _time(self.status.observed_at if self.status else None)
        return at is not None and (reported is None or at >= reported)


def with_lost(inventory: Inventory, *, past: Past) -> Inventory:
    """Add the devices that no longer answer since the node booted: their pods are still there.

    A missing device is not added if its PCI address has another device, or its GPU is in MIG mode: then MIG has split
    or joined it. Nor is one whose loss a user has acknowledged since the last report.
    """
    split = {card.uuid for card in inventory.split}
    places = {device.pci_bus_id for device in inventory.devices} | {""}
    indexes = {device.index for device in inventory.devices}
    lost = [
        _info(device)
        for device in past.devices.values()
        if past.boot_id and device.pci_bus_id not in places and device.index not in indexes
        if not past.is_mended_since(device.uuid) and device.parent not in split
    ]
    if not lost:
        return inventory
    return replace(inventory, devices=tuple(sorted([*inventory.devices, *lost], key=lambda device: device.index)))


def with_open_faults(sample: Sample, *, answered: Inventory, inventory: Inventory, past: Past) -> Sample:
    """Return the sample of `inventory` with the faults that still count.

    `sample` covers the devices in `answered`, in that order. Each device with a fault gets the reason why it takes no
    work.
    """
    states = dict(zip((info.uuid for info in answered.devices), sample.devices, strict=True))
    before = past.devices if past.status and _same_driver(past.status, inventory=inventory) else {}
    return replace(
        sample,
        devices=tuple(
            _with_faults(
                states.get(info.uuid, DeviceSample(unhealthy_reason=LOST)),
                before=before.get(info.uuid),
                loaded_at=info.loaded_at,
                mended_at=_time(past.mended.get(info.uuid)),
            )
            for info in inventory.devices
        ),
    )


def _with_faults(
    sample: DeviceSample, *, before: Device | None, loaded_at: datetime | None, mended_at: datetime | None
) -> DeviceSample:
    by_reason = {fault.reason: fault for fault in (*_reported(before), *sample.faults)}
    counting = tuple(
        fault
        for fault in by_reason.values()
        if loaded_at is None or fault.at > loaded_at
        # A user's time has whole seconds: the fault of the same second is the one that was repaired.
        if mended_at is None or fault.at.replace(microsecond=0) > mended_at
    )
    reason = sample.unhealthy_reason or (counting[0].reason if counting else "")
    return replace(sample, faults=counting, unhealthy_reason=reason)


def _reported(device: Device | None) -> Iterator[Fault]:
    for fault in device.faults if device else ():
        yield Fault(reason=fault.reason, at=datetime.fromisoformat(fault.at))


def _same_driver(status: GPUNodeStatus, *, inventory: Inventory) -> bool:
    """Whether the driver version is unchanged.

    A new version proves that the old driver was unloaded.
    """
    return not status.driver_version or status.driver_version == inventory.driver_version


def _time(text: str | None) -> datetime | None:
    """Parse a user's timestamp; None if it is not one."""
    try:
        parsed = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


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
        parent=device.parent,
        pci_bus_id=device.pci_bus_id,
        numa_node=device.numa_node,
        links=device.links,
    )
