"""The columns of a node that follow from the claims on it. Pure: they are computed from scratch each time."""

from collections.abc import Sequence

import numpy as np

from dovetail.engine.ledger.claim_table import Entry
from dovetail.engine.ledger.node_table import NodeTable
from dovetail.engine.ledger.node_totals import NodeTotals
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.columns import Floats
from dovetail.engine.model.settings import Limits
from dovetail.gpu.request import WHOLE_MILLI


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
