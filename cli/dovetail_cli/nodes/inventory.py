"""What ginfo prints: nodes and devices as text and for programs."""

import asyncio
import sys
from dataclasses import replace
from typing import Any, Final

import msgspec

from dovetail.api.builtin import Pod
from dovetail.api.gpunode import Enforcement, GPUNode
from dovetail.api.resources import GPUNODES, PODS
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.query.nodes.inventory import DeviceUse, Inventory, enforcing, take
from dovetail.query.nodes.rows import inventory_row, node_rows
from dovetail_cli.cluster import scheduler_health
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import MissingError

CSV_COLUMNS: Final = (
    "node", "index", "model", "uuid", "status", "memory_used_mib", "memory_total_mib", "utilization",
    "temperature_celsius", "power_watts",
)  # fmt: skip


def text(found: Inventory) -> str:
    """For people."""
    devices = found.devices
    lines = [
        f"Scheduler Status: {found.scheduler}",
        f"Total GPUs: {len(devices)}",
        f"Available GPUs: {sum(device.available for device in devices)}",
    ]
    if not devices:
        lines.append("No node reports a GPU.")
    for node, uses in found.nodes.items():
        lines += ["", f"Node {node}", f"  Enforcement: {enforcing(found.enforcement.get(node, Enforcement()))}"]
        for use in uses:
            lines += _device_lines(use, namespace=found.namespace)
    return "\n".join(lines)


def rows(found: Inventory) -> list[dict[str, Any]]:
    """One flat row for each device, for CSV."""
    return [{"node": node.name, **msgspec.to_builtins(device)} for node in node_rows(found) for device in node.devices]


def _device_lines(use: DeviceUse, *, namespace: str) -> list[str]:
    device, status = use.device, use.status(namespace=namespace)
    colour = "green" if status == "Available" else "yellow" if status.startswith("In use") else "red"
    return [
        f"  GPU {device.index}: {device.model}",
        f"    UUID: {device.uuid}",
        f"    Status: {output.paint(status, colour=colour)}",
        f"    Memory: {device.used_mib}/{device.memory_mib} MiB",
        f"    Utilization: {device.utilization:.0%}",
        f"    Temperature: {_or_not(device.temperature_celsius, unit='C')}",
        f"    Power: {_or_not(device.power_watts, unit='W')}",
    ]


def _or_not(value: int | None, *, unit: str) -> str:
    return "not available" if value is None else f"{value} {unit}"


def show(*, form: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> str:
    """Look, and return the text to print."""
    found = work(read_inventory, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)
    print_missing(found)
    match form:
        case "json":
            return output.as_json(msgspec.to_builtins(inventory_row(found)))
        case "yaml":
            return output.as_yaml(msgspec.to_builtins(inventory_row(found)))
        case "csv":
            return output.as_csv(rows(found), columns=CSV_COLUMNS)
        case _:
            return text(found)


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
