"""Pods of which several containers ask for devices: each part gets its own shares, all of them on one node. Pure.

Parts are given devices one after the other, the choosiest and largest first, each on what those before it have left.
The fullest devices that fit are taken where the policy's own choice would leave a later part without: so a node is
called fit exactly where `devices` finds a way, and what is found never promises a device twice. Where only a cleverer
order would do, the node is refused.
"""

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from dovetail.engine.model.claims import Ask, DeviceClaim
from dovetail.engine.model.columns import MODE_CODES, NO_MODE, Bools, Columns
from dovetail.gpu.request import WHOLE_MILLI, GPURequest

if TYPE_CHECKING:
    from dovetail.engine.filter.fit import DeviceValues, Judgement


def requests_of(ask: Ask) -> tuple[GPURequest, ...]:
    """What each container asks, in the order in which a claim lists their devices."""
    return () if ask.gpu is None else (ask.gpu, *ask.more)


def devices(judged: "Judgement", row: int, *, values: "DeviceValues") -> tuple[DeviceClaim, ...]:
    """The devices of all parts on a node that fits, part after part."""
    nodes, columns = [judged.nodes[row]], _row(judged.columns, row)
    found: dict[int, tuple[DeviceClaim, ...]] = {}
    for at, ask in _asks(judged.ask):
        part = judged.part(ask, nodes=nodes, columns=columns)
        if not _enough(part)[0]:
            return _packed_devices(judged.part(judged.ask, nodes=nodes, columns=_row(judged.columns, row)))
        found[at] = part.devices(0, values=values)
        columns = _after(part, np.isin(columns.index, [device.index for device in found[at]]) & columns.present)
    return tuple(device for at in sorted(found) for device in found[at])


def without_room(judged: "Judgement") -> tuple[Bools, Bools]:
    """Nodes on which the parts do not fit together, each of shape [n]: not even if nothing stood there, and now."""
    now = ~_packed(judged, columns=judged.columns)[0]
    never = ~_packed(judged, columns=_emptied(judged.columns))[0]
    return never, now


def _packed(judged: "Judgement", *, columns: Columns) -> tuple[Bools, dict[int, tuple["Judgement", Bools]]]:
    """Which nodes take all parts on the fullest devices that fit, and what each part gets there, by its place."""
    fits = np.ones(len(judged.nodes), dtype=np.bool_)
    taken = {}
    for at, ask in _asks(judged.ask):
        part = judged.part(ask, nodes=judged.nodes, columns=columns)
        fits &= _enough(part)
        mask = _fullest(part)
        taken[at] = (part, mask)
        columns = _after(part, mask)
    return fits, taken


def _packed_devices(alone: "Judgement") -> tuple[DeviceClaim, ...]:
    fits, taken = _packed(alone, columns=alone.columns)
    assert fits[0], "a node that fits has devices"
    places = (taken[at] for at in sorted(taken))
    return tuple(device for part, mask in places for device in part.claims(0, np.flatnonzero(mask[0]).tolist()))


def _asks(ask: Ask) -> list[tuple[int, Ask]]:
    """Each part as an ask of its own with its place, in the order in which they choose."""
    requests = requests_of(ask)

    def choosiest(at: int) -> tuple[bool, bool, int, int, int]:
        request = requests[at]
        anything = not request.models and request.vendor is None
        return request.device_index is None, anything, -request.share_milli, -(request.memory_mib or 0), -request.count

    return [(at, replace(ask, gpu=requests[at], more=())) for at in sorted(range(len(requests)), key=choosiest)]


def _enough(part: "Judgement") -> Bools:
    assert part.ask.gpu is not None, "a part asks for devices"
    return np.asarray(part.free_devices.sum(axis=1) >= part.ask.gpu.count, dtype=np.bool_)


def _fullest(part: "Judgement") -> Bools:
    """The devices with the least room that fit, as many as are asked, shape [n, d]."""
    assert part.ask.gpu is not None, "a part asks for devices"
    free, columns = part.free_devices, part.columns
    room = np.where(free, columns.share_left * 1_000_000 + part.free_mib, np.iinfo(np.int64).max)
    first = np.argsort(room, axis=1, kind="stable")[:, : part.ask.gpu.count]
    mask = np.zeros_like(free)
    np.put_along_axis(mask, first, True, axis=1)
    return mask & free


def _after(part: "Judgement", at: Bools) -> Columns:
    """The columns once a part has the devices `at`, shape [n, d]; the ledger counts claims in the same way."""
    columns, ask = part.columns, part.ask
    assert ask.gpu is not None, "a part asks for devices"
    share = ask.gpu.share_milli
    overlap = ask.mode == "TimeShared"
    left = np.minimum(columns.share_left, WHOLE_MILLI - share) if overlap else columns.share_left - share
    return replace(
        columns,
        share_left=np.where(at, left, columns.share_left),
        promised=columns.promised + np.where(at, part.given_mib, 0),
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
