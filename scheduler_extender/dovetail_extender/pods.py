"""What a pod that is being scheduled asks, and which of its containers the devices go to. Pure."""

from itertools import islice

from dovetail import asks
from dovetail.allocation import AllocatedDevice, Allocation, ContainerAllocation
from dovetail.api.gpujob import Policy
from dovetail.engine.claims import Ask, Claim
from dovetail.kube.objects import Pod
from dovetail.kube.quantity import QuantityError
from dovetail.pods.parts import parts_of
from dovetail.requests import RequestError
from dovetail.vendor import DEFAULT_VENDORS, Vendors


def ask_of(pod: Pod, *, default_policy: Policy, vendors: Vendors = DEFAULT_VENDORS) -> Ask | None:
    """What the pod asks, or None when it asks nothing of ours and of no vendor's. Raises `RequestError`."""
    try:
        return asks.ask_of_pod(pod, default_policy=default_policy, vendors=vendors)
    except QuantityError as error:
        raise RequestError(str(error.text), field="resources", problem="no quantity", example="100m or 2Gi") from error


def allocation_of(claim: Claim, *, pod: Pod) -> Allocation:
    """The claim as the pod's annotations tell it: its devices, one part of the pod after the other."""
    devices = (
        AllocatedDevice(
            uuid=device.uuid, index=device.index, share_milli=device.share_milli, memory_mib=device.memory_mib
        )
        for device in claim.devices
    )
    containers = [
        ContainerAllocation(index=part.index, devices=list(islice(devices, part.request.count)))
        for part in parts_of(pod).parts
    ]
    containers.sort(key=lambda container: container.index)
    return Allocation(
        node=claim.node,
        mode=claim.mode,
        containers=containers,
        guard_fraction=claim.guard_fraction,
        workload=claim.workload,
    )
