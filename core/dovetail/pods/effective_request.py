"""The amount of a resource that a pod takes of its node. Pure."""

from collections.abc import Callable

from dovetail.api.builtin import Container, PodSpec
from dovetail.formats.quantities import Quantity, QuantityError, mebibytes, milli
from dovetail.gpu.memory import HOST_MARGIN_MIB
from dovetail.pods.containers import every_container, requested


def host_room_mib(spec: PodSpec, *, container: int) -> int:
    """The device memory in MiB that fits a container's memory request.

    0 if there is no such container.

    Its limit is at least its request. Only the node can see what the program itself uses of it.
    """
    containers = every_container(spec)
    if not 0 <= container < len(containers):
        return 0
    asked = mebibytes(requested(containers[container], resource="memory"), rounding="down")
    return max(0, asked - HOST_MARGIN_MIB)


def peak(spec: PodSpec, *, resource: str, read: Callable[[Quantity], int]) -> int:
    """The most of a resource that the pod's containers request at one time.

    Init containers run one by one, sidecars stay. Raises `QuantityError` for an invalid or negative amount, which would
    lower the sum of the others.
    """
    sidecars = most = 0
    for container in spec.init_containers:
        amount = _asked(container, resource=resource, read=read)
        if container.restart_policy == "Always":
            sidecars += amount
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + amount)
    return max(most, sidecars + sum(_asked(container, resource=resource, read=read) for container in spec.containers))


def _asked(container: Container, *, resource: str, read: Callable[[Quantity], int]) -> int:
    amount = requested(container, resource=resource)
    value = read(amount)
    # In thousandths: as whole MiB, a few bytes below zero would round to zero.
    if str(amount).startswith("-") and milli(amount) < 0:
        raise QuantityError(amount)
    return value
