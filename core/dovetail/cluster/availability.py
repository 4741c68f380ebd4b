"""Whether a device can take new work, and if not why: the one judgement for ledger, queue, extender and every view.

Pure. What a Node, its GPUNode and the drivers' ResourceSlices say becomes causes of a closed set; what pods hold is not
part of it. A report that is too old is no cause: the ledger places by promises then, and `Freshness` says so.
"""

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.api.gpunode import Device, GPUNode
from dovetail.api.meta import find_condition
from dovetail.cluster.node_kind import Serving
from dovetail.engine.model.availability import Unavailable, in_order
from dovetail.pods.node_affinity import REMOVED_SOON


def of_node(node: Node | None, *, serves: Serving) -> tuple[Unavailable, ...]:
    """Why the node's devices take no new work; `serves` is what `serving` says of the node. None: it is deleted."""
    if node is None:
        return (Unavailable(cause="NodeGone"),)
    found = []
    if not any(each.type == "Ready" and each.status == "True" for each in node.status.conditions):
        found.append(Unavailable(cause="NodeNotReady"))
    if serves.conflict:
        found.append(Unavailable(cause="ServedTwice", detail=serves.conflict))
    if not (serves.managed or serves.resource or serves.instances):
        found.append(Unavailable(cause="NotManaged", detail=_served_by(serves)))
    if node.spec.unschedulable:
        found.append(Unavailable(cause="NodeCordoned"))
    taints = sorted({taint.key for taint in node.spec.taints} & REMOVED_SOON)
    found += [Unavailable(cause="NodeDrained", detail=f"taint {taint}") for taint in taints]
    return in_order(found)


def of_device(device: Device, *, gpunode: GPUNode) -> tuple[Unavailable, ...]:
    """Why a device takes no new work, whatever its Node says."""
    spec, found = gpunode.spec, []
    if problem := unreadable(gpunode):
        found.append(Unavailable(cause="DriverUnreadable", detail=problem))
    if device.health != "Healthy":
        found.append(Unavailable(cause="Unhealthy", detail=device.health_reason))
    if device.parent in spec.reshape:
        found.append(Unavailable(cause="Reshaping"))
    if device.uuid in spec.cordoned:
        found.append(Unavailable(cause="Cordoned"))
    if device.taint:
        found.append(Unavailable(cause="Strangers"))
    return in_order(found)


def unreadable(gpunode: GPUNode) -> str:
    """Why the agent cannot read the node's devices, as its driver says; empty when it can."""
    ready = find_condition(gpunode.status.conditions, type="Ready")
    if ready is None or ready.status == "True":
        return ""
    # The agent's sentences begin with the node, which every reader of this names by itself.
    said = ready.message.removeprefix(f"node {gpunode.metadata.name}: ")
    return said or ready.reason or "the devices cannot be read"


def lacks_library(gpunode: GPUNode) -> bool:
    """Whether no vendor's library is on the node and none ever was: it has no GPU which a job could use.

    Of a node whose devices are known, the library is gone, and that is a fault.
    """
    ready = find_condition(gpunode.status.conditions, type="Ready")
    return ready is not None and ready.reason == names.NO_LIBRARY and not gpunode.status.devices


def is_leaving(node: Node) -> bool:
    """Whether the node takes no new pods because it is to be emptied."""
    return node.spec.unschedulable or any(taint.key in REMOVED_SOON for taint in node.spec.taints)


def _served_by(serves: Serving) -> str:
    drivers = [driver for driver in serves.drivers if driver]
    return f"the DRA driver {' and '.join(drivers)} hands out its GPUs" if drivers else ""
