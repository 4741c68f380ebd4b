"""API objects into the ledger. Pure: other modules watch the objects."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from dovetail import names
from dovetail.api.builtin import Node, Pod, ResourceSlice, is_terminated
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import find_condition
from dovetail.cluster import availability
from dovetail.cluster.dra_drivers import NodeDrivers, Reach
from dovetail.cluster.node_kind import labelled_devices, serving
from dovetail.cluster.staleness import Freshness
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.availability import BLOCKING, CORDONED_NODE, Unavailable, first_of
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.inventory import ANY_NUMBER, DeviceFacts, NodeFacts
from dovetail.engine.model.settings import Limits
from dovetail.formats.quantities import mebibytes, milli, whole
from dovetail.gpu import mig
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors, card_of, is_replica
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.pods.allocation import Allocation, AllocationError, allocation_in
from dovetail.pods.demand import MOST, host_request
from dovetail.pods.device_plugin import mig_devices, vendor_devices
from dovetail.pods.node_affinity import admits
from dovetail.pods.resource_claims import BY_CLAIM, claimed_devices

log = logging.getLogger("dovetail.cluster")


class ClusterView:
    """The ledger according to the API server's objects.

    Feed it every change, in any order between kinds.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        freshness: Freshness | None = None,
        vendors: Vendors = DEFAULT_VENDORS,
        drivers: NodeDrivers | None = None,
    ) -> None:
        """Create a view.

        Without `freshness`, measurements count whatever their age, and each report's load counts in full. Without
        `drivers`, the ResourceSlices count only while they exist.
        """
        self.ledger = ledger
        self.vendors = vendors
        self._freshness = freshness
        self._drivers = drivers or NodeDrivers(clock=time.monotonic, absent_seconds=0.0)
        # Of each node the UIDs of the pods there that hold resource claims.
        self._claiming: dict[str, set[str]] = {}
        self.nodes: dict[str, Node] = {}
        # The nodes that only pretend to run pods.
        self._simulated: set[str] = set()
        # Nodes whose devices an agent reports, and the UUIDs that kubelet gave to pods there, by pod UID.
        self._reported: set[str] = set()
        # Nodes whose agent has said which devices there are, if any.
        self._heard: set[str] = set()
        # Of these, the nodes whose report has MIG instances alone.
        self._split: set[str] = set()
        self._given: dict[str, dict[str, tuple[str, ...]]] = {}

    def node_changed(self, node: Node) -> None:
        """Update a Node that was added or modified."""
        name = node.metadata.name
        self.nodes[name] = node
        (self._simulated.add if names.SIMULATED_NODE in node.metadata.annotations else self._simulated.discard)(name)
        self.ledger.set_node(self.facts_of(name))
        self._read_labels(name)

    def node_gone(self, name: str) -> None:
        """Remove a Node that was deleted."""
        self.nodes.pop(name, None)
        self._simulated.discard(name)
        self.ledger.drop_node(name)

    def is_simulated(self, on: Collection[str]) -> bool:
        """Whether nothing of a job on these nodes really runs; without nodes, whether that is so wherever it goes."""
        if on:
            return not self._simulated.isdisjoint(on)
        return bool(self.nodes) and len(self._simulated) == len(self.nodes)

    def slice_changed(self, found: ResourceSlice) -> None:
        """Update a ResourceSlice of a GPU vendor's driver: its nodes take no new work of ours."""
        self._judge_again(self._drivers.slice_changed(found))

    def slice_gone(self, found: ResourceSlice) -> None:
        """Remove a deleted ResourceSlice: `drivers_pass` opens its nodes after its absence."""
        self._drivers.slice_gone(found)

    def drivers_pass(self) -> bool:
        """Open the nodes whose ResourceSlices have been absent for long enough.

        Call it every few seconds.

        Returns whether there may be such nodes.
        """
        started, passed = self._drivers.start_is_over(), self._drivers.time_passes()
        self._judge_again(passed)
        for name in list(self._claiming) if started else ():
            self._judge_node(name)
        return started or bool(passed)

    def facts_of(self, name: str) -> NodeFacts:
        """What the ledger needs of a Node that was seen."""
        facts = node_facts(self.nodes[name], vendors=self.vendors, drivers=self._drivers_of(name))
        return replace(facts, unreported=True) if facts.managed and name not in self._heard else facts

    def closed(self, name: str) -> Unavailable | None:
        """Why a node takes no new pods, whatever its devices; None when it does."""
        if name not in self.nodes:
            return Unavailable(cause="NodeGone")
        return first_of(self.facts_of(name).unavailable, causes=BLOCKING | CORDONED_NODE)

    def conflict_of(self, name: str) -> str:
        """Why a ready Node takes no pods; empty when one side alone serves it."""
        return serving(self.nodes[name], vendors=self.vendors, drivers=self._drivers_of(name)).conflict

    def _drivers_of(self, name: str) -> tuple[str, ...]:
        return self._drivers.serving(self.nodes[name], has_claims=bool(self._claiming.get(name)))

    def gpunode_changed(self, gpunode: GPUNode) -> list[str]:
        """Update a GPUNode. Returns the UIDs of pods for which it reports other devices than before."""
        name, fresh = gpunode.metadata.name, self._freshness
        note = "" if fresh is None else fresh.report(name, status=gpunode.status)
        now = None if fresh is None else fresh.clock()
        devices = device_facts(gpunode)
        self.ledger.set_devices(name, devices=devices, cpu_load=gpunode.status.cpu_utilization, now=now, note=note)
        (self._reported.add if devices else self._reported.discard)(name)
        (self._split.add if devices and all(device.mig for device in devices) else self._split.discard)(name)
        if not devices or name in self._split:
            self._read_labels(name)
        self._given[name] = {each.uid: tuple(each.devices) for each in gpunode.status.assignments}
        if name not in self._heard and has_reported(gpunode):
            self._heard.add(name)
            self._judge_node(name)
        return self._name_devices(name)

    def gpunode_gone(self, name: str) -> None:
        """Remove a GPUNode: its node keeps only the devices of a vendor's labels."""
        if self._freshness is not None:
            self._freshness.forget(name)
        self._reported.discard(name)
        self._heard.discard(name)
        self._split.discard(name)
        self._given.pop(name, None)
        self.ledger.set_devices(name, devices=())
        self._judge_node(name)
        self._read_labels(name)
        self._name_devices(name)

    def pod_changed(self, pod: Pod) -> None:
        """Update a Pod. A bound one holds what its allocation says until it ends or is deleted."""
        self._note_claims(pod)
        if is_terminated(pod):
            self.ledger.release(pod.metadata.uid)
        elif pod.spec.node_name:
            self.ledger.commit(self._named(claim_of_pod(pod, vendors=self.vendors)))

    def has_claim(self, pod: Pod) -> bool:
        """Whether the ledger has a claim of a bound pod on its node, which is no hold."""
        claim = self.ledger.claim(pod.metadata.uid)
        return claim is not None and claim.node == pod.spec.node_name and not self.ledger.is_hold(pod.metadata.uid)

    def pods_listed(self, pods: Collection[Pod]) -> None:
        """Add the pods of a list, as `pod_changed` does, and recompute each node once."""
        for pod in pods:
            self._note_claims(pod)
        bound = (pod for pod in pods if pod.spec.node_name and not is_terminated(pod))
        self.ledger.commit_all(self._named(claim_of_pod(pod, vendors=self.vendors)) for pod in bound)

    def pod_gone(self, pod: Pod) -> None:
        """Remove a Pod with its claim and its hold."""
        self._drop_claims(pod)
        self.ledger.release(pod.metadata.uid)

    def time_passes(self) -> list[str]:
        """Let measurements age and loads settle. Call it every few seconds.

        Returns what no longer counts.
        """
        if self._freshness is None:
            return []
        self.ledger.settle_utilization(self._freshness.clock())
        notes = self._freshness.grown_old()
        for name, note in notes.items():
            self.ledger.distrust(name, note=note)
        return list(notes.values())

    def _note_claims(self, pod: Pod) -> None:
        """Record which pods hold resource claims; the first such pod of a node may close the node."""
        if is_terminated(pod):
            self._drop_claims(pod)
            return
        claims = pod.spec.resource_claims or pod.status.extended_resource_claim_status
        if not pod.spec.node_name or not claims:
            return
        there = self._claiming.setdefault(pod.spec.node_name, set())
        there.add(pod.metadata.uid)
        if len(there) == 1:
            self._judge_node(pod.spec.node_name)

    def _drop_claims(self, pod: Pod) -> None:
        there = self._claiming.get(pod.spec.node_name)
        if there is None:
            return
        there.discard(pod.metadata.uid)
        if not there:
            del self._claiming[pod.spec.node_name]
            self._judge_node(pod.spec.node_name)

    def _judge_again(self, reaches: Collection[Reach]) -> None:
        """Check the nodes again where the drivers' devices can be used."""
        wide = any(not reach.node for reach in reaches)
        for name in list(self.nodes) if wide else {reach.node for reach in reaches}:
            self._judge_node(name)

    def _judge_node(self, name: str) -> None:
        if name not in self.nodes:
            return
        facts, before = self.facts_of(name), self.ledger.obstacle(name)
        if facts.obstacle != before:
            log.warning("node %s: %s", name, facts.obstacle or f"no longer so: {before}")
        # The obstacle is the first cause alone: the others change too.
        if facts != self.ledger.facts(name):
            self.ledger.set_node(facts)

    def _read_labels(self, name: str) -> None:
        """Without an agent, take the devices of a vendor's node from its labels."""
        node = self.nodes.get(name)
        if node is None or (name in self._reported and name not in self._split):
            return
        serves = serving(node, vendors=self.vendors)
        specs = self.ledger.limits.memory_specs
        by_plugin = serves.resource or serves.instances
        if name in self._reported and not by_plugin:
            return
        devices = labelled_devices(node, serves=serves, vendors=self.vendors, specs=specs) if by_plugin else []
        if list(self.ledger.everything(name)) != devices:
            self.ledger.set_devices(name, devices=devices)

    def _name_devices(self, name: str) -> list[str]:
        """Give the claims on a vendor's node the devices that kubelet assigned.

        Returns the keys of changed claims.
        """
        given = self._given.get(name, {})
        claims = [claim for claim in self.ledger.claims_on(name) if claim.resource or claim.key in given]
        changed = [named for claim in claims if (named := self._named(claim)) != claim]
        for claim in changed:
            self.ledger.commit(claim)
        return [claim.key for claim in changed]

    def _named(self, claim: Claim) -> Claim:
        """A claim on devices that kubelet assigns, with those that the node's report names.

        The rest has no names.

        A pod without a request that we know still has what it was given: by its own resource claim.
        """
        given = self._given.get(claim.node, {}).get(claim.key, ())
        if not claim.resource and (claim.devices or not given):
            return claim
        count = len(claim.devices) + claim.unnamed
        known = {facts.uuid: facts for facts in self.ledger.devices(claim.node)}
        held = [(known[card_of(each)], is_replica(each)) for each in given if card_of(each) in known]
        return replace(
            claim,
            # A replica shares its device with pods that the plugin chooses, and is promised no memory.
            mode="TimeShared" if any(shared for _, shared in held) else "Exclusive",
            devices=tuple(_whole(facts, memory=not shared) for facts, shared in held),
            unnamed=max(0, count - len(held)),
            resource=claim.resource or BY_CLAIM,
        )

    def over(self, ledger: Ledger) -> "ClusterView":
        """The same nodes over another ledger. Neither view sees what is fed to the other."""
        view = ClusterView(ledger=ledger, vendors=self.vendors, drivers=self._drivers)
        view.nodes, view._claiming = self.nodes, self._claiming
        return view

    def eligible_nodes(self, pod_spec: Mapping[str, Any]) -> list[str]:
        """The existing nodes that a pod may use, by selector, required affinity and taints."""
        return [
            name for name in self.ledger.nodes() if name in self.nodes and admits(self.nodes[name], pod_spec=pod_spec)
        ]


