"""What ginfo shows: GPUNodes with the allocations of the pods on them. The sums are pure; `show` looks."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpunode import Device, Enforcement, GPUNode
from dovetail.api.resources import GPUNODES, PODS
from dovetail.gpu.device_plugins import card_of
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.pods.allocation import AllocationError, allocation_in
from dovetail_cli.cluster import scheduler_health
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import MissingError

_ENDED: Final = frozenset({"Succeeded", "Failed"})
# As the engine has it: a card on which strangers keep more than this part of its memory is not free.
_FOREIGN_LIMIT: Final = 0.05
CSV_COLUMNS: Final = (
    "node", "index", "model", "uuid", "status", "memory_used_mib", "memory_total_mib", "utilization",
    "temperature_celsius", "power_watts",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A pod that holds a part of a device. `job` is its job's number, None for a pod of no job."""

    namespace: str
    pod: str
    job: int | None
    share_milli: int
    memory_mib: int

    def told(self, *, namespace: str) -> str:
        """`job 5`, with its share when that is not the whole, and its namespace when that is another one."""
        called = f"pod {self.pod}" if self.job is None else f"job {self.job}"
        beside = [] if self.namespace == namespace else [self.namespace]
        beside += [] if self.share_milli == WHOLE_MILLI else [f"{self.share_milli / WHOLE_MILLI:g}"]
        return f"{called} ({', '.join(beside)})" if beside else called


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """A device, what it may do, and who holds it."""

    device: Device
    cordoned: bool
    holders: Sequence[Holder]

    @property
    def available(self) -> bool:
        """Whether a job could take it whole."""
        return self.status(namespace="") == "Available"

    def status(self, *, namespace: str) -> str:
        """In use, Available, cordoned, unmanaged (a stranger uses it), or unhealthy."""
        device = self.device
        if device.health != "Healthy":
            return f"unhealthy ({device.health_reason})" if device.health_reason else "unhealthy"
        if self.holders:
            return f"In use by {', '.join(holder.told(namespace=namespace) for holder in self.holders)}"
        if self.cordoned:
            return "cordoned"
        foreign = device.strangers or device.foreign_mib > device.memory_mib * _FOREIGN_LIMIT
        return "unmanaged" if foreign else "Available"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that ginfo shows. `namespace` is the reader's, whose job numbers need no namespace beside them.

    `of_all`: whether the pods of all namespaces were seen, and not the reader's own alone.
    """

    scheduler: str
    namespace: str
    nodes: Mapping[str, Sequence[DeviceUse]]
    enforcement: Mapping[str, Enforcement] = field(default_factory=dict)
    of_all: bool = True

    @property
    def devices(self) -> list[DeviceUse]:
        """All devices, node by node."""
        return [device for devices in self.nodes.values() for device in devices]

    def text(self) -> str:
        """For people."""
        devices = self.devices
        lines = [
            f"Scheduler Status: {self.scheduler}",
            f"Total GPUs: {len(devices)}",
            f"Available GPUs: {sum(device.available for device in devices)}",
        ]
        if not devices:
            lines.append("No node reports a GPU.")
        for node, uses in self.nodes.items():
            lines += ["", f"Node {node}", f"  Enforcement: {enforcing(self.enforcement.get(node, Enforcement()))}"]
            for use in uses:
                lines += _device_lines(use, namespace=self.namespace)
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """For programs."""
        devices = self.devices
        return {
            "scheduler": self.scheduler,
            "total_gpus": len(devices),
            "available_gpus": sum(device.available for device in devices),
            "nodes": [
                {
                    "name": node,
                    "enforcement": msgspec.to_builtins(self.enforcement.get(node, Enforcement())),
                    "devices": [_device_record(use, namespace=self.namespace) for use in uses],
                }
                for node, uses in self.nodes.items()
            ],
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a device."""
        return [
            {"node": node, **_device_record(use, namespace=self.namespace)}
            for node, uses in self.nodes.items()
            for use in uses
        ]


def take(gpunodes: Iterable[GPUNode], pods: Iterable[Pod], *, scheduler: str, namespace: str) -> Inventory:
    """The inventory that these objects mean. Nodes come by name, devices by index."""
    gpunodes, pods = list(gpunodes), list(pods)
    held = {**holders(pods), **given(pods, gpunodes=gpunodes)}
    nodes = {}
    for gpunode in sorted(gpunodes, key=lambda gpunode: gpunode.metadata.name):
        name = gpunode.metadata.name
        nodes[name] = [
            DeviceUse(
                device=device,
                cordoned=device.uuid in gpunode.spec.cordoned,
                holders=held.get((name, device.uuid), ()),
            )
            for device in sorted(gpunode.status.devices, key=lambda device: device.index)
        ]
    enforcement = {gpunode.metadata.name: gpunode.status.enforcement for gpunode in gpunodes}
    return Inventory(scheduler=scheduler, namespace=namespace, nodes=nodes, enforcement=enforcement)


