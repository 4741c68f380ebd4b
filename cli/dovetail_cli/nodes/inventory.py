"""What ginfo prints: nodes and devices as text and for programs."""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.answers.inventory import DeviceUse, Inventory, NodeReader, NodeUse, enforcing, take
from dovetail.answers.node_rows import (
    inventory_row,
    memory_text,
    power_text,
    temperature_text,
    tenant_counts,
    totals,
    utilization_text,
)
from dovetail.answers.use import job_uses
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUNODES, NODES, PODS
from dovetail.cluster.availability import lacks_library
from dovetail.cluster.dra_drivers import drivers_now
from dovetail.cluster.staleness import Freshness
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.query.jobs.places import places_text
from dovetail_cli.cluster import scheduler_health, this_machine
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.cluster.release import release_namespace
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import MissingError

CSV_COLUMNS: Final = (
    "node", "index", "model", "uuid", "status", "memory_used_mib", "memory_total_mib", "utilization",
    "temperature_celsius", "power_watts", "compute_capability", "driver_version", "runtime_version", "training",
    "inference", "unspecified",
)  # fmt: skip
_NONE: Final = "not available"
# From so many nodes on, ginfo shows a line for each node.
_MANY_NODES: Final = 5
NODE_COLUMNS: Final = ("NODE", "MODEL", "GPUS", "FREE", "UTIL", "MEMORY_GIB", "STATE")
JOB_COLUMNS: Final = ("HOLDER", "NAMESPACE", "KIND", "GPUS", "MEMORY_MIB", "DEVICES")


def text(found: Inventory) -> str:
    """For people. On a cluster with one node, its devices begin at the margin."""
    if len(found.nodes) == 1:
        (node,) = found.nodes.values()
        return "\n".join([*_summary(found), *_about(node), "", *_devices(found, node=node)])
    lines = _summary(found)
    for node in found.nodes.values():
        inner = [*_about(node), *_devices(found, node=node)]
        lines += ["", f"Node {node.name}", *(f"  {line}" for line in inner)]
    return "\n".join(lines)


def text_of_machine(found: Inventory) -> str:
    """The same in the words of one machine; without a driver of a GPU, that jobs run anyway."""
    if found.nodes and all(lacks_library(node.gpunode) for node in found.nodes.values()):
        return "\n".join([*_summary(found)[:-1], "This machine has no GPU: jobs run on its CPUs."])
    return this_machine.said(text(found))


def text_by_node(found: Inventory) -> str:
    """A line for each node and model, for clusters on which a line for each figure is too much."""
    table = output.render(node_rows(found), columns=NODE_COLUMNS, form="table")
    return "\n".join([*_summary(found), "", table, "", "`ginfo -v` shows each device."])


def node_rows(found: Inventory) -> list[dict[str, Any]]:
    """One row for each node and model of its devices."""
    rows = []
    for node in found.nodes.values():
        models = dict.fromkeys(use.device.model for use in node.uses)
        for model in models:
            uses = [use for use in node.uses if use.device.model == model]
            sums = totals(uses)
            rows.append(
                {
                    "NODE": node.name,
                    "MODEL": model,
                    "GPUS": len(uses),
                    "FREE": sums.available_gpus + sums.available_mig_instances,
                    "UTIL": "-" if sums.utilization is None else f"{100 * sums.utilization:.0f}%",
                    "MEMORY_GIB": f"{_gib(sums.memory_used_mib)}/{_gib(sums.memory_total_mib)}",
                    "STATE": node.reason or _state(uses),
                }
            )
    return rows


def _state(uses: Sequence[DeviceUse]) -> str:
    """How many of a node's devices take no work, and why the first of them does not."""
    closed = [use for use in uses if not use.takes_work]
    if not closed:
        return "ok"
    return f"{len(closed)} of {len(uses)} take no work: {closed[0].reason}"


def _gib(mib: int) -> str:
    return f"{mib / 1024:.0f}"