def build_view(
    *,
    limits: Limits,
    smoothing_seconds: float,
    max_age_seconds: float,
    vendors: Vendors,
    absent_seconds: float,
    clock: Callable[[], float],
) -> ClusterView:
    """Build an empty view, as the long-running components need it.

    Measurements count until `max_age_seconds`, and their load is smoothed over `smoothing_seconds`. A DRA driver's
    ResourceSlices count for `absent_seconds` after they are gone. `clock` is monotonic, in seconds.
    """
    return ClusterView(
        ledger=Ledger(limits=limits, smoothing_seconds=smoothing_seconds),
        freshness=Freshness(max_age_seconds=max_age_seconds, clock=clock),
        vendors=vendors,
        drivers=NodeDrivers(clock=clock, absent_seconds=absent_seconds),
    )


def node_facts(node: Node, *, vendors: Vendors = DEFAULT_VENDORS, drivers: tuple[str, ...] = ()) -> NodeFacts:
    """What the ledger needs of a Node.

    `drivers` assign devices there, according to their ResourceSlices.
    """
    serves = serving(node, vendors=vendors, drivers=drivers)
    allocatable = node.status.allocatable
    return NodeFacts(
        name=node.metadata.name,
        managed=serves.managed,
        unavailable=availability.of_node(node, serves=serves),
        cpu_milli=min(MOST, milli(allocatable.get("cpu", "0"), rounding="down")),
        memory_mib=min(MOST, mebibytes(allocatable.get("memory", "0"), rounding="down")),
        pods=min(ANY_NUMBER, whole(allocatable.get("pods", ANY_NUMBER), rounding="down")),
        resource=serves.resource,
        offered=serves.count,
        instances=serves.instances,
        labels=node.metadata.labels,
        one_machine=node.status.node_info.container_runtime_version == names.PROCESSES,
    )


