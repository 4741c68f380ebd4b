"""What a pod that is being scheduled asks, and which of its containers the devices go to. Pure."""

from dovetail import asks, names
from dovetail.allocation import AllocatedDevice, Allocation, ContainerAllocation
from dovetail.api.gpujob import Policy
from dovetail.engine.claims import Ask, Claim
from dovetail.kube.objects import Container, Pod
from dovetail.kube.quantity import QuantityError
from dovetail.requests import RequestError


def ask_of(pod: Pod, *, default_policy: Policy) -> Ask | None:
    """What the pod asks, or None when it asks nothing of ours. Raises `RequestError`."""
    try:
        ask = asks.ask_of_pod(pod, default_policy=default_policy)
    except QuantityError as error:
        raise RequestError(str(error.text), field="resources", problem="no quantity", example="100m or 2Gi") from error
    if any(_asks(container) for container in pod.spec.init_containers):
        raise _misplaced("an init container asks for GPUs", pod=pod)
    if sum(map(_asks, pod.spec.containers)) > 1:
        raise _misplaced("several containers ask for GPUs", pod=pod)
    return ask


def allocation_of(claim: Claim, *, pod: Pod) -> Allocation:
    """The claim as the pod's annotations tell it: all devices go to the one container that asks for them."""
    devices = [
        AllocatedDevice(
            uuid=device.uuid, index=device.index, share_milli=device.share_milli, memory_mib=device.memory_mib
        )
        for device in claim.devices
    ]
    index = next((at for at, container in enumerate(pod.spec.containers) if _asks(container)), 0)
    return Allocation(node=claim.node, mode=claim.mode, containers=[ContainerAllocation(index=index, devices=devices)])


def _asks(container: Container) -> bool:
    resources = container.resources
    return any(
        str(amounts.get(name, "0")) != "0"
        for amounts in (resources.requests, resources.limits)
        for name in names.MANAGED_RESOURCES
    )


def _misplaced(problem: str, *, pod: Pod) -> RequestError:
    return RequestError(
        pod.metadata.annotations.get(names.REQUEST, ""),
        field=names.REQUEST,
        problem=problem,
        example="the resources on one container only",
    )
