"""What ginfo prints: nodes and devices as text and for programs."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from dovetail.api.builtin import Pod
from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUNODES, PODS
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.query.jobs.places import places_text
from dovetail.query.nodes import job_uses
from dovetail.query.nodes.inventory import DeviceUse, Inventory, NodeSoftware, enforcing, take
from dovetail.query.nodes.rows import inventory_row, node_rows
from dovetail.query.nodes.tenants import tenant_counts
from dovetail_cli.cluster import scheduler_health
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import MissingError

CSV_COLUMNS: Final = (
    "node", "index", "model", "uuid", "status", "memory_used_mib", "memory_total_mib", "utilization",
    "temperature_celsius", "power_watts", "compute_capability", "driver_version", "runtime_version", "training",
    "inference", "unspecified",
)  # fmt: skip
JOB_COLUMNS: Final = ("HOLDER", "NAMESPACE", "KIND", "GPUS", "MEMORY_MIB", "DEVICES")


def text(found: Inventory) -> str:
    """For people. On a cluster with one node, its devices begin at the margin."""
    if len(found.nodes) == 1:
        ((node, uses),) = found.nodes.items()
        return "\n".join([*_summary(found), *_about(found, node=node), "", *_devices(found, uses=uses)])
    lines = _summary(found)
    for node, uses in found.nodes.items():
        inner = [*_about(found, node=node), *_devices(found, uses=uses)]
        lines += ["", f"Node {node}", *(f"  {line}" for line in inner)]
    return "\n".join(lines)


def text_by_job(found: Inventory) -> str:
    """A line for each job with what it holds, and the devices that nothing holds."""
    one_node = len(found.nodes) == 1
    lines = [*_summary(found), "", output.render(job_rows(found), columns=JOB_COLUMNS, form="table")]
    free = [(node, index) for node, indexes in job_uses.available(found).items() for index in indexes]
    return "\n".join([*lines, "", f"Available: {places_text(free, one_node=one_node) or 'none'}"])


def rows(found: Inventory) -> list[dict[str, Any]]:
    """One flat row for each device, for CSV."""
    return [
        {
            "node": node.name,
            **msgspec.to_builtins(device),
            **msgspec.to_builtins(device.tenants),
            "driver_version": node.driver_version,
            "runtime_version": node.runtime_version,
        }
        for node in node_rows(found)
        for device in node.devices
    ]


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


def _about(found: Inventory, *, node: str) -> list[str]:
    """What the agent reports of the node itself."""
    software = found.software.get(node, NodeSoftware())
    of_nvidia = all(use.device.vendor == "nvidia" for use in found.nodes[node])
    versions = {"Driver": software.driver, "CUDA" if of_nvidia else "Runtime": software.runtime}
    return [
        f"Enforcement: {enforcing(software.enforcement)}",
        *(f"{name}: {version}" for name, version in versions.items() if version),
    ]


def _devices(found: Inventory, *, uses: Sequence[DeviceUse]) -> list[str]:
    return [line for use in uses for line in _device_lines(use, namespace=found.namespace)]


def _device_lines(use: DeviceUse, *, namespace: str) -> list[str]:
    device, status = use.device, use.status(namespace=namespace)
    colour = "green" if status == "Available" else "yellow" if status.startswith("In use") else "red"
    lines = [
        f"GPU {device.index}: {device.model}",
        f"  UUID: {device.uuid}",
        f"  Status: {output.paint(status, colour=colour)}",
        f"  Memory: {device.used_mib}/{device.memory_mib} MiB",
        f"  Utilization: {device.utilization:.0%}",
        f"  Temperature: {_or_not(device.temperature_celsius, unit='C')}",
        f"  Power: {_or_not(device.power_watts, unit='W')}",
    ]
    more = {"Compute capability": device.compute_capability, "Tenants": str(tenant_counts(use.holders))}
    return [*lines, *(f"  {name}: {value}" for name, value in more.items() if value)]


def _or_not(value: int | None, *, unit: str) -> str:
    return "not available" if value is None else f"{value} {unit}"


def show(*, by_job: bool, form: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> str:
    """Look, and return the text to print: by node, or grouped by job."""
    found = work(read_inventory, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)
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
            return text_by_job(found) if by_job else text(found)


async def read_inventory(cluster: Cluster) -> Inventory:
    """The inventory as it is now. Raises `MissingError` where Dovetail is not installed."""
    try:
        gpunodes, (pods, all_of_them), scheduler = await asyncio.gather(
            cluster.client.list(GPUNODES, as_type=GPUNode), _pods(cluster), scheduler_health.scheduler_status(cluster)
        )
    except NotFound as error:
        raise MissingError("this cluster has no GPUNodes: install Dovetail's chart, or name another cluster") from error
    found = take(gpunodes.items, pods=pods, scheduler=scheduler, namespace=cluster.namespace)
    return replace(found, of_all=all_of_them)


def print_missing(found: Inventory) -> None:
    """Print to standard error what the reader may not see; once, even if the table is redrawn."""
    if not found.of_all:
        print("dovetail: you may not list the pods of other namespaces: their use is not shown", file=sys.stderr)


async def _pods(cluster: Cluster) -> tuple[list[Pod], bool]:
    """The pods, and whether these are all: better a part than nothing, as long as it is said."""
    try:
        return (await cluster.client.list(PODS, as_type=Pod)).items, True
    except Forbidden:
        return (await cluster.client.list(PODS, as_type=Pod, namespace=cluster.namespace)).items, False