def text_by_job(found: Inventory) -> str:
    """A line for each job with what it holds, and the devices that nothing holds."""
    one_node = len(found.nodes) == 1
    lines = [*_summary(found), "", output.render(job_rows(found), columns=JOB_COLUMNS, form="table")]
    free = [(node, index) for node, indexes in job_uses.available(found).items() for index in indexes]
    return "\n".join([*lines, "", f"Available: {places_text(free, one_node=one_node) or 'none'}"])


def rows(found: Inventory) -> list[dict[str, Any]]:
    """One flat row for each device, for CSV."""
    return [_csv_row(use, node=node, namespace=found.namespace) for node in found.nodes.values() for use in node.uses]


def _csv_row(use: DeviceUse, *, node: NodeUse, namespace: str) -> dict[str, Any]:
    device, status = use.device, node.gpunode.status
    return {
        "node": use.node,
        "index": device.index,
        "model": device.model,
        "uuid": device.uuid,
        "status": use.status(namespace=namespace),
        "memory_used_mib": use.used_mib,
        "memory_total_mib": device.memory_mib,
        "utilization": use.utilization,
        "temperature_celsius": use.temperature_celsius,
        "power_watts": use.power_watts,
        "compute_capability": device.compute_capability,
        "driver_version": status.driver_version,
        "runtime_version": status.runtime_version,
        **msgspec.structs.asdict(tenant_counts(use.holders)),
    }


def job_rows(found: Inventory) -> list[dict[str, Any]]:
    """One flat row for each job, for tables and CSV."""
    one_node = len(found.nodes) == 1
    return [
        {
            "HOLDER": use.name,
            "NAMESPACE": use.namespace,
            "KIND": (use.workload or "-").lower(),
            "GPUS": f"{use.gpus:g}",
            "MEMORY_MIB": use.memory_mib,
            "DEVICES": places_text(((each.node, each.index) for each in use.devices), one_node=one_node),
        }
        for use in job_uses.job_uses(found)
    ]


def _summary(found: Inventory) -> list[str]:
    devices = found.devices
    gpus = [use for use in devices if not use.device.mig_profile]
    instances = [use for use in devices if use.device.mig_profile]
    lines = [
        f"Scheduler Status: {found.scheduler}",
        f"Total GPUs: {len(gpus)}",
        f"Available GPUs: {sum(use.available for use in gpus)}",
    ]
    if instances:
        lines.append(f"MIG instances: {len(instances)}, {sum(use.available for use in instances)} available")
    return lines if devices else [*lines, "No node reports a GPU."]


def _about(node: NodeUse) -> list[str]:
    """What the agent reports of the node itself, and why none of its devices takes work."""
    status = node.gpunode.status
    of_nvidia = all(use.device.vendor == "nvidia" for use in node.uses)
    versions = {"Driver": status.driver_version, "CUDA" if of_nvidia else "Runtime": status.runtime_version}
    return [
        *([f"Takes no work: {node.reason}"] if node.reason else []),
        *([f"Report: {node.stale}"] if node.stale else []),
        f"Enforcement: {enforcing(status.enforcement)}",
        *(f"{name}: {version}" for name, version in versions.items() if version),
    ]


def _devices(found: Inventory, *, node: NodeUse) -> list[str]:
    return [line for use in node.uses for line in _device_lines(use, namespace=found.namespace)]


def _device_lines(use: DeviceUse, *, namespace: str) -> list[str]:
    device, status = use.device, use.status(namespace=namespace)
    colour = "green" if use.available else "yellow" if use.holders and use.takes_work else "red"
    lines = [
        f"GPU {device.index}: {device.model}",
        f"  UUID: {device.uuid}",
        f"  Status: {output.paint(status, colour=colour)}",
        f"  Memory: {memory_text(use.used_mib, memory_mib=use.device.memory_mib, stale=use.stale)}",
        f"  Utilization: {utilization_text(use, none=_NONE)}",
        f"  Temperature: {temperature_text(use, none=_NONE)}",
        f"  Power: {power_text(use, none=_NONE)}",
    ]
    more = {"Compute capability": device.compute_capability, "Tenants": str(tenant_counts(use.holders))}
    return [*lines, *(f"  {name}: {value}" for name, value in more.items() if value)]


