"""Which devices of a node a pod gets: the best by its policy, and of several devices the best-connected set. Pure.

The node publishes the links: NVLink ranks before one PCIe switch, before one socket, before the rest. Sets compare by
their worst pair first, because a ring of data is as slow as its slowest link; then by the sum of their links, then by
what the policy says of their devices, then by how few links they take from the devices that stay free.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Final

import numpy as np

from dovetail.api.devices import AllocatedDevice
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Floats, Ints
from dovetail.engine.model.inventory import DeviceFacts
from dovetail.gpu.request import WHOLE_MILLI

NVLINK: Final = 3
SWITCH: Final = 2
SOCKET: Final = 1
# Up to this number of sets all are compared (4 of 16 devices are 1,820); beyond it, one set grows from each device.
_MOST_SETS: Final = 2_000
# Values that agree in so many digits count as equal; the first device wins.
_DIGITS: Final = 5
_STEPS: Final = 10**_DIGITS


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeDevices:
    """The free devices of a node for one container's ask. All sequences but `slots` have a value for each slot.

    node          the node's name
    ask           what is asked of it, with a GPU request
    facts         the devices as last reported
    slots         the slots of the free devices, in rising order
    share_left    milli that are not promised
    allowed_mib   memory that may be promised to all tenants of a free device together
    free_mib      memory of a free device that is neither promised nor used by foreign processes
    total_mib     memory without the driver's reserve
    tenants       how many tenants a device has
    utilization   how busy a device is, 0 to 1
    """

    node: str
    ask: Ask
    facts: Sequence[DeviceFacts]
    slots: Sequence[int]
    share_left: Sequence[int]
    allowed_mib: Sequence[int]
    free_mib: Sequence[int]
    total_mib: Sequence[int]
    tenants: Sequence[int]
    utilization: Sequence[float]

    def claims(self, slots: Iterable[int]) -> tuple[AllocatedDevice, ...]:
        """The ask's claim on each of these slots.

        A whole device may have less free memory than the ask would get, because foreign processes may use a little.
        """
        gpu = self.ask.gpu
        assert gpu is not None, "only for an ask with a GPU request"
        return tuple(
            AllocatedDevice(
                index=self.facts[slot].index,
                uuid=self.facts[slot].uuid,
                share_milli=gpu.share_milli,
                memory_mib=min(self._needed_mib(slot), self.free_mib[slot]),
                mig=gpu.mig,
            )
            for slot in slots
        )

    def _needed_mib(self, slot: int) -> int:
        return needed_mib(self.ask, allowed_mib=self.allowed_mib[slot], total_mib=self.total_mib[slot])


# How good each free device of a node is, one value for each of `slots`; higher is better.
DeviceValues = Callable[[FreeDevices], Sequence[float]]


def needed_mib(ask: Ask, *, allowed_mib: int, total_mib: int) -> int:
    """Memory that the ask takes of a device with `total_mib`, of which all tenants may be promised `allowed_mib`."""
    gpu = ask.gpu
    assert gpu is not None, "only for an ask with a GPU request"
    if ask.mode != "Exclusive" and (asked := gpu.memory_on(total_mib)) is not None:
        return asked
    return allowed_mib * gpu.share_milli // WHOLE_MILLI


def choose_devices(free: FreeDevices, *, values: DeviceValues) -> tuple[AllocatedDevice, ...]:
    """The devices of a node that fits for an ask of one container."""
    gpu = free.ask.gpu
    assert gpu is not None, "only for an ask with a GPU request"
    return free.claims(choose_slots(free.slots, count=gpu.count, values=values(free), facts=free.facts))


def choose_for_several(free: FreeDevices, *, workers: int) -> list[tuple[AllocatedDevice, ...]]:
    """The whole devices of each of several workers of one container on a node that has them."""
    gpu = free.ask.gpu
    assert gpu is not None, "only for an ask with a GPU request"
    value = dict(zip(free.slots, best_fit_values(free), strict=True))
    slots, found = list(free.slots), []
    for _ in range(workers):
        best = choose_slots(slots, count=gpu.count, values=[value[slot] for slot in slots], facts=free.facts)
        slots = [slot for slot in slots if slot not in best]
        found.append(free.claims(best))
    return found


def choose_slots(
    slots: Sequence[int], *, count: int, values: Sequence[float], facts: Sequence[DeviceFacts]
) -> tuple[int, ...]:
    """The best `count` of the free devices `slots` [n], in rising order. `values` [n]: higher is better."""
    if count == len(slots):
        return tuple(slots)
    free = [facts[slot] for slot in slots]
    if count == 1:
        return (slots[_best_one(free, values=[round(value * _STEPS) for value in values])],)
    links, rounded = link_ranks(free), np.round(np.array(values), _DIGITS)
    if comb(len(slots), count) <= _MOST_SETS:
        sets = _all_sets(len(slots), count)
    else:
        sets = _grown_sets(links, count=count, values=rounded)
    best = sets[_first_of_best(sets, links=links, values=rounded)]
    return tuple(sorted(slots[at] for at in best.tolist()))


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


def _best_one(devices: Sequence[DeviceFacts], *, values: Sequence[int]) -> int:
    """The position of the best single device: by value, then by how few links to free devices it takes."""
    highest = max(values)
    best = [at for at, value in enumerate(values) if value == highest]
    if len(best) == 1 or not any(one.nvlink or one.switch or one.numa_node is not None for one in devices):
        return best[0]
    return min(best, key=lambda at: sum(_rank(devices[at], other=other) for other in devices))


def best_fit_values(free: FreeDevices) -> list[float]:
    """How good each free device is without prices: the emptiest for Spread, else the fullest."""
    return [_best_fit_value(free, slot=slot) for slot in free.slots]


def _best_fit_value(free: FreeDevices, *, slot: int) -> float:
    share = free.share_left[slot] / WHOLE_MILLI
    room = share + 1e-3 * free.free_mib[slot] / max(1, free.total_mib[slot])
    turns = free.tenants[slot] if free.ask.mode == "TimeShared" else 0
    if free.ask.policy != "Spread":
        return turns - room
    # A promise counts as load before it is measured.
    load = max(free.utilization[slot], 1 - share)
    return 1e-2 * room - load - turns


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
