"""What a pod needs so that its device memory can be moved to the host for another's turn. Pure.

The memory lies in the tenant's own process while it is away, so the container that holds the devices must have it. Only
a pod with one such container is moved: of several processes that talk to each other, one alone would hang the others.
"""

from dovetail.kube.objects import PodSpec
from dovetail.kube.quantity import mebibytes
from dovetail.margins import HOST_MARGIN_MIB
from dovetail.pods.parts import every_container, requested


def host_room_mib(spec: PodSpec, *, container: int) -> int:
    """Device memory in MiB for which a container's memory request has room; 0 where there is no such container.

    Its limit is no less than its request. What the program itself takes of it only the node can see.
    """
    containers = every_container(spec)
    if not 0 <= container < len(containers):
        return 0
    asked = mebibytes(requested(containers[container], "memory"), rounding="down")
    return max(0, asked - HOST_MARGIN_MIB)
