"""What a pod asks for, and which of its containers get which devices. Pure."""

from collections import OrderedDict
from itertools import islice
from typing import Final

import msgspec

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import Policy
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.ranking import Ranking, Rankings
from dovetail.formats.quantities import QuantityError
from dovetail.gpu.device_plugins import Vendors
from dovetail.gpu.request import RequestError
from dovetail.pods.allocation import AllocatedDevice, Allocation, ContainerAllocation
from dovetail.pods.containers import parts_of
from dovetail.pods.demand import ask_of_pod
from dovetail.pods.score_weights import check_pod
from dovetail.pods.tenancy import Tenancy

# Pod versions whose request is cached.
REMEMBERED: Final = 4096


class Asks:
    """Cache of pods' requests: filter, prioritize and bind all read the same pod version.

    `rankings` are those of the namespaces.
    """

    def __init__(self, *, rankings: Rankings, vendors: Vendors) -> None:
        self._rankings = rankings
        self._vendors = vendors
        self._known: OrderedDict[tuple[str, str], Ask | None] = OrderedDict()

    def configure(self, *, rankings: Rankings) -> None:
        """Apply other rankings: all pods are read again."""
        self._rankings = rankings
        self._known.clear()

    def policy_of(self, namespace: str) -> Policy:
        """The policy for the pods of a namespace that name none."""
        return self._rankings.of(namespace).policy

    def request(self, pod: Pod) -> Ask | None:
        """The pod's request, or None when it asks for no GPU of Dovetail's or of a vendor's.

        Raises `RequestError`.
        """
        version = pod.metadata.uid, pod.metadata.resource_version
        if all(version) and version in self._known:
            return self._known[version]
        ask = _read(pod, ranking=self._rankings.of(pod.metadata.namespace), vendors=self._vendors)
        if all(version):
            self._known[version] = ask
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return ask


def _read(pod: Pod, *, ranking: Ranking, vendors: Vendors) -> Ask | None:
    try:
        if not pod.spec.node_name:
            check_pod(pod, ranking=ranking)
        return ask_of_pod(pod, ranking=ranking, vendors=vendors)
    except QuantityError as error:
        raise RequestError(str(error.text), field="resources", problem="no quantity", example="100m or 2Gi") from error


def allocation_of(claim: Claim, *, pod: Pod, tenancy: Tenancy) -> Allocation:
    """The claim as the pod's annotations record it, its devices assigned to containers in order."""
    devices = (
        AllocatedDevice(
            uuid=device.uuid,
            index=device.index,
            share_milli=device.share_milli,
            memory_mib=device.memory_mib,
            mig=device.mig or msgspec.UNSET,
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
        movable=claim.movable,
        priority=tenancy.priority,
        reservation=tenancy.reservation,
        job=tenancy.job,
    )