def has_reported(gpunode: GPUNode) -> bool:
    """Whether the node's agent has said which devices there are: also that there are none, or that it cannot tell."""
    return bool(gpunode.status.devices) or find_condition(gpunode.status.conditions, type="Ready") is not None


def device_facts(gpunode: GPUNode) -> list[DeviceFacts]:
    """What the ledger needs of a GPUNode. Devices that the agent cannot read are unhealthy."""
    status, limits = gpunode.status, gpunode.spec.tenant_limits
    readable = not availability.unreadable(gpunode)
    enforced = status.enforcement
    return [
        DeviceFacts(
            index=device.index,
            uuid=device.uuid,
            vendor=device.vendor,
            model=mig.model_of(device.model),
            memory_mib=device.memory_mib,
            reserved_mib=device.reserved_mib,
            foreign_mib=device.foreign_mib,
            utilization=device.utilization,
            unavailable=availability.of_device(device, gpunode=gpunode),
            movable=readable and enforced.turns and enforced.checkpoint,
            numa_node=device.numa_node,
            nvlink=tuple(device.links.nvlink),
            switch=tuple(device.links.switch),
            training_limit=limits[device.uuid].training if device.uuid in limits else None,
            inference_limit=limits[device.uuid].inference if device.uuid in limits else None,
            mig=_profile(device.mig_profile),
        )
        for device in status.devices
    ]


