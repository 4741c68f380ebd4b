"""Which devices of a node a pod gets: the best by its policy, and of several the set that is best connected. Pure.

The links are those that the node publishes: NVLink before one PCIe switch before one socket before the rest. A set is
as good as its worst pair, for data that goes round is as slow as that; then comes the sum of its links, then what the
policy says of its devices, and then how few links it takes from the devices that stay free.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Final

import numpy as np

from dovetail.engine.model.columns import Floats, Ints
from dovetail.engine.model.inventory import DeviceFacts

if TYPE_CHECKING:
    from dovetail.engine.filter.fit import Judgement

NVLINK: Final = 3
SWITCH: Final = 2
SOCKET: Final = 1
# So many sets are all looked at (4 of 16 devices are 1,820); of more, one is grown from each device.
_MOST_SETS: Final = 2_000
# Values nearer than this are equal, and the first device has it.
_DIGITS: Final = 5


def chosen(slots: Ints, *, count: int, values: Floats, facts: Sequence[DeviceFacts]) -> tuple[int, ...]:
    """The best `count` of the free devices `slots` in rising order; `values` say how good each is, higher is better."""
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
    """How well each pair of devices is connected, [n, n]; 0 for the worst and for a device with itself."""
    return np.array([[_rank(one, other) for other in devices] for one in devices], dtype=np.int64)


def _rank(one: DeviceFacts, other: DeviceFacts) -> int:
    if one is other:
        return 0
    if other.index in one.nvlink:
        return NVLINK
    if other.index in one.switch:
        return SWITCH
    return SOCKET if one.numa_node is not None and one.numa_node == other.numa_node else 0


def _best_one(devices: Sequence[DeviceFacts], *, values: Floats) -> int:
    """The position of the best device. One has no pairs: its value decides, and of equals how few links it severs."""
    best: list[int] = np.flatnonzero(values == values.max()).tolist()
    if len(best) == 1:
        return best[0]
    return min(best, key=lambda at: sum(_rank(devices[at], other) for other in devices))


def best_fit_values(judged: "Judgement", row: int) -> Floats:
    """How good each device of a node is where nothing is priced: Spread takes the emptiest, others the fullest."""
    columns = judged.columns
    share = columns.share_left[row] / 1000
    room = share + 1e-3 * judged.free_mib[row] / np.maximum(1, columns.total[row])
    turns = columns.tenants[row] if judged.ask.mode == "TimeShared" else 0
    if judged.ask.policy != "Spread":
        return np.asarray(turns - room, dtype=np.float64)
    # A promise that is not measured yet is load as well.
    load = np.maximum(columns.utilization[row], 1 - share)
    return np.asarray(1e-2 * room - load - turns, dtype=np.float64)


def _first_of_best(sets: Ints, *, links: Ints, values: Floats) -> int:
    """The best of the sets [c, k] of positions, the first of equals."""
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
    # One device has no pairs: there the value comes first, as it should.
    return int(np.lexsort((np.arange(len(sets)), severed, -value, -within, -worst))[0])


@lru_cache(maxsize=64)
def _all_sets(devices: int, count: int) -> Ints:
    return np.array(list(combinations(range(devices), count)), dtype=np.int64)


def _grown_sets(links: Ints, *, count: int, values: Floats) -> Ints:
    """One set from each device on, which takes in the best-connected one again and again."""
    grown = []
    for seed in range(len(values)):
        members = [seed]
        while len(members) < count:
            reach = links[members]
            order = np.lexsort((-values, -reach.sum(axis=0), -reach.min(axis=0)))
            members.append(next(int(at) for at in order if at not in members))
        grown.append(sorted(members))
    return np.array(grown, dtype=np.int64)
