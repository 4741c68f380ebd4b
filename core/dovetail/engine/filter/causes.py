"""Why nodes do not fit: the causes in the order in which they are reported, each with the nodes that it excludes.

The order runs from what can never change (no GPU, another model) to what changes when a tenant leaves (busy, short of
memory). A node is reported with the first cause that excludes it.
"""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.api.reasons.refusals import NEVER_TOGETHER, NOT_TOGETHER_NOW
from dovetail.engine.filter import multi_container
from dovetail.engine.filter.feasibility import Feasibility, some
from dovetail.engine.model.columns import MODE_CODES, NO_MODE, Bools, Ints, count_devices
from dovetail.engine.model.refusals import RefusalKind

# The first causes concern the node itself: it is unknown or not ready, or it is cordoned.
NODE_CAUSES: Final = 2


@dataclass(slots=True)
class Cause:
    """One cause. `container` is set where it concerns one container of several.

    kind        what it is called
    nodes       the nodes that it excludes, [n]
    left        how many devices of each node pass this cause and those before it, for the message, [n]
    container   the masks of the container that it concerns
    says        replaces the usual words of the kind
    """

    kind: RefusalKind
    nodes: Bools
    left: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    container: Feasibility | None = None
    says: Sentence = NOTHING


def causes_of(masks: Feasibility) -> list[Cause]:
    """All causes in the order in which they are reported."""
    columns, ask = masks.columns, masks.ask
    causes = [
        Cause("Unhealthy", ~columns.known | columns.blocked),
        Cause("Cordoned", columns.node_cordoned),
    ]
    if ask.gpu is not None:
        causes += _device_causes(masks)
        causes += _container_causes(masks) if ask.more else ()
    return [*causes, Cause("CPUOrMemoryShort", ~masks.host_fits)]


def _device_causes(masks: Feasibility) -> list[Cause]:
    return [*_lasting_causes(masks), *_capacity_causes(masks)]


def _lasting_causes(masks: Feasibility) -> list[Cause]:
    """What no departing tenant changes: no devices, of another kind, too few, too small, or out of service."""
    causes = [
        Cause("NoGPU", ~some(masks.columns.present)),
        Cause("NotManaged", ~masks.right_kind),
        Cause("WrongVendor", ~some(masks.of_vendor)),
        Cause("WrongModel", ~some(masks.candidates)),
        _short_of(masks, kind="TooFewDevices", ok=masks.sized_devices),
        Cause("DeviceIndex", ~some(masks.indexed_devices)),
        _short_of(masks, kind="Unhealthy", ok=masks.indexed_devices & masks.columns.healthy),
        _short_of(masks, kind="Cordoned", ok=masks.in_service),
    ]
    if masks.ask.resource:
        causes.append(Cause("Cordoned", masks.offers_cordoned))
    return causes


def _capacity_causes(masks: Feasibility) -> list[Cause]:
    """What changes when a tenant leaves, each counted over the devices that pass the causes before it."""
    mode = masks.columns.mode
    exclusive = masks.ask.mode == "Exclusive"
    conditions: list[tuple[RefusalKind, Bools]] = [
        ("DevicesBusy", mode == NO_MODE if exclusive else mode != MODE_CODES["Exclusive"]),
        ("ModeConflict", masks.mode_free),
        ("TenantLimit" if masks.ask.mode == "TimeShared" else "ShareShort", masks.share_free),
        ("TenantLimit", masks.tenants_free),
        ("MemoryGuard", masks.memory_free),
    ]
    causes = [_held(masks)]
    left = masks.in_service
    for kind, condition in conditions:
        left = left & condition
        causes.append(_short_of(masks, kind=kind, ok=left))
    return causes


def _container_causes(masks: Feasibility) -> list[Cause]:
    """What excludes the pod's further containers, each by itself, and then all containers together."""
    asks = [replace(masks.ask, gpu=gpu, more=()) for gpu in masks.ask.more]
    others = [masks.for_container(ask, nodes=masks.nodes, columns=masks.columns) for ask in asks]
    causes = [replace(cause, container=other) for other in others for cause in _device_causes(other)]
    never, now = multi_container.without_room(masks)
    kind: RefusalKind = "DevicesBusy" if masks.ask.mode == "Exclusive" else "ShareShort"
    return [
        *causes,
        Cause("TooFewDevices", never, says=NEVER_TOGETHER(containers=1 + len(others))),
        Cause(kind, now, says=NOT_TOGETHER_NOW(containers=1 + len(others))),
    ]


def _held(masks: Feasibility) -> Cause:
    """Nodes that would fit if the holds on their devices ended. A device counts where all its tenants are holds."""
    columns = masks.columns
    only_held = masks.in_service & (columns.held > 0) & (columns.held == columns.tenants)
    free = count_devices(masks.free_devices)
    with_held = count_devices(masks.free_devices | only_held)
    count = masks.gpu.count
    return Cause("Held", (free < count) & (with_held >= count), free)


def _short_of(masks: Feasibility, *, kind: RefusalKind, ok: Bools) -> Cause:
    left = count_devices(ok)
    return Cause(kind, left < masks.gpu.count, left)
