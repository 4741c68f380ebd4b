"""Pods of which several containers ask for devices: each part gets its own shares, all of them on one node. Pure.

Parts are given devices one after the other, the one with the fewest to choose from first, each on what those before it
have left. The fullest device that fits is taken where the policy's own choice would leave the last part without: so a
node is called fit exactly where `devices` finds a way, and what is found never promises a device twice. Where only a
cleverer order would do, the node is refused.
"""

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from dovetail.engine.claims import Ask, DeviceClaim
from dovetail.engine.columns import MODE_CODES, NO_MODE, Bools, Columns
from dovetail.engine.devices import best_fit_values
from dovetail.requests import WHOLE_MILLI, GPURequest

if TYPE_CHECKING:
    from dovetail.engine.fit import DeviceValues, Judgement


def requests_of(ask: Ask) -> tuple[GPURequest, ...]:
    """What each container asks, in the order in which a claim lists their devices."""
    return () if ask.gpu is None else (ask.gpu, *ask.more)


def devices(judged: "Judgement", row: int, *, values: "DeviceValues") -> tuple[DeviceClaim, ...]:
    """The devices of all parts on a node that fits, part after part."""
    alone = _row(judged.columns, row)
    found = _given(judged, row, columns=alone, values=values) or _packed(judged, row, columns=alone)
    assert found is not None, "a node that fits has devices"
    return found


def without_room(judged: "Judgement", parts: list["Judgement"]) -> tuple[Bools, Bools]:
    """Nodes on which the parts do not fit together, each of shape [n]: not even if nothing stood there, and now."""
    never = np.zeros(len(judged.nodes), dtype=np.bool_)
    now = np.zeros(len(judged.nodes), dtype=np.bool_)
    total = sum(request.count for request in requests_of(judged.ask))
    free = np.stack([part.free_devices.sum(axis=1) for part in parts])
    wanted = np.array([request.count for request in requests_of(judged.ask)])[:, np.newaxis]
    each_alone = np.all(free >= wanted, axis=0)
    # Whoever comes last finds devices that nobody touched.
    plenty = np.all(free >= total, axis=0)
    for row in np.flatnonzero(each_alone & ~plenty).tolist():
        now[row] = _packed(judged, row, columns=_row(judged.columns, row)) is None
        if now[row]:
            never[row] = _packed(judged, row, columns=_emptied(_row(judged.columns, row))) is None
    return never, now


def _packed(judged: "Judgement", row: int, *, columns: Columns) -> tuple[DeviceClaim, ...] | None:
    """With the fullest devices that fit, whatever the policy."""
    tight = judged.part(replace(judged.ask, policy="Pack"), nodes=[judged.nodes[row]], columns=columns)
    return _given(tight, 0, columns=columns, values=best_fit_values)


def _given(
    judged: "Judgement", row: int, *, columns: Columns, values: "DeviceValues"
) -> tuple[DeviceClaim, ...] | None:
    requests = requests_of(judged.ask)
    nodes = [judged.nodes[row]]
    asks = [replace(judged.ask, gpu=request, more=()) for request in requests]
    spare = [int(judged.part(ask, nodes=nodes, columns=columns).free_devices.sum()) for ask in asks]
    found: dict[int, tuple[DeviceClaim, ...]] = {}
    for at in sorted(range(len(asks)), key=lambda at: spare[at] - requests[at].count):
        part = judged.part(asks[at], nodes=nodes, columns=columns)
        if int(part.free_devices.sum()) < requests[at].count:
            return None
        found[at] = part.devices(0, values=values)
        columns = _after(part, found[at])
    return tuple(device for at in range(len(asks)) for device in found[at])


def _after(part: "Judgement", taken: tuple[DeviceClaim, ...]) -> Columns:
    """The columns of the one node once these devices are promised too; the ledger counts claims in the same way."""
    columns, ask = part.columns, part.ask
    at = np.isin(columns.index, [device.index for device in taken]) & columns.present
    share = taken[0].share_milli
    overlap = ask.mode == "TimeShared"
    left = np.minimum(columns.share_left, WHOLE_MILLI - share) if overlap else columns.share_left - share
    memory = np.zeros_like(columns.promised)
    for device in taken:
        memory[at & (columns.index == device.index)] = device.memory_mib
    return replace(
        columns,
        share_left=np.where(at, left, columns.share_left),
        promised=columns.promised + memory,
        tenants=columns.tenants + at,
        training=columns.training + (at if ask.workload == "Training" else 0),
        inference=columns.inference + (at if ask.workload == "Inference" else 0),
        guard=np.where(at, np.minimum(columns.guard, part.guard_fraction), columns.guard),
        mode=np.where(at, MODE_CODES[ask.mode], columns.mode),
    )


def _emptied(columns: Columns) -> Columns:
    """As if nothing were promised and nobody strange were there."""
    nothing = np.zeros_like(columns.tenants)
    return replace(
        columns,
        share_left=np.full_like(columns.share_left, WHOLE_MILLI),
        promised=nothing,
        foreign=nothing,
        tenants=nothing,
        training=nothing,
        inference=nothing,
        guard=np.ones_like(columns.guard),
        mode=np.full_like(columns.mode, NO_MODE),
    )


def _row(columns: Columns, row: int) -> Columns:
    return Columns(**{field.name: getattr(columns, field.name)[[row]] for field in fields(columns)})