def show(
    *, by_job: bool, verbose: bool, form: str, kubeconfig: str | None, context: str | None, namespace: str | None
) -> str:
    """Look, and return the text to print: by node, or grouped by job."""

    async def read(cluster: Cluster) -> tuple[Inventory, bool]:
        return await read_inventory(cluster), this_machine.is_one(cluster)

    found, one_machine = work(read, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)
    print_missing(found)
    match form:
        case "json" | "yaml":
            value = msgspec.to_builtins(job_uses.job_uses(found) if by_job else inventory_row(found))
            return output.as_json(value) if form == "json" else output.as_yaml(value)
        case "csv" if by_job:
            return output.as_csv(job_rows(found), columns=JOB_COLUMNS)
        case "csv":
            return output.as_csv(rows(found), columns=CSV_COLUMNS)
        case _:
            if by_job:
                return text_by_job(found)
            if one_machine:
                return text_of_machine(found)
            return text_by_node(found) if len(found.nodes) >= _MANY_NODES and not verbose else text(found)


async def read_inventory(cluster: Cluster) -> Inventory:
    """The inventory as it is now. Raises `MissingError` where Dovetail is not installed."""
    try:
        gpunodes, (pods, all_of_them), nodes, reader, scheduler = await asyncio.gather(
            cluster.client.list(GPUNODES, as_type=GPUNode),
            _pods(cluster),
            _nodes(cluster),
            _reader(cluster),
            scheduler_health.scheduler_status(cluster),
        )
    except NotFound as error:
        raise MissingError("this cluster has no GPUNodes: install Dovetail's chart, or name another cluster") from error
    found = take(
        gpunodes.items,
        pods=pods,
        scheduler=scheduler,
        namespace=cluster.namespace,
        nodes=nodes,
        reader=replace(reader, reads_nodes=nodes is not None),
    )
    return replace(found, of_all=all_of_them)


def print_missing(found: Inventory) -> None:
    """Print to standard error what the reader may not see; once, even if the table is redrawn."""
    if not found.of_nodes:
        missing = "whether a node is ready, cordoned or served by another driver is not shown"
        print(f"dovetail: you may not list nodes: {missing}", file=sys.stderr)
    if not found.of_all:
        print("dovetail: you may not list the pods of other namespaces: their use is not shown", file=sys.stderr)


async def _nodes(cluster: Cluster) -> list[Node] | None:
    """The nodes; None where the reader may not list them."""
    try:
        return (await cluster.client.list(NODES, as_type=Node)).items
    except Forbidden:
        return None


async def _reader(cluster: Cluster) -> NodeReader:
    """What judges the nodes: the release's settings and other drivers of GPUs, where readable."""
    # Only where there is a cluster to read: these load NumPy and Pydantic.
    from dovetail.kube.queries.cluster import read_settings
    from dovetail.kube.resource_slices import list_slices

    settings = await read_settings(cluster.client, namespace=await release_namespace(cluster))
    try:
        slices = await list_slices(cluster.client, drivers=names.GPU_DRIVERS)
    except Forbidden:
        slices = []
    freshness = Freshness(max_age_seconds=settings.measurement_max_age, clock=time.monotonic)
    return NodeReader(freshness=freshness, drivers=drivers_now(slices), vendors=settings.vendors)


async def _pods(cluster: Cluster) -> tuple[list[Pod], bool]:
    """The pods, and whether these are all: better a part than nothing, as long as it is said."""
    try:
        return (await cluster.client.list(PODS, as_type=Pod)).items, True
    except Forbidden:
        return (await cluster.client.list(PODS, as_type=Pod, namespace=cluster.namespace)).items, False
