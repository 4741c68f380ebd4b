"""What `dovetail top` shows: a summary, then devices, or nodes if they are too many. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.answers.inventory import DeviceUse, Inventory
from dovetail.answers.node_rows import (
    NONE,
    memory_text,
    power_text,
    temperature_text,
    tenant_counts,
    totals,
    utilization_text,
)
from dovetail.answers.nodes import TenantRow, Totals
from dovetail.api.gpujob import GPUJob
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.query.nodes.overview import job_counts, overview
from dovetail_cli.nodes import inventory
from dovetail_cli.ui import output

CSV_COLUMNS: Final = (*inventory.CSV_COLUMNS, "held_by")
_DEVICES: Final = ("NODE", "GPU", "MODEL", "UTIL", "MEMORY", "TEMP", "POWER", "TENANTS", "HELD BY")
_NODES: Final = ("NODE", "GPUS", "AVAILABLE", "UTIL", "MEMORY", "TENANTS", "HELD BY")
# The line on the whole, an empty one, the columns' names, and the line on what is left out.
_AROUND: Final = 4
_BAR_CELLS: Final = 10
_MOST_JOBS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """One screen.

    `jobs` are those that the reader may see; only waiting and running ones count.
    """

    now: datetime
    inventory: Inventory
    jobs: Sequence[GPUJob] = ()
    called: Mapping[tuple[str, int], str] = field(default_factory=dict)

    def lines(self, *, height: int | None = None, width: int | None = None) -> list[str]:
        """The screen as text; everything without a height, else as much as it has room for."""
        room = None if height is None else max(1, height - _AROUND)
        devices = self.inventory.devices
        if room is None or len(devices) <= room:
            table = [list(_DEVICES), *map(self._device, devices)]
            left = 0
        else:
            nodes = sorted(self.inventory.nodes, key=lambda node: -(self._sums(node).utilization or 0.0))
            table = [list(_NODES), *(self._node(node) for node in nodes[:room])]
            left = max(0, len(nodes) - room)
        lines = [self._whole(), "", *output.table(table).splitlines()]
        lines += [f"… and {left} nodes more that do less"] if left else []
        return lines if width is None else [line[:width] for line in lines]

    def record(self) -> dict[str, Any]:
        """For programs."""
        found: dict[str, Any] = msgspec.to_builtins(overview(self.inventory, jobs=self.jobs, now=self.now))
        return found

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a device."""
        uses = self.inventory.devices
        return [
            {**row, "held_by": self._holders(use.holders)}
            for row, use in zip(inventory.rows(self.inventory), uses, strict=True)
        ]

    def _whole(self) -> str:
        sums, jobs = totals(self.inventory.devices), job_counts(self.jobs)
        if not self.inventory.devices:
            return f"{self.now:%H:%M:%S} UTC  No node reports a GPU."
        instances = (
            f"{sums.total_mig_instances} MIG instances: {sums.held_mig_instances} held, "
            f"{sums.available_mig_instances} available; "
        )
        return (
            f"{self.now:%H:%M:%S} UTC  {len(self.inventory.nodes)} nodes, {sums.total_gpus} GPUs: "
            f"{sums.held_gpus} held, {sums.available_gpus} available; {_percent(sums.utilization)} busy, "
            f"{instances if sums.total_mig_instances else ''}"
            f"{_memory(sums)} in use; tenants: {str(sums.tenants) or 'none'}; "
            f"jobs: {jobs.running} run, {jobs.waiting} wait"
        )

    def _sums(self, node: str) -> Totals:
        return totals(self.inventory.nodes[node].uses)

    def _device(self, use: DeviceUse) -> list[str]:
        held = self._holders(use.holders)
        status = use.reason if held else use.status(namespace=self.inventory.namespace)
        return [
            use.node,
            str(use.device.index),
            use.device.model,
            _load(use.utilization, text=utilization_text(use)),
            memory_text(use.used_mib, memory_mib=use.device.memory_mib, stale=use.stale),
            temperature_text(use),
            power_text(use),
            str(tenant_counts(use.holders)) or NONE,
            "; ".join(filter(None, [held, status])),
        ]

    def _node(self, node: str) -> list[str]:
        uses, sums = self.inventory.nodes[node].uses, self._sums(node)
        held = dict.fromkeys(self._holder(holder, share=False) for use in uses for holder in use.holders)
        more = f", … ({len(held)} in all)" if len(held) > _MOST_JOBS else ""
        return [
            node,
            _with_instances(sums.total_gpus, instances=sums.total_mig_instances),
            _with_instances(sums.available_gpus, instances=sums.available_mig_instances),
            _load(sums.utilization, text=_percent(sums.utilization)),
            _memory(sums),
            str(sums.tenants) or "-",
            ", ".join(list(held)[:_MOST_JOBS]) + more,
        ]

    def _holders(self, holders: Sequence[TenantRow]) -> str:
        return ", ".join(self._holder(holder) for holder in holders)

    def _holder(self, holder: TenantRow, *, share: bool = True) -> str:
        """`5 train (ada, 0.5)`: number, name, user, and the share where it is none of the whole."""
        if holder.job is None:
            called = f"pod {holder.namespace}/{holder.pod}"
        else:
            called = self.called.get((holder.namespace, holder.job), f"{holder.job} ({holder.namespace})")
        part = f"{holder.share_milli / WHOLE_MILLI:g}" if share and holder.share_milli != WHOLE_MILLI else ""
        return f"{called} [{part}]" if part else called


def called(jobs: Sequence[GPUJob]) -> dict[tuple[str, int], str]:
    """What jobs are called on the screen: `5 train (ada)`, by namespace and number."""
    found = {}
    for job in jobs:
        if job.status.number is not None:
            user = job.metadata.annotations.get(names.USER)
            who = f" ({user})" if user else ""
            found[job.metadata.namespace, job.status.number] = f"{job.status.number} {job.metadata.name}{who}"
    return found


def _memory(sums: Totals) -> str:
    return f"{sums.memory_used_mib / 1024:.1f}/{sums.memory_total_mib / 1024:.1f} GiB"


def _with_instances(gpus: int, *, instances: int) -> str:
    """`8`; on a node with MIG instances `6 + 14 MIG`."""
    return f"{gpus} + {instances} MIG" if instances else str(gpus)


def _bar(ratio: float) -> str:
    full = min(_BAR_CELLS, max(0, round(ratio * _BAR_CELLS)))
    return "█" * full + "·" * (_BAR_CELLS - full)


def _load(ratio: float | None, *, text: str) -> str:
    return text if ratio is None else f"{_bar(ratio)} {text:>4}"


def _percent(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio:.0%}"
