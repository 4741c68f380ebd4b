"""Pods with several containers that request devices: each container gets its own shares, all on one node. Pure.

Containers get devices one after the other, the most selective and largest first, each from what the earlier ones
leave. If the policy's choice would leave nothing for a later container, the fullest devices that fit are taken
instead. So `without_room` calls a node fit exactly where `choose_devices` finds devices, and no device is promised
twice. A node that would need a cleverer order is refused.
"""

from dataclasses import fields, replace

import numpy as np

from dovetail.api.devices import AllocatedDevice
from dovetail.engine.filter.device_choice import DeviceValues
from dovetail.engine.filter.device_choice import choose_devices as choose_for_one
from dovetail.engine.filter.feasibility import Feasibility
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import MODE_CODES, NO_MODE, Bools, Columns, count_devices
from dovetail.gpu.request import WHOLE_MILLI, GPURequest


def requests_of(ask: Ask) -> tuple[GPURequest, ...]:
    """What each container requests, in the order in which a claim lists their devices."""
    return () if ask.gpu is None else (ask.gpu, *ask.more)


def choose_devices(masks: Feasibility, *, row: int, values: DeviceValues) -> tuple[AllocatedDevice, ...]:
    """The devices of all containers on a node that fits, container by container."""
    nodes, columns = [masks.nodes[row]], _row(masks.columns, row=row)
    found: dict[int, tuple[AllocatedDevice, ...]] = {}
    for at, ask in _asks(masks.ask):
        part = masks.for_container(ask, nodes=nodes, columns=columns)
        if not _enough(part)[0]:
            return _packed_devices(masks.for_container(masks.ask, nodes=nodes, columns=_row(masks.columns, row=row)))
        found[at] = choose_for_one(part.free_of(0), values=values)
        columns = _after(part, at=np.isin(columns.index, [device.index for device in found[at]]) & columns.present)
    return tuple(device for at in sorted(found) for device in found[at])


def without_room(masks: Feasibility) -> tuple[Bools, Bools]:
    """Nodes where the containers do not fit together: not even on an empty node, and not now; each [n]."""
    now = ~_packed(masks, columns=masks.columns)[0]
    never = ~_packed(masks, columns=_emptied(masks.columns))[0]
    return never, now


def _packed(masks: Feasibility, *, columns: Columns) -> tuple[Bools, dict[int, tuple[Feasibility, Bools]]]:
    """Which nodes take all containers on the fullest devices that fit, and what each gets, by its position."""
    fits = np.ones(len(masks.nodes), dtype=np.bool_)
    taken = {}
    for at, ask in _asks(masks.ask):
        part = masks.for_container(ask, nodes=masks.nodes, columns=columns)
        fits &= _enough(part)
        mask = _fullest(part)
        taken[at] = (part, mask)
        columns = _after(part, at=mask)
    return fits, taken


def _packed_devices(alone: Feasibility) -> tuple[AllocatedDevice, ...]:
    fits, taken = _packed(alone, columns=alone.columns)
    assert fits[0], "a node that fits has devices"
    places = (taken[at] for at in sorted(taken))
    return tuple(device for part, mask in places for device in part.free_of(0).claims(np.flatnonzero(mask[0]).tolist()))


def _asks(ask: Ask) -> list[tuple[int, Ask]]:
    """Each container as an ask with its position, in the order in which they choose."""
    requests = requests_of(ask)

    def choosiest(at: int) -> tuple[bool, bool, int, int, int, int]:
        request = requests[at]
        anything = not request.names_models and request.vendor is None
        memory = -(request.memory_percent or 0), -(request.memory_mib or 0)
        return request.device_index is None, anything, -request.share_milli, *memory, -request.count

    return [(at, replace(ask, gpu=requests[at], more=())) for at in sorted(range(len(requests)), key=choosiest)]


def _enough(part: Feasibility) -> Bools:
    assert part.ask.gpu is not None, "a container with devices has a request"
    return np.asarray(count_devices(part.free_devices) >= part.ask.gpu.count, dtype=np.bool_)


def _fullest(part: Feasibility) -> Bools:
    """The devices with the least room that fit, as many as requested, [n, d]."""
    assert part.ask.gpu is not None, "a container with devices has a request"
    free, columns = part.free_devices, part.columns
    room = np.where(free, columns.share_left * 1_000_000 + part.free_mib, np.iinfo(np.int64).max)
    first = np.argsort(room, axis=1, kind="stable")[:, : part.ask.gpu.count]
    mask = np.zeros_like(free)
    np.put_along_axis(mask, first, True, axis=1)
    return mask & free


def _after(part: Feasibility, *, at: Bools) -> Columns:
    """The columns once a container has the devices `at` [n, d]; the ledger counts claims in the same way."""
    columns, ask = part.columns, part.ask
    assert ask.gpu is not None, "a container with devices has a request"
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
    """The columns without promises and without foreign processes."""
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


def _row(columns: Columns, *, row: int) -> Columns:
    return Columns(**{field.name: getattr(columns, field.name)[[row]] for field in fields(columns)})
