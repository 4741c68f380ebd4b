"""What a pod asks for, and which of its containers get which devices. Pure."""

from collections import OrderedDict
from hashlib import blake2b
from itertools import islice
from typing import Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import Policy
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.ranking import Ranking, Rankings
from dovetail.formats.quantities import QuantityError
from dovetail.gpu.device_plugins import Vendors
from dovetail.gpu.request import RequestError
from dovetail.pods.allocation import Allocation, ContainerAllocation
from dovetail.pods.containers import parts_of
from dovetail.pods.demand import ask_of_pod
from dovetail.pods.options.annotations import check_pod
from dovetail.pods.tenancy import Tenancy

# Pod versions whose request is cached, and contents of pods.
REMEMBERED: Final = 1024
_ENCODER: Final = msgspec.msgpack.Encoder()
_OURS: Final = f"{names.GROUP}/"


class Asks:
    """Cache of pods' requests: by version, because filter, prioritize and bind read the same one, and by content,
    because pods of one template request the same.

    `rankings` are those of the namespaces.
    """

    def __init__(self, *, rankings: Rankings, vendors: Vendors) -> None:
        self._rankings = rankings
        self._vendors = vendors
        self._known: OrderedDict[tuple[str, str], Ask | None] = OrderedDict()
        self._by_content: OrderedDict[bytes, Ask | None] = OrderedDict()

    def configure(self, *, rankings: Rankings) -> None:
        """Apply other rankings: all pods are read again."""
        self._rankings = rankings
        self._known.clear()
        self._by_content.clear()

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
        ask = self._of_content(pod)
        if all(version):
            self._known[version] = ask
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return ask

    def _of_content(self, pod: Pod) -> Ask | None:
        content = _content(pod)
        if content in self._by_content:
            return self._by_content[content]
        ask = _read(pod, ranking=self._rankings.of(pod.metadata.namespace), vendors=self._vendors)
        self._by_content[content] = ask
        if len(self._by_content) > REMEMBERED:
            self._by_content.popitem(last=False)
        return ask


def _content(pod: Pod) -> bytes:
    """A digest of all that a request is read from: namespace, spec and annotations of ours."""
    annotations = {key: text for key, text in pod.metadata.annotations.items() if key.startswith(_OURS)}
    return blake2b(_ENCODER.encode((pod.metadata.namespace, pod.spec, annotations)), digest_size=32).digest()


def _read(pod: Pod, *, ranking: Ranking, vendors: Vendors) -> Ask | None:
    try:
        if not pod.spec.node_name:
            check_pod(pod, ranking=ranking)
        return ask_of_pod(pod, ranking=ranking, vendors=vendors)
    except QuantityError as error:
        raise RequestError(str(error.text), field="resources", problem="no quantity", example="100m or 2Gi") from error


def allocation_of(claim: Claim, *, pod: Pod, tenancy: Tenancy) -> Allocation:
    """The claim as the pod's annotations record it, its devices assigned to containers in order."""
    devices = iter(claim.devices)
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
