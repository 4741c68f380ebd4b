"""Nodes and devices with their holders: what each device may do, and who holds it. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dovetail import names
from dovetail.answers.nodes import TenantRow
from dovetail.api.builtin import Node, Pod, is_terminated
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Workload
from dovetail.api.gpunode import LOST, SILENT, Device, Enforcement, GPUNode
from dovetail.cluster import availability
from dovetail.cluster.dra_drivers import NodeDrivers, drivers_now
from dovetail.cluster.node_kind import Serving, serving
from dovetail.cluster.staleness import Freshness, timeless
from dovetail.engine.model.availability import BROKEN, Unavailable
from dovetail.engine.model.inventory import FOREIGN_LIMIT
from dovetail.gpu import mig
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors, card_of
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.pods.allocation import AllocationError, allocation_in

# A pod, what it holds of a device, and what it counts as for tenant limits.
_Held = tuple[Pod, AllocatedDevice, Workload | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """A device of a node, why it takes no new work (empty: it does), and its holders.

    `stale` is how old its figures are, such as 12m, where they are too old to count; empty otherwise.
    """

    node: str
    device: Device
    unavailable: tuple[Unavailable, ...] = ()
    holders: Sequence[TenantRow] = ()
    stale: str = ""

    @property
    def is_instance(self) -> bool:
        """Whether it is a MIG instance, which no request for a GPU gets."""
        return bool(self.device.mig_profile)

    @property
    def gpus(self) -> float:
        """What it counts as in GPUs: 1, and for a MIG instance its part of a GPU's compute, as in quotas."""
        profile = mig.normalised(self.device.mig_profile)
        return mig.milli_of(profile) / WHOLE_MILLI if profile else 1.0

    @property
    def takes_work(self) -> bool:
        """Whether it takes new work, as far as it is free."""
        return not self.unavailable

    @property
    def reason(self) -> str:
        """Why it takes no new work, in one sentence that names the node; empty when it does."""
        return self.unavailable[0].on(self.node, index=self.device.index).message if self.unavailable else ""

    @property
    def cordoned(self) -> bool:
        """Whether people have cordoned the device itself."""
        return any(each.cause == "Cordoned" for each in self.unavailable)

    @property
    def healthy(self) -> bool:
        """Whether its driver can be read, and says that it is healthy."""
        return not any(each.cause in BROKEN for each in self.unavailable)

    @property
    def health_reason(self) -> str:
        """Why it is unhealthy; empty when it is not."""
        return next((each.detail for each in self.unavailable if each.cause in BROKEN), "")

    @property
    def is_measured(self) -> bool:
        """Whether its figures are of now, or of `stale` ago: a device that cannot report has none."""
        unread = any(each.cause in {"DriverUnreadable", "NodeGone"} for each in self.unavailable)
        return not unread and self.device.health_reason not in {LOST, SILENT}

    @property
    def utilization(self) -> float | None:
        """How busy it is, from 0 to 1; None without figures."""
        return self.device.utilization if self.is_measured else None

    @property
    def used_mib(self) -> int | None:
        """Its memory in use; None without figures."""
        return self.device.used_mib if self.is_measured else None

    @property
    def temperature_celsius(self) -> int | None:
        """Its temperature; None without figures, and where its driver reports none."""
        return self.device.temperature_celsius if self.is_measured else None

    @property
    def power_watts(self) -> int | None:
        """Its power draw; None without figures, and where its driver reports none."""
        return self.device.power_watts if self.is_measured else None

    @property
    def is_foreign(self) -> bool:
        """Whether foreign processes use so much of its memory that no job gets the whole device."""
        # Where figures are too old, the ledger counts no memory as foreign either.
        return not self.stale and self.device.foreign_mib > self.device.memory_mib * FOREIGN_LIMIT

    @property
    def available(self) -> bool:
        """Whether a job could take the whole device now."""
        return self.takes_work and not self.holders and not self.is_foreign

    def status(self, *, namespace: str) -> str:
        """`In use by job 5`, `Available`, `unmanaged` (foreign memory), or `Unavailable: ` and why; or two of them."""
        held = ", ".join(holder.called(namespace=namespace) for holder in self.holders)
        parts = [f"In use by {held}"] if held else []
        if self.unavailable:
            parts.append(self.reason if held else f"Unavailable: {self.reason}")
        return "; ".join(parts) or ("unmanaged" if self.is_foreign else "Available")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """A node with GPUs: its report, why it takes no new work (empty: it does), and its devices with their holders.

    `node` is None where it is deleted, and where the reader may not read it. `stale` is why its figures do not count;
    empty where they do. `rack` is its domain of the network's level of that name.
    """

    gpunode: GPUNode
    uses: tuple[DeviceUse, ...]
    node: Node | None = None
    unavailable: tuple[Unavailable, ...] = ()
    stale: str = ""
    rack: str = ""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.gpunode.metadata.name

    @property
    def takes_work(self) -> bool:
        """Whether the node takes new work on one of its devices at least, as far as they are free."""
        return not self.unavailable and any(use.takes_work for use in self.uses)

    @property
    def reason(self) -> str:
        """Why no device of the node takes new work, in one sentence; empty when one does."""
        if self.takes_work:
            return ""
        if self.unavailable:
            return self.unavailable[0].on(self.name).message
        problem = availability.unreadable(self.gpunode)
        if problem:
            return Unavailable(cause="DriverUnreadable", detail=problem).on(self.name).message
        return next((use.reason for use in self.uses), f"node {self.name} reports no devices")

    @property
    def available(self) -> list[DeviceUse]:
        """The GPUs that a job could take whole; MIG instances are no GPUs."""
        return [use for use in self.uses if use.available and not use.is_instance]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All devices of a cluster, and their holders."""

    # Whether the scheduler runs, in words.
    scheduler: str
    # The reader's: job numbers of this namespace need no namespace with them.
    namespace: str
    # The nodes by name, in order of names.
    nodes: Mapping[str, NodeUse]
    # Whether the pods of all namespaces were seen, and not those of the reader's own alone.
    of_all: bool = True
    # Whether the reader may read the nodes themselves, and not their agents' reports alone.
    of_nodes: bool = True

    @property
    def devices(self) -> list[DeviceUse]:
        """All devices, node by node."""
        return [use for node in self.nodes.values() for use in node.uses]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReader:
    """Reads nodes with GPUs as they are now.

    `drivers` are the cluster's DRA drivers. `reads_nodes` is false for a reader without the right: then nothing is
    known of the nodes themselves.
    """

    freshness: Freshness
    drivers: NodeDrivers = field(default_factory=lambda: drivers_now(()))
    vendors: Vendors = DEFAULT_VENDORS
    reads_nodes: bool = True

    def node_use(self, gpunode: GPUNode, *, node: Node | None, pods: Iterable[Pod], rack: str = "") -> NodeUse:
        """The node of a report; `pods` are those on it, at least."""
        pods = list(pods)
        name = gpunode.metadata.name
        held = {**_promised(pods, node=name), **_given(pods, gpunode=gpunode)}
        of_node = self._causes(node) if self.reads_nodes else ()
        note = self.freshness.report(name, status=gpunode.status)
        age = self.freshness.age(name) if note else ""
        uses = (
            _with_holders(
                DeviceUse(
                    node=name,
                    device=device,
                    unavailable=(*of_node, *availability.of_device(device, gpunode=gpunode)),
                    stale=age,
                ),
                held=held.get(device.uuid, ()),
            )
            for device in sorted(gpunode.status.devices, key=lambda device: device.index)
        )
        return NodeUse(gpunode=gpunode, uses=tuple(uses), node=node, unavailable=of_node, stale=note, rack=rack)

    def _causes(self, node: Node | None) -> tuple[Unavailable, ...]:
        if node is None:
            return availability.of_node(None, serves=Serving())
        drivers = self.drivers.serving(node, has_claims=False)
        return availability.of_node(node, serves=serving(node, vendors=self.vendors, drivers=drivers))


def take(
    gpunodes: Iterable[GPUNode],
    *,
    pods: Iterable[Pod],
    scheduler: str,
    namespace: str,
    nodes: Iterable[Node] | None = None,
    reader: NodeReader | None = None,
) -> Inventory:
    """Compute the inventory from these objects; nodes are in order of name, devices of index.

    `nodes` is None where the reader may not read them. Without a `reader`, figures of any age count.
    """
    reader = reader or NodeReader(freshness=timeless(), reads_nodes=nodes is not None)
    known = {node.metadata.name: node for node in nodes or ()}
    on_node: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        on_node[pod.spec.node_name].append(pod)
    in_order = sorted(gpunodes, key=lambda gpunode: gpunode.metadata.name)
    uses = (
        reader.node_use(each, node=known.get(each.metadata.name), pods=on_node[each.metadata.name]) for each in in_order
    )
    return Inventory(
        scheduler=scheduler, namespace=namespace, nodes={use.name: use for use in uses}, of_nodes=nodes is not None
    )


def enforcing(found: Enforcement) -> str:
    """What a node enforces, in users' words; `none` if it enforces nothing."""
    words = {
        "mps": found.mps, "turns": found.turns, "time-slicing": found.time_slicing, "mig": found.mig,
        "checkpoint": found.checkpoint,
    }  # fmt: skip
    return ", ".join(word for word, holds in words.items() if holds) or "none"


