"""Which devices of a node a pod gets: the best by its policy, and of several devices the best-connected set. Pure.

The node publishes the links: NVLink ranks before one PCIe switch, before one socket, before the rest. Sets compare by
their worst pair first, because a ring of data is as slow as its slowest link; then by the sum of their links, then by
what the policy says of their devices, then by how few links they take from the devices that stay free.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Final

import numpy as np

from dovetail.engine.filter.feasibility import Feasibility
from dovetail.engine.model.claims import DeviceClaim
from dovetail.engine.model.columns import Floats, Ints
from dovetail.engine.model.inventory import DeviceFacts

# How good each device of a node is, [d], by the masks and the node's row in them; higher is better.
DeviceValues = Callable[[Feasibility, int], Floats]
NVLINK: Final = 3
SWITCH: Final = 2
SOCKET: Final = 1
# Up to this number of sets all are compared (4 of 16 devices are 1,820); beyond it, one set grows from each device.
_MOST_SETS: Final = 2_000
# Values that agree in so many digits count as equal; the first device wins.
_DIGITS: Final = 5


def choose_devices(masks: Feasibility, *, row: int, values: DeviceValues) -> tuple[DeviceClaim, ...]:
    """The devices of a node that fits for an ask of one container."""
    facts = masks.ledger.devices(masks.nodes[row])
    slots = np.flatnonzero(masks.free_devices[row])
    best = choose_slots(slots, count=masks.gpu.count, values=values(masks, row)[slots], facts=facts)
    return masks.claims(row, slots=best)


def choose_slots(slots: Ints, *, count: int, values: Floats, facts: Sequence[DeviceFacts]) -> tuple[int, ...]:
    """The best `count` of the free devices `slots` [n], in rising order. `values` [n]: higher is better."""
    values = np.round(values, _DIGITS)
    free = [facts[slot] for slot in slots.tolist()]
    if count == 1:
        return (int(slots[_best_one(free, values=values)]),)
    links = link_ranks(free)
    if count == len(slots):
        sets = np.arange(count, dtype=np.int64)[np.newaxis]
    elif comb(len(slots), count) <= _MOST_SETS:
        sets = _all_sets(len(slots), count)
    else:
        sets = _grown_sets(links, count=count, values=values)
    best = sets[_first_of_best(sets, links=links, values=values)]
    return tuple(sorted(slots[best].tolist()))


def link_ranks(devices: Sequence[DeviceFacts]) -> Ints:
    """The link rank of each pair of devices, [d, d]; 0 for the worst link and for a device with itself."""
    return np.array([[_rank(one, other=other) for other in devices] for one in devices], dtype=np.int64)


def _rank(one: DeviceFacts, *, other: DeviceFacts) -> int:
    if one is other:
        return 0
    if other.index in one.nvlink:
        return NVLINK
    if other.index in one.switch:
        return SWITCH
    return SOCKET if one.numa_node is not None and one.numa_node == other.numa_node else 0


def _best_one(devices: Sequence[DeviceFacts], *, values: Floats) -> int:
    """The position of the best single device: by value, then by how few links to free devices it takes."""
    best: list[int] = np.flatnonzero(values == values.max()).tolist()
    if len(best) == 1:
        return best[0]
    return min(best, key=lambda at: sum(_rank(devices[at], other=other) for other in devices))


def best_fit_values(masks: Feasibility, row: int) -> Floats:
    """How good each device of a node is without prices, [d]: the emptiest for Spread, else the fullest."""
    columns = masks.columns
    share = columns.share_left[row] / 1000
    room = share + 1e-3 * masks.free_mib[row] / np.maximum(1, columns.total[row])
    turns = columns.tenants[row] if masks.ask.mode == "TimeShared" else 0
    if masks.ask.policy != "Spread":
        return np.asarray(turns - room, dtype=np.float64)
    # A promise counts as load before it is measured.
    load = np.maximum(columns.utilization[row], 1 - share)
    return np.asarray(1e-2 * room - load - turns, dtype=np.float64)


def _first_of_best(sets: Ints, *, links: Ints, values: Floats) -> int:
    """The best of the sets of positions [c, k]; the first of equal ones."""
    inside = np.zeros((len(sets), len(values)), dtype=np.float32)
    np.put_along_axis(inside, sets, 1.0, axis=1)
    pairs = sets.shape[1] * (sets.shape[1] - 1)
    worst = np.zeros(len(sets))
    for rank in (SOCKET, SWITCH, NVLINK):
        worst += ((inside @ (links >= rank).astype(np.float32)) * inside).sum(axis=1) == pairs
    reach = inside @ links.astype(np.float32)
    within = (reach * inside).sum(axis=1)
    severed = (reach * (1 - inside)).sum(axis=1)
    value = np.round(values[sets].sum(axis=1), _DIGITS)
    # A single device has no pairs, so its value decides.
    return int(np.lexsort((np.arange(len(sets)), severed, -value, -within, -worst))[0])


@lru_cache(maxsize=64)
def _all_sets(devices: int, count: int) -> Ints:
    return np.array(list(combinations(range(devices), count)), dtype=np.int64)


def _grown_sets(links: Ints, *, count: int, values: Floats) -> Ints:
    """One set for each device: it starts there and always adds the best-connected device."""
    grown = []
    for seed in range(len(values)):
        members = [seed]
        while len(members) < count:
            reach = links[members]
            order = np.lexsort((-values, -reach.sum(axis=0), -reach.min(axis=0)))
            members.append(next(int(at) for at in order if at not in members))
        grown.append(sorted(members))
    return np.array(grown, dtype=np.int64)
