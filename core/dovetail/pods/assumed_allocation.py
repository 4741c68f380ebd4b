"""The assumption about an unreadable pod: the allocation in its metadata counts. Pure."""

import msgspec

from dovetail.api.builtin import Pod
from dovetail.api.meta import ObjectMeta
from dovetail.pods.allocation import AllocationError, allocation_in


def assumed_pod(meta: ObjectMeta, known: Pod | None) -> Pod | None:
    """The pod on the node of its allocation; None for a pod without promised devices.

    A device that is promised twice costs two users their work; a device that is held too long costs only time. So the
    pod counts as running until it is deleted, even if it has ended.
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