def _with_holders(use: DeviceUse, *, held: Sequence[_Held]) -> DeviceUse:
    used = {each.uid: each.used_mib for each in use.device.tenants} if use.is_measured else {}
    tenants = [_tenant(pod, device=device, workload=workload, used=used) for pod, device, workload in held]
    return replace(use, holders=tenants) if tenants else use


def _promised(pods: Iterable[Pod], *, node: str) -> dict[str, list[_Held]]:
    """What pods of the node were promised of each device, by UUID.

    A pod with a broken allocation holds nothing; `dovetail audit` reports it.
    """
    held: dict[str, list[_Held]] = defaultdict(list)
    for pod in pods:
        if is_terminated(pod) or pod.spec.node_name != node:
            continue
        try:
            allocation = allocation_in(pod.metadata.annotations)
        except AllocationError:
            continue
        for device in allocation.devices if allocation else ():
            held[device.uuid].append((pod, device, allocation.workload if allocation else None))
    return held


def _given(pods: Iterable[Pod], *, gpunode: GPUNode) -> dict[str, list[_Held]]:
    """The whole devices that kubelet assigned for a vendor's plugin, by UUID."""
    live = {pod.metadata.uid: pod for pod in pods if not is_terminated(pod)}
    known = {device.uuid: device for device in gpunode.status.devices}
    held: dict[str, list[_Held]] = defaultdict(list)
    for each in gpunode.status.assignments:
        for uuid in map(card_of, each.devices if each.uid in live else ()):
            if (device := known.get(uuid)) is not None:
                whole = AllocatedDevice(
                    uuid=uuid,
                    index=device.index,
                    share_milli=WHOLE_MILLI,
                    memory_mib=device.memory_mib - device.reserved_mib,
                )
                held[uuid].append((live[each.uid], whole, None))
    return held


def _tenant(pod: Pod, *, device: AllocatedDevice, workload: Workload | None, used: Mapping[str, int]) -> TenantRow:
    number = pod.metadata.labels.get(names.LABEL_JOB_NUMBER, "")
    return TenantRow(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        job=int(number) if number.isdigit() else None,
        share_milli=device.share_milli,
        memory_mib=device.memory_mib,
        workload=workload,
        used_mib=used.get(pod.metadata.uid),
    )
