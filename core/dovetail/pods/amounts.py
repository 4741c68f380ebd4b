"""How much of a resource a pod takes of its node. Pure."""

from collections.abc import Callable

from dovetail.kube.objects import PodSpec
from dovetail.kube.quantity import Quantity
from dovetail.pods.parts import requested


def peak(spec: PodSpec, resource: str, *, read: Callable[[Quantity], int]) -> int:
    """The most of a resource that the pod's containers ask at one time: init ones one by one, sidecars stay."""
    sidecars = most = 0
    for container in spec.init_containers:
        amount = read(requested(container, resource))
        if container.restart_policy == "Always":
            sidecars += amount
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + amount)
    return max(most, sidecars + sum(read(requested(container, resource)) for container in spec.containers))
