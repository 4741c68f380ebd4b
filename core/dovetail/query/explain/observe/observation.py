"""The look at a cluster: waiting pods, the map of its devices, and what is lost. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from dovetail.answers.observe import (
    DeviceHolder,
    Fragments,
    IdleHolder,
    NamespaceQuota,
    NodeMap,
    Observation,
    RefusedCreation,
    ResourceSum,
    Unread,
    WaitingWorkload,
)
from dovetail.api.builtin import Event, Pod
from dovetail.api.gpunode import GPUNode
from dovetail.api.kueue import CLUSTERQUEUES, WORKLOADS, Workload, is_admitted, words
from dovetail.api.resources import EVENTS, GPUNODES, NODES, PODS, RESOURCEQUOTAS, Resource
from dovetail.cluster.observed import ResourceQuota, Seen
from dovetail.formats.quantities import QuantityError, whole
from dovetail.formats.timestamps import seconds_between, timestamp
from dovetail.gpu.device_plugins import card_of
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.query.explain.observe.books import NodeBook, books_of, owner_of
from dovetail.query.explain.observe.demands import Demand, counts_devices, demand_of
from dovetail.query.explain.observe.waiting import Judge, demands_of, waiting_pod

_REQUESTS: Final = "requests."
# Below this, a device that a pod holds is called idle.
_IDLE: Final = 0.01
_SIZES: Final = (1, 2, 4, 8)
_EXCEEDED: Final = "exceeded quota"
# What an answer misses without the right to list a kind.
_MISSING: Final = {
    NODES.plural: "the map of devices, and on which nodes a waiting pod would fit",
    PODS.plural: "what pods of other namespaces wait for and hold, and so what is free",
    RESOURCEQUOTAS.plural: "the limits of GPUs in namespaces",
    EVENTS.plural: "pods that a quota keeps from being created",
    GPUNODES.plural: "what agents measure",
    WORKLOADS[0].plural: "what waits in Kueue's queues",
    CLUSTERQUEUES[0].plural: "Kueue's quotas in the replay of a report",
}
_CLAIMS: Final = "Pods with resource claims hold devices that these books do not count: {count} of them are bound"
_PART: Final = (
    "Only the pods of one namespace may be listed: what nodes have promised and what is free is not known, and nodes "
    "refuse waiting pods here only for what they are"
)


def observation(seen: Seen, *, now: datetime) -> Observation:
    """What the objects show, as of `now`."""
    books = None if seen.nodes is None else books_of(seen.nodes, pods=seen.pods)
    judge = None if books is None else Judge(books)
    waiting = demands_of(seen.pods)
    known = [] if books is None else books
    least = _least([demand for _, demand in waiting] + [demand for pod in seen.pods if (demand := demand_of(pod))])
    nodes = list(_map(known, least=least, everywhere=seen.everywhere, gpunodes=seen.gpunodes))
    return Observation(
        as_of=timestamp(now),
        pods=[
            waiting_pod(pod, demand=demand, judge=judge, everywhere=seen.everywhere, now=now) for pod, demand in waiting
        ],
        workloads=[_workload(each, now=now) for each in seen.workloads if _asks(each) and not is_admitted(each)],
        refused=list(_refused(seen.events)),
        quotas=sorted(
            (each for quota in seen.quotas for each in _quotas(quota)), key=lambda row: (row.namespace, row.resource)
        ),
        resources=_sums(nodes, asked=_asked(known, demands=[demand for _, demand in waiting])),
        nodes=nodes,
        fragments=[_fragments(known, resource=each) for each in _resources(nodes)] if seen.everywhere else [],
        measured=any(gpunode.status.devices for gpunode in seen.gpunodes),
        idle=list(_idle(seen.gpunodes)),
        unread=[_unread(each) for each in seen.unlisted],
        notes=list(_notes(seen)),
    )


def _notes(seen: Seen) -> Iterator[str]:
    if not seen.everywhere:
        yield _PART
    if claims := sum(bool(pod.spec.resource_claims and pod.spec.node_name) for pod in seen.pods):
        yield _CLAIMS.format(count=claims)


def _unread(resource: Resource) -> Unread:
    return Unread(verb="list", resource=resource.plural, group=resource.group, missing=_MISSING[resource.plural])


def _map(
    books: Sequence[NodeBook], *, least: Mapping[str, Demand], everywhere: bool, gpunodes: Sequence[GPUNode]
) -> Iterator[NodeMap]:
    reported = {gpunode.metadata.name: gpunode for gpunode in gpunodes if gpunode.status.devices}
    for book in books:
        gpunode = reported.get(book.name)
        utilization = None if gpunode is None else _utilization(gpunode)
        for resource, room in book.amounts.items():
            if counts_devices(resource) and (room.total or room.promised):
                why = _stranded(book, resource=resource, least=least) if everywhere else ""
                yield _node(book, resource=resource, everywhere=everywhere, stranded=why, utilization=utilization)


def _node(book: NodeBook, *, resource: str, everywhere: bool, stranded: str, utilization: float | None) -> NodeMap:
    promised = round(book.promised(resource), 3)
    holding = (each for each in book.held if resource in each.devices)
    return NodeMap(
        node=book.name,
        system=book.system(resource),
        resource=resource,
        model=book.model,
        devices=book.devices(resource),
        promised=promised if everywhere else None,
        free=round(max(0.0, book.devices(resource) - promised), 3) if everywhere else None,
        closed=book.closed,
        stranded=stranded,
        utilization=utilization,
        holders=[_holder(each.pod, devices=each.devices[resource]) for each in holding],
    )


def _holder(pod: Pod, *, devices: float) -> DeviceHolder:
    return DeviceHolder(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        owner=owner_of(pod),
        scheduler=pod.spec.scheduler_name or "default-scheduler",
        devices=round(devices, 3),
    )


def _utilization(gpunode: GPUNode) -> float:
    devices = gpunode.status.devices
    return round(sum(device.utilization for device in devices) / len(devices), 3)


def _least(demands: Iterable[Demand]) -> dict[str, Demand]:
    """The least CPU and memory that any pod of the cluster with devices of a resource asks for."""
    found: dict[str, Demand] = {}
    for demand in demands:
        for resource in demand.devices():
            before = found.get(resource)
            found[resource] = Demand(
                words="",
                cpu_milli=demand.cpu_milli if before is None else min(before.cpu_milli, demand.cpu_milli),
                memory_mib=demand.memory_mib if before is None else min(before.memory_mib, demand.memory_mib),
            )
    return found


def _stranded(book: NodeBook, *, resource: str, least: Mapping[str, Demand]) -> str:
    """Why nothing like the cluster's own pods can use what is free of a resource; empty if something can."""
    if book.devices(resource) - book.promised(resource) <= 0:
        return ""
    if book.closed:
        return f"the node {book.closed}"
    asks = least.get(resource)
    if asks is None:
        return ""
    every = "and every pod with such devices asks for"
    if asks.cpu_milli > book.cpu.free:
        free, least_cpu = max(0, book.cpu.free) / WHOLE_MILLI, asks.cpu_milli / WHOLE_MILLI
        return f"{free:g} CPUs are free, {every} {least_cpu:g} or more"
    if asks.memory_mib > book.memory.free:
        return f"{max(0, book.memory.free)} MiB of memory are free, {every} {asks.memory_mib} or more"
    return "" if book.pods.free > 0 else "the node has as many pods as it may have"


