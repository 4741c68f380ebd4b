"""Which devices of a node a pod gets, by links and by policy."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from dovetail.engine.filter.device_choice import choose_slots
from dovetail.engine.model.inventory import DeviceFacts

QUADS = [(0, 1, 2, 3), (4, 5, 6, 7)]
PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7)]


def server(
    count: int, *, nvlink: list[tuple[int, ...]] = (), switch: list[tuple[int, ...]] = (), sockets: int = 0
) -> list[DeviceFacts]:
    def others(groups: list[tuple[int, ...]], index: int) -> tuple[int, ...]:
        return tuple(other for group in groups if index in group for other in group if other != index)

    return [
        DeviceFacts(
            index=index, uuid=f"GPU-{index}", vendor="nvidia", model="V100", memory_mib=32768,
            numa_node=index * sockets // count if sockets else None,
            nvlink=others(nvlink, index), switch=others(switch, index),
        )
        for index in range(count)
    ]  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    devices: list[DeviceFacts]
    count: int
    expected: tuple[int, ...]
    free: tuple[int, ...] = ()
    values: dict[int, float] = field(default_factory=dict)


SCENARIOS = {
    "two devices with NVLink come before two behind one switch": Scenario(
        devices=server(4, nvlink=[(2, 3)], switch=[(0, 1), (2, 3)]), count=2, expected=(2, 3)
    ),
    "two devices behind one switch come before two of a socket": Scenario(
        devices=server(4, switch=[(2, 3)], sockets=1), count=2, expected=(2, 3)
    ),
    "two devices of a socket come before two of different sockets": Scenario(
        devices=server(4, sockets=2), count=2, free=(1, 2, 3), expected=(2, 3)
    ),
    "four devices are one NVLink quad": Scenario(
        devices=server(8, nvlink=QUADS, sockets=2), count=4, free=(0, 1, 3, 4, 5, 6, 7), expected=(4, 5, 6, 7)
    ),
    "six devices are a quad and a pair, not three and three": Scenario(
        devices=server(8, nvlink=QUADS, switch=PAIRS, sockets=2), count=6, expected=(0, 1, 2, 3, 4, 5)
    ),
    "a set is as good as its worst pair": Scenario(
        devices=server(6, nvlink=[(0, 1)], switch=[(3, 4, 5)]), count=3, expected=(3, 4, 5)
    ),
    "one device is taken where it breaks no NVLink pair": Scenario(
        devices=server(4, nvlink=[(0, 1), (2, 3)]), count=1, free=(0, 1, 3), expected=(3,)
    ),
    "two devices leave a quad whole where a pair is broken already": Scenario(
        devices=server(8, nvlink=QUADS), count=2, free=(0, 1, 2, 3, 6, 7), expected=(6, 7)
    ),
    "the value of a device comes before what its links are to others": Scenario(
        devices=server(4, nvlink=[(0, 1), (2, 3)]), count=1, free=(0, 1, 3), values={0: 1.0}, expected=(0,)
    ),
    "links come before values where several devices are asked": Scenario(
        devices=server(4, nvlink=[(2, 3)]), count=2, values={0: 1.0, 1: 1.0}, expected=(2, 3)
    ),
    "without links the values decide": Scenario(
        devices=server(4), count=2, values={1: 1.0, 3: 1.0}, expected=(1, 3)
    ),
    "of equals the first are taken": Scenario(devices=server(8), count=3, expected=(0, 1, 2)),
    "all that are free are taken when all are asked": Scenario(
        devices=server(4, nvlink=[(0, 1)]), count=2, free=(1, 2), expected=(1, 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_devices_are_chosen(scenario: Scenario) -> None:
    free = np.array(scenario.free or range(len(scenario.devices)))
    values = np.array([scenario.values.get(slot, 0.0) for slot in free.tolist()])
    assert choose_slots(free, count=scenario.count, values=values, facts=scenario.devices) == scenario.expected


def test_where_sets_are_too_many_to_look_at_all_a_connected_one_is_found() -> None:
    islands = [tuple(range(start, start + 8)) for start in range(0, 32, 8)]
    found = choose_slots(
        np.arange(1, 32), count=8, values=np.zeros(31), facts=server(32, nvlink=islands, sockets=2)
    )  # fmt: skip
    assert found == islands[1]
