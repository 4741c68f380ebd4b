"""API objects into the ledger. Pure: the watching is done elsewhere."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from dovetail import names
from dovetail.allocation import Allocation, AllocationError, allocation_in
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import find_condition
from dovetail.asks import MOST, guard_in, host_request, workload_in
from dovetail.constraints import admits
from dovetail.engine.claims import Claim, DeviceClaim
from dovetail.engine.ledger import DeviceFacts, Ledger, NodeFacts
from dovetail.freshness import Freshness
from dovetail.kube.objects import Node, Pod
from dovetail.kube.quantity import mebibytes, milli
from dovetail.requests import RequestError

log = logging.getLogger("dovetail.cluster")

_ENDED: Final = frozenset({"Succeeded", "Failed"})
Word = TypeVar("Word")


class ClusterView:
    """The ledger as the API server's objects have it. Feed it every change; the order between kinds does not matter."""

    def __init__(self, *, ledger: Ledger, freshness: Freshness | None = None) -> None:
        """Without `freshness` measurements count however old they are, and each report's load counts in full."""
        self.ledger = ledger
        self._freshness = freshness
        self.nodes: dict[str, Node] = {}

    def node_changed(self, node: Node) -> None:
        """A Node was added or modified."""
        self.nodes[node.metadata.name] = node
        self.ledger.set_node(node_facts(node))

    def node_gone(self, name: str) -> None:
        """A Node was deleted."""
        self.nodes.pop(name, None)
        self.ledger.drop_node(name)

    def gpunode_changed(self, gpunode: GPUNode) -> None:
        """A GPUNode was added or modified."""
        name, fresh = gpunode.metadata.name, self._freshness
        note = "" if fresh is None else fresh.report(name, gpunode.status)
        now = None if fresh is None else fresh.clock()
        self.ledger.set_devices(name, device_facts(gpunode), now=now, note=note)

    def gpunode_gone(self, name: str) -> None:
        """A GPUNode was deleted: its node has no devices that anyone vouches for."""
        if self._freshness is not None:
            self._freshness.forget(name)
        self.ledger.set_devices(name, ())

    def pod_changed(self, pod: Pod) -> None:
        """A Pod was added or modified. A bound one holds what its allocation says until it has ended or is gone."""
        if pod.status.phase in _ENDED:
            self.ledger.release(pod.metadata.uid)
        elif pod.spec.node_name:
            self.ledger.commit(claim_of_pod(pod))

    def pod_gone(self, pod: Pod) -> None:
        """A Pod was deleted: its claim or its hold goes."""
        self.ledger.release(pod.metadata.uid)

    def time_passes(self) -> list[str]:
        """Let measurements grow old and loads settle; to be called every few seconds. What does not count any more."""
        if self._freshness is None:
            return []
        self.ledger.settle_loads(self._freshness.clock())
        notes = self._freshness.grown_old()
        for name, note in notes.items():
            self.ledger.distrust(name, note=note)
        return list(notes.values())

    def eligible_nodes(self, pod_spec: Mapping[str, Any]) -> list[str]:
        """Nodes that exist and that a pod with this spec may go to by selector, required affinity and taints."""
        return [name for name in self.ledger.nodes() if name in self.nodes and admits(self.nodes[name], pod_spec)]


def node_facts(node: Node) -> NodeFacts:
    """What the ledger needs of a Node."""
    ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
    allocatable = node.status.allocatable
    return NodeFacts(
        name=node.metadata.name,
        managed=node.metadata.labels.get(names.LABEL_MANAGED) == "true",
        obstacle="" if ready is not None and ready.status == "True" else "node is not ready",
        cordoned=node.spec.unschedulable,
        cpu_milli=min(MOST, milli(allocatable.get("cpu", "0"), rounding="down")),
        memory_mib=min(MOST, mebibytes(allocatable.get("memory", "0"), rounding="down")),
    )


def device_facts(gpunode: GPUNode) -> list[DeviceFacts]:
    """What the ledger needs of a GPUNode. Devices that the agent cannot read are unhealthy."""
    status, limits = gpunode.status, gpunode.spec.tenant_limits
    ready = find_condition(status.conditions, "Ready")
    readable = ready is None or ready.status == "True"
    return [
        DeviceFacts(
            index=device.index,
            uuid=device.uuid,
            vendor=device.vendor,
            model=device.model,
            memory_mib=device.memory_mib,
            reserved_mib=device.reserved_mib,
            foreign_mib=device.foreign_mib,
            utilization=device.utilization,
            healthy=readable and device.health == "Healthy",
            cordoned=device.uuid in gpunode.spec.cordoned,
            numa_node=device.numa_node,
            nvlink=tuple(device.links.nvlink),
            switch=tuple(device.links.switch),
            training_limit=limits[device.uuid].training if device.uuid in limits else None,
            inference_limit=limits[device.uuid].inference if device.uuid in limits else None,
        )
        for device in status.devices
    ]


def claim_of_pod(pod: Pod) -> Claim:
    """What a bound pod holds of its node. A broken allocation holds no device; the audit reports it."""
    allocation: Allocation | None = None
    try:
        allocation = allocation_in(pod.metadata.annotations)
    except AllocationError as error:
        log.warning("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
    cpu_milli, memory_mib = host_request(pod.spec)
    return Claim(
        key=pod.metadata.uid,
        node=pod.spec.node_name,
        mode=allocation.mode if allocation else "Exclusive",
        devices=tuple(
            DeviceClaim(
                index=device.index, uuid=device.uuid, share_milli=device.share_milli, memory_mib=device.memory_mib
            )
            for device in (allocation.devices if allocation else ())
        ),
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        guard=_said(guard_in, pod),
        workload=_said(workload_in, pod),
    )


def _said(read: Callable[[Mapping[str, str]], Word | None], pod: Pod) -> Word | None:
    """What a bound pod's annotations say; what cannot be read was never promised and binds nobody."""
    try:
        return read(pod.metadata.annotations)
    except RequestError:
        return None
