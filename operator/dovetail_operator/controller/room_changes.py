"""Which events of nodes and their reports change nothing that a scheduling cycle decides. Pure.

With thousands of nodes, some agent or kubelet writes a sign of life many times a second. A
cycle over thousands of waiting jobs would find what the one before it found.

A module of its own: pure, where `event_handlers` changes the store and wakes the queue.
"""

from typing import Final

import msgspec

from dovetail.api.builtin import Node
from dovetail.api.gpunode import Device, GPUNode, GPUNodeStatus
from dovetail.api.meta import ObjectMeta

_NEVER: Final = GPUNodeStatus()


def is_sign_of_life(gpunode: GPUNode, *, before: GPUNode | None) -> bool:
    """Whether a report differs from the one before in load and times alone: these rank nodes, and make no room."""
    if before is None:
        return False
    return (
        _is_same(gpunode.metadata, before=before.metadata)
        and gpunode.spec == before.spec
        and _without_load(gpunode.status) == _without_load(before.status)
    )


def is_same_node(node: Node, *, before: Node | None) -> bool:
    """Whether nothing that is read of a Node has changed but its version."""
    if before is None:
        return False
    is_same = _is_same(node.metadata, before=before.metadata)
    return is_same and (node.spec, node.status) == (before.spec, before.status)


def _is_same(meta: ObjectMeta, *, before: ObjectMeta) -> bool:
    return meta == msgspec.structs.replace(before, resource_version=meta.resource_version, generation=meta.generation)


def _without_load(status: GPUNodeStatus) -> GPUNodeStatus:
    return msgspec.structs.replace(
        status,
        observed_at=None,
        measured_at=None,
        cpu_utilization=_NEVER.cpu_utilization,
        memory_utilization=_NEVER.memory_utilization,
        devices=[_idle(device) for device in status.devices],
        overuses=[msgspec.structs.replace(each, used_mib=0) for each in status.overuses],
    )


def _idle(device: Device) -> Device:
    # Foreign memory stays: what strangers use, no job can have.
    return msgspec.structs.replace(
        device, used_mib=0, tenants=[], totals=[], utilization=0.0, temperature_celsius=None, power_watts=None
    )
