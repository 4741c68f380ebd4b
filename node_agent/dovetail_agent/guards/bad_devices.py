"""Posts events about newly unhealthy devices, on the node and on each pod with the device."""

from collections.abc import Iterator

from dovetail.api.gpunode import Device, GPUNodeStatus
from dovetail.kube.event_recorder import EventRecorder
from dovetail_agent.feature.events import warn_node, warn_pod
from dovetail_agent.feature.protocol import Feature, Seen


class BadDevicesFeature(Feature):
    """Posts an event when a device's health reason changes.

    The report itself keeps new work off such a device.
    """

    name = "bad-cards"

    def __init__(self, events: EventRecorder) -> None:
        self._events = events

    async def act(self, seen: Seen, *, status: GPUNodeStatus) -> None:
        """Post events about each newly unhealthy device."""
        node = seen.node.metadata.name
        for device in _news(status, before=seen.previous):
            why = f": {device.health_reason}" if device.health_reason else ""
            called = f"GPU {device.index} ({device.uuid}) of {node}"
            text = f"{called} is unhealthy{why}; it takes no new work"
            warn_node(self._events, node=seen.node, reason="BadGPU", message=text)
            for tenant in seen.tenants:
                if any(each.uuid == device.uuid for each in tenant.devices):
                    said = f"{text}, and this pod has it"
                    warn_pod(self._events, tenant=tenant, node=node, reason="BadGPU", message=said)


def _news(status: GPUNodeStatus, *, before: GPUNodeStatus | None) -> Iterator[Device]:
    known = {device.uuid: device.health_reason for device in _ill(before)}
    yield from (device for device in _ill(status) if known.get(device.uuid) != device.health_reason)


def _ill(status: GPUNodeStatus | None) -> list[Device]:
    return [device for device in status.devices if device.health == "Unhealthy"] if status else []
