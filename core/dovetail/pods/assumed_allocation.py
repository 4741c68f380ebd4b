"""What is assumed of a pod that cannot be read: its allocation, which is in its metadata, counts in full. Pure."""

import msgspec

from dovetail.api.builtin import Pod
from dovetail.api.meta import ObjectMeta
from dovetail.pods.allocation import AllocationError, allocation_in


def assumed_pod(meta: ObjectMeta, known: Pod | None) -> Pod | None:
    """The pod on the node of its allocation; None for a pod that was promised no device.

    Devices that are promised twice cost two users their work, and devices that are held too long cost some time: the
    pod counts as running until it is deleted, even if it has ended since.
    """
    try:
        allocation = allocation_in(meta.annotations)
    except AllocationError:
        return None
    if allocation is None:
        return None
    pod = known or Pod()
    return msgspec.structs.replace(
        pod, metadata=meta, spec=msgspec.structs.replace(pod.spec, node_name=allocation.node)
    )