def _profile(reported: str) -> str:
    """The profile of a reported MIG device, also one of a name that no request can have; empty for a GPU."""
    return mig.normalised(reported) or reported


def claim_of_pod(pod: Pod, *, vendors: Vendors = DEFAULT_VENDORS) -> Claim:
    """What a bound pod holds of its node.

    A broken allocation holds no device; the audit reports it.

    Of a vendor's devices only the number is known here, whichever scheduler bound the pod.
    """
    by_vendor = vendor_devices(pod.spec, vendors=vendors) | claimed_devices(pod, vendors=vendors)
    instances = mig_devices(pod.spec)
    allocation = None if by_vendor or instances else _allocation_of(pod)
    cpu_milli, memory_mib = host_request(pod.spec)
    return Claim(
        key=pod.metadata.uid,
        node=pod.spec.node_name,
        mode=allocation.mode if allocation else "Exclusive",
        devices=tuple(allocation.devices) if allocation else (),
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        guard_fraction=allocation.guard_fraction if allocation else None,
        workload=allocation.workload if allocation else None,
        movable=allocation is not None and allocation.mode == "TimeShared" and allocation.movable,
        unnamed=sum(by_vendor.values()),
        resource=next(iter(by_vendor), next(iter(instances), "")),
        instances=tuple((profile, count) for name, count in instances.items() if (profile := mig.profile_of(name))),
    )


def _allocation_of(pod: Pod) -> Allocation | None:
    try:
        return allocation_in(pod.metadata.annotations)
    except AllocationError as error:
        log.warning("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
        return None


def _whole(facts: DeviceFacts, *, memory: bool) -> AllocatedDevice:
    memory_mib = max(0, facts.memory_mib - facts.reserved_mib) if memory else 0
    return AllocatedDevice(index=facts.index, uuid=facts.uuid, share_milli=WHOLE_MILLI, memory_mib=memory_mib)