def _resources(nodes: Iterable[NodeMap]) -> list[str]:
    return sorted({node.resource for node in nodes})


def _sums(nodes: Sequence[NodeMap], *, asked: Mapping[str, float]) -> list[ResourceSum]:
    found: dict[str, list[NodeMap]] = defaultdict(list)
    for node in nodes:
        found[node.resource].append(node)
    return [
        _sum(resource, nodes=found.get(resource, []), asked=asked.get(resource, 0.0))
        for resource in sorted({*found, *asked})
    ]


def _sum(resource: str, *, nodes: Sequence[NodeMap], asked: float) -> ResourceSum:
    known = all(node.promised is not None for node in nodes)
    return ResourceSum(
        resource=resource,
        nodes=len(nodes),
        devices=sum(node.devices for node in nodes),
        promised=round(sum(node.promised or 0.0 for node in nodes), 3) if known else None,
        free=round(sum(node.free or 0.0 for node in nodes), 3) if known else None,
        stranded=round(sum(node.free or 0.0 for node in nodes if node.stranded), 3) if known else None,
        asked=round(asked, 3),
    )


def _asked(books: Sequence[NodeBook], *, demands: Iterable[Demand]) -> dict[str, float]:
    device_mib = max((book.device_mib for book in books), default=0)
    found: dict[str, float] = defaultdict(float)
    for demand in demands:
        for resource, devices in demand.devices(device_mib=device_mib).items():
            found[resource] += devices
    return found


