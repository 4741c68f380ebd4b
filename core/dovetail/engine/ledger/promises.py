"""The claims of a ledger, and the columns of a node that follow from the claims on it.

Pure: the columns are computed from scratch each time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.engine.ledger.node_table import NodeTable
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.columns import MODE_CODES, NO_MODE, Bools, Floats, Ints
from dovetail.engine.model.settings import Limits
from dovetail.gpu.request import WHOLE_MILLI


@dataclass(frozen=True, slots=True)
class Entry:
    """A claim. With `hold_until`, it is a hold, which ends at that time."""

    claim: Claim
    hold_until: float | None = None

    @property
    def is_hold(self) -> bool:
        """Whether the claim is a hold."""
        return self.hold_until is not None


class ClaimTable:
    """The claims by key and by node. What changes it says for which nodes the promises have to be computed again."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._on_node: dict[str, set[str]] = {}

    def put(self, entry: Entry) -> tuple[str, ...]:
        """Store a claim in place of the one with its key. Returns the nodes whose promises change."""
        claim, known = entry.claim, self._entries.get(entry.claim.key)
        if known is not None and known.claim == claim and known.is_hold == entry.is_hold:
            self._entries[claim.key] = entry
            return ()
        left = self.remove(claim.key) if known is not None and known.claim.node != claim.node else None
        self._entries[claim.key] = entry
        self._on_node.setdefault(claim.node, set()).add(claim.key)
        return (claim.node,) if left is None else (left.node, claim.node)

    def remove(self, key: str) -> Claim | None:
        """Remove the claim `key` and return it: the promises of its node change. None when there is none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        keys = self._on_node[entry.claim.node]
        keys.discard(key)
        if not keys:
            del self._on_node[entry.claim.node]
        return entry.claim

    def get(self, key: str) -> Entry | None:
        """The claim `key`."""
        return self._entries.get(key)

    def all(self) -> Iterable[Entry]:
        """All claims, including holds."""
        return self._entries.values()

    def on(self, node: str, *, without: str = "") -> list[Entry]:
        """The claims on a node, without the claim `without`."""
        return [self._entries[key] for key in self._on_node.get(node, ()) if key != without]

    def nodes(self) -> Iterable[str]:
        """The nodes with claims."""
        return self._on_node

    def copy(self) -> "ClaimTable":
        """An independent table with the same claims."""
        other = ClaimTable()
        other._entries = dict(self._entries)
        other._on_node = {node: set(keys) for node, keys in self._on_node.items()}
        return other


class NodeTotals:
    """Totals by slot. Plain lists: for a few devices, updated one by one, they are faster than arrays."""

    def __init__(self, movable: list[bool]) -> None:
        width = len(movable)
        self._movable = movable
        self.share, self._stays, self.aside, self.tenants, self.mode, self.held = ([0] * width for _ in range(6))
        self.of_workload = {workload: [0] * width for workload in (None, "Training", "Inference")}
        self.guard = [1.0] * width

    @property
    def promised(self) -> list[int]:
        """Memory in use at one time, in MiB: what stays on the device, and the largest tenant that moves in turns."""
        return [stays + aside for stays, aside in zip(self._stays, self.aside, strict=True)]

    @property
    def taken(self) -> Bools:
        """The slots with a tenant, [d]."""
        return np.array(self.tenants, dtype=np.int64) > 0

    def add(self, claim: Claim, *, slots: Mapping[str, int], fraction: float, is_hold: bool) -> None:
        """Add a claim's named devices by the slots of their UUIDs. Devices that the node does not report are skipped.

        `fraction` is the part of a device's memory that the claim's guard allows to promise.
        """
        # Time-shared tenants overlap in compute: together they take one device at most.
        overlap = claim.mode == "TimeShared"
        for device in claim.devices:
            slot = slots.get(device.uuid)
            if slot is None:
                continue
            self.share[slot] = (
                max(self.share[slot], device.share_milli) if overlap else (self.share[slot] + device.share_milli)
            )
            if claim.movable and self._movable[slot]:
                self.aside[slot] = max(self.aside[slot], device.memory_mib)
            else:
                self._stays[slot] += device.memory_mib
            self.tenants[slot] += 1
            self.guard[slot] = min(self.guard[slot], fraction)
            self.of_workload[claim.workload][slot] += 1
            self.mode[slot] = self._mode_with(claim, mode=self.mode[slot])
            self.held[slot] += is_hold

    def _mode_with(self, claim: Claim, *, mode: int) -> int:
        """The mode of a device with one more tenant. One whose tenants have several modes takes no other tenant.

        A hold can be older than what the ledger knows of the pods on its device, such as in an extender that has just
        started. Without this, the order of the claims would decide which mode the device seems to have.
        """
        code = MODE_CODES[claim.mode]
        return code if mode in {NO_MODE, code} else MODE_CODES["Exclusive"]

    def add_unnamed(self, *, memory_mib: Mapping[int, int], is_hold: bool) -> None:
        """Add whole devices whose ids are unknown, on the slots that stand in for them, with their memory in MiB."""
        for slot, mib in memory_mib.items():
            self.share[slot] = WHOLE_MILLI
            self._stays[slot] = mib
            self.tenants[slot] += 1
            self.mode[slot] = MODE_CODES["Exclusive"]
            self.held[slot] += is_hold

    def withdraw(self, slots: Ints) -> None:
        """Mark devices that the device plugin does not offer now. `slots` [n] are slot numbers."""
        for slot in slots.tolist():
            self.mode[slot] = MODE_CODES["Exclusive"]


def promises(
    entries: Sequence[Entry], *, table: NodeTable, row: int, limits: Limits, profile: str
) -> dict[str, list[int] | list[float] | Floats | int]:
    """The columns of the node in this `row` with these claims: of a device [d], of the node one number.

    `profile` is that of the ledger's devices, empty for GPUs.
    """
    columns = table.columns
    totals = _totals(entries, table=table, row=row, limits=limits, profile=profile)
    measured = not table.unmeasured_reason(table.names[row])
    return {
        "cpu_free": int(columns["cpu_milli"][row]) - sum(entry.claim.cpu_milli for entry in entries),
        "memory_free": int(columns["memory_mib"][row]) - sum(entry.claim.memory_mib for entry in entries),
        "pods_free": int(columns["pods"][row]) - len(entries),
        "share_left": [WHOLE_MILLI - share for share in totals.share],
        "promised": totals.promised,
        "aside": totals.aside,
        "tenants": totals.tenants,
        "mode": totals.mode,
        "held": totals.held,
        "guard": totals.guard,
        "training": totals.of_workload["Training"],
        "inference": totals.of_workload["Inference"],
        "utilization": table.utilization.counted(row, tenants=np.array(totals.tenants, dtype=np.int64))
        if measured
        else [min(1.0, max(0.0, share / WHOLE_MILLI)) for share in totals.share],
    }


def _totals(entries: Sequence[Entry], *, table: NodeTable, row: int, limits: Limits, profile: str) -> NodeTotals:
    columns = table.columns
    slots = {device.uuid: slot for slot, device in enumerate(table.devices(table.names[row]))}
    totals = NodeTotals(columns["movable"][row].tolist())
    for entry in entries:
        # Most claims of a node are of pods without GPUs.
        if entry.claim.devices:
            fraction = _guard_fraction(entry.claim, limits=limits)
            totals.add(entry.claim, slots=slots, fraction=fraction, is_hold=entry.is_hold)
    for entry in entries:
        if unnamed := entry.claim.unnamed_of(profile):
            taken = table.unnamed_slots(row, taken=totals.taken, count=unnamed)
            memory = columns["total"][row, taken]
            memory_of = dict(zip(taken.tolist(), memory.tolist(), strict=True))
            totals.add_unnamed(memory_mib=memory_of, is_hold=entry.is_hold)
    if columns["resource"][row]:
        plugins = sum(entry.claim.of_plugin(profile) for entry in entries if entry.claim.resource)
        totals.withdraw(table.withdrawn_slots(row, taken=totals.taken, promised=plugins))
    return totals


def _guard_fraction(claim: Claim, *, limits: Limits) -> float:
    if claim.mode == "Exclusive":
        return 1.0
    return limits.guard_fraction if claim.guard_fraction is None else claim.guard_fraction