def enforcing(found: Enforcement) -> str:
    """What a node enforces, in the words that people know; `none` for nothing."""
    words = {
        "mps": found.mps, "turns": found.turns, "time-slicing": found.time_slicing, "mig": found.mig,
        "checkpoint": found.checkpoint,
    }  # fmt: skip
    return ", ".join(word for word, holds in words.items() if holds) or "none"


def holders(pods: Iterable[Pod]) -> dict[tuple[str, str], list[Holder]]:
    """Who holds each device, by node and UUID. A broken allocation holds none; `dovetail audit` reports it."""
    held: dict[tuple[str, str], list[Holder]] = defaultdict(list)
    for pod in pods:
        if pod.status.phase in _ENDED:
            continue
        try:
            allocation = allocation_in(pod.metadata.annotations)
        except AllocationError:
            continue
        for device in allocation.devices if allocation else ():
            held[pod.spec.node_name, device.uuid].append(_holder(pod, share=device.share_milli, mib=device.memory_mib))
    return held


def given(pods: Iterable[Pod], *, gpunodes: Iterable[GPUNode]) -> dict[tuple[str, str], list[Holder]]:
    """Who holds each device that kubelet gave out for a vendor's plugin, by node and UUID, as the nodes report."""
    live = {pod.metadata.uid: pod for pod in pods if pod.status.phase not in _ENDED}
    held: dict[tuple[str, str], list[Holder]] = defaultdict(list)
    for gpunode in gpunodes:
        memory = {device.uuid: device.memory_mib - device.reserved_mib for device in gpunode.status.devices}
        for each in gpunode.status.assignments:
            for uuid in map(card_of, each.devices if each.uid in live else ()):
                holder = _holder(live[each.uid], share=WHOLE_MILLI, mib=memory.get(uuid, 0))
                held[gpunode.metadata.name, uuid].append(holder)
    return held


def _holder(pod: Pod, *, share: int, mib: int) -> Holder:
    number = pod.metadata.labels.get(names.LABEL_JOB_NUMBER, "")
    return Holder(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        job=int(number) if number.isdigit() else None,
        share_milli=share,
        memory_mib=mib,
    )


def _device_lines(use: DeviceUse, *, namespace: str) -> list[str]:
    device, status = use.device, use.status(namespace=namespace)
    colour = "green" if status == "Available" else "yellow" if status.startswith("In use") else "red"
    return [
        f"  GPU {device.index}: {device.model}",
        f"    UUID: {device.uuid}",
        f"    Status: {output.paint(status, colour)}",
        f"    Memory: {device.used_mib}/{device.memory_mib} MiB",
        f"    Utilization: {device.utilization:.0%}",
        f"    Temperature: {_or_not(device.temperature_celsius, unit='C')}",
        f"    Power: {_or_not(device.power_watts, unit='W')}",
    ]


def _or_not(value: int | None, *, unit: str) -> str:
    return "not available" if value is None else f"{value} {unit}"


def _device_record(use: DeviceUse, *, namespace: str) -> dict[str, Any]:
    device = use.device
    return {
        "index": device.index,
        "model": device.model,
        "uuid": device.uuid,
        "status": use.status(namespace=namespace),
        "available": use.available,
        "holders": [
            {
                "namespace": holder.namespace,
                "pod": holder.pod,
                "job": holder.job,
                "share_milli": holder.share_milli,
                "memory_mib": holder.memory_mib,
            }
            for holder in use.holders
        ],
        "memory_used_mib": device.used_mib,
        "memory_total_mib": device.memory_mib,
        "utilization": device.utilization,
        "temperature_celsius": device.temperature_celsius,
        "power_watts": device.power_watts,
    }


def show(*, form: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> str:
    """Look, and return the text to print."""
    found = work(look, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)
    tell_what_lacks(found)
    match form:
        case "json":
            return output.as_json(found.record())
        case "yaml":
            return output.as_yaml(found.record())
        case "csv":
            return output.as_csv(found.rows(), columns=CSV_COLUMNS)
        case _:
            return found.text()


async def look(cluster: Cluster) -> Inventory:
    """The inventory as it is now. Raises `MissingError` where Dovetail is not installed."""
    try:
        gpunodes, (pods, all_of_them), scheduler = await asyncio.gather(
            cluster.client.list(GPUNODES, as_type=GPUNode), _pods(cluster), scheduler_health.scheduler_status(cluster)
        )
    except NotFound as error:
        raise MissingError("this cluster has no GPUNodes: install Dovetail's chart, or name another cluster") from error
    found = take(gpunodes.items, pods, scheduler=scheduler, namespace=cluster.namespace)
    return replace(found, of_all=all_of_them)


def tell_what_lacks(found: Inventory) -> None:
    """Say on standard error what the reader may not see: once, also of what is looked at again and again."""
    if not found.of_all:
        print("dovetail: you may not list the pods of other namespaces: their use is not shown", file=sys.stderr)


async def _pods(cluster: Cluster) -> tuple[list[Pod], bool]:
    """The pods, and whether these are all: better a part than nothing, as long as it is said."""
    try:
        return (await cluster.client.list(PODS, as_type=Pod)).items, True
    except Forbidden:
        return (await cluster.client.list(PODS, as_type=Pod, namespace=cluster.namespace)).items, False