def _fragments(books: Sequence[NodeBook], *, resource: str) -> Fragments:
    free = [book.whole_free(resource) for book in books if resource in book.amounts and not book.closed]
    return Fragments(
        resource=resource, whole=sum(free), pods={size: sum(each // size for each in free) for size in _SIZES}
    )


def _quotas(quota: ResourceQuota) -> Iterator[NamespaceQuota]:
    for limit, hard in quota.status.hard.items():
        resource = limit.removeprefix(_REQUESTS)
        if not counts_devices(resource):
            continue
        try:
            used, most = whole(quota.status.used.get(limit, "0")), whole(hard)
        except QuantityError:
            continue
        yield NamespaceQuota(
            namespace=quota.metadata.namespace, name=quota.metadata.name, resource=resource,
            used=used, hard=most, full=used >= most,
        )  # fmt: skip


def _refused(events: Iterable[Event]) -> Iterator[RefusedCreation]:
    """The newest refusal of each owner whose pods a ResourceQuota of GPUs keeps from being created."""
    newest: dict[tuple[str, str], Event] = {}
    for event in events:
        if _EXCEEDED not in event.message or not _names_devices(event.message):
            continue
        about = event.involved_object
        key = (about.namespace, f"{about.kind}/{about.name}")
        if key not in newest or _at(event) > _at(newest[key]):
            newest[key] = event
    for (namespace, owner), event in sorted(newest.items()):
        yield RefusedCreation(
            namespace=namespace, owner=owner, message=event.message, last=_at(event), count=event.count or 1
        )


def _names_devices(message: str) -> bool:
    said = message.replace("=", " ").replace(",", " ").split()
    return any(counts_devices(word.removeprefix(_REQUESTS)) for word in said)


def _at(event: Event) -> str:
    return event.last_timestamp or event.event_time or event.first_timestamp or event.metadata.creation_timestamp


def _asks(workload: Workload) -> bool:
    return any(_set_demand(workload, at=at) for at in range(len(workload.spec.pod_sets)))


def _set_demand(workload: Workload, *, at: int) -> Demand | None:
    return demand_of(Pod(spec=workload.spec.pod_sets[at].template.spec))


def _workload(workload: Workload, *, now: datetime) -> WaitingWorkload:
    meta = workload.metadata
    sets = [(each.count, _set_demand(workload, at=at)) for at, each in enumerate(workload.spec.pod_sets)]
    owner = next((f"{each.kind}/{each.name}" for each in meta.owner_references if each.controller), "")
    said = words(workload.status.conditions)
    return WaitingWorkload(
        namespace=meta.namespace,
        name=meta.name,
        owner=owner,
        queue=workload.spec.queue_name,
        request="; ".join(f"{count} pods of {demand.words}" for count, demand in sets if demand is not None),
        created=meta.creation_timestamp,
        waits_seconds=seconds_between(meta.creation_timestamp, end=None, now=now) or 0.0,
        message=said or ("Kueue has not looked at it yet" if workload.spec.active else "it is deactivated"),
    )


def _idle(gpunodes: Iterable[GPUNode]) -> Iterator[IdleHolder]:
    """Devices that pods hold, as kubelet or an agent reports it, and that are measured as idle."""
    for gpunode in gpunodes:
        holders: dict[str, list[str]] = defaultdict(list)
        for assignment in gpunode.status.assignments:
            for uuid in assignment.devices:
                holders[card_of(uuid)].append(f"{assignment.namespace}/{assignment.name}")
        for device in gpunode.status.devices:
            if device.utilization < _IDLE and holders.get(device.uuid):
                name = f"{gpunode.metadata.name}/{device.index}"
                pods = sorted(set(holders[device.uuid]))
                yield IdleHolder(device=name, model=device.model, utilization=device.utilization, pods=pods)
