"""Which devices of a node a pod gets, by links and by policy."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from unittest.mock import patch

import numpy as np
import pytest

from dovetail.api.gpujob import Mode, Policy
from dovetail.engine.filter import device_choice
from dovetail.engine.filter.device_choice import choose_slots, link_ranks
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.model.inventory import DeviceFacts
from tests.core.engine.builders import hold_devices, make_ask, make_device, make_ledger

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


@pytest.mark.parametrize("are_many", [True, False])
@pytest.mark.parametrize("seed", range(120))
def test_a_choice_is_the_one_that_its_rules_name(seed: int, are_many: bool) -> None:
    """Of any links, not those alone that servers have: what chooses is read from the rules once more."""
    rng = Random(seed)
    facts = any_devices(rng, most=12 if are_many else 8)
    free = sorted(rng.sample(range(len(facts)), rng.randint(3, len(facts))))
    count, values = rng.randint(2, min(5, len(free))), [rng.choice([0.0, 0.0, 0.25, 1.0]) for _ in free]
    with patch.object(device_choice, "_MOST_SETS", 0 if are_many else 2_000):
        found = choose_slots(free, count=count, values=values, facts=facts)
    rules = Rules(links=link_ranks([facts[at] for at in free]).tolist(), values=values)
    sets = rules.grown(count) if are_many else list(combinations(range(len(free)), count))
    assert found == tuple(free[at] for at in min(sets, key=rules.order))


def any_devices(rng: Random, *, most: int) -> list[DeviceFacts]:
    indexes, density = range(rng.randint(4, most)), rng.choice([0.15, 0.3, 0.5])
    linked = {pair for pair in combinations(indexes, 2) if rng.random() < density}
    sockets, switches = ([rng.choice(kinds) for _ in indexes] for kinds in ([None, 0, 1], [0, 1, 2]))
    return [
        DeviceFacts(
            index=at, uuid=f"GPU-{at}", vendor="nvidia", model="V100", memory_mib=32768, numa_node=sockets[at],
            nvlink=tuple(other for other in indexes if (min(at, other), max(at, other)) in linked),
            switch=tuple(other for other in indexes if other != at and switches[other] == switches[at] > 0),
        )
        for at in indexes
    ]  # fmt: skip


@dataclass(frozen=True)
class Rules:
    """What is said of a choice, by the links of each pair of free devices and the value of each."""

    links: list[list[int]]
    values: list[float]

    def order(self, chosen: tuple[int, ...]) -> tuple[float, ...]:
        """The worst link, then all links, then the devices' values, then few links that are cut."""
        inside = [self.links[one][other] for one, other in combinations(chosen, 2)]
        cut = sum(self.links[one][other] for one in chosen for other in self._others(chosen))
        return -min(inside), -sum(inside), -sum(self.values[at] for at in chosen), cut

    def grown(self, count: int) -> list[tuple[int, ...]]:
        """From each device, always with the one whose worst link to those before is the best."""
        sets = []
        for seed in range(len(self.values)):
            chosen = [seed]
            while len(chosen) < count:
                chosen.append(min(self._others(chosen), key=lambda at: self._distance(at, chosen=tuple(chosen))))
            sets.append(tuple(sorted(chosen)))
        return sets

    def _distance(self, at: int, *, chosen: tuple[int, ...]) -> tuple[float, ...]:
        reach = [self.links[one][at] for one in chosen]
        return -min(reach), -sum(reach), -self.values[at]

    def _others(self, chosen: Sequence[int]) -> list[int]:
        return [at for at in range(len(self.values)) if at not in chosen]


def test_how_well_devices_are_connected() -> None:
    """NVLink, one switch, one socket, and nothing in common; a device is not connected to itself."""
    facts = server(4, nvlink=[(0, 1)], switch=[(0, 1), (1, 2)], sockets=2)
    assert link_ranks(facts).tolist() == [
        [0, 3, 0, 0],
        [3, 0, 2, 0],
        [0, 2, 0, 1],
        [0, 0, 1, 0],
    ]
    assert link_ranks(server(2)).tolist() == [[0, 0], [0, 0]], "what nobody knows is no socket in common"


@pytest.mark.parametrize(
    ("policy", "mode", "there", "load", "expected"),
    [
        ("Balanced", "Fractional", {0: 500, 1: 700}, {}, 1),
        ("Pack", "Fractional", {0: 500, 1: 700}, {}, 1),
        ("Spread", "Fractional", {0: 500, 1: 700}, {}, 2),
        ("Spread", "Fractional", {0: 200, 1: 500}, {2: 0.9}, 0),
        ("Spread", "Fractional", {2: 300}, {0: 0.9, 1: 0.4}, 2),
        ("Balanced", "Fractional", {0: 500}, {0: 0.9}, 0),
        ("Spread", "TimeShared", {0: 300}, {1: 0.9}, 2),
        ("Balanced", "TimeShared", {0: 300}, {}, 0),
    ],
    ids=[
        "Balanced takes the fullest", "Pack takes the fullest", "Spread takes the emptiest",
        "Spread avoids what is measured hot", "of a promise and a load the higher counts",
        "Balanced fills what it has started", "Spread adds turns last", "others overlap turns first",
    ],
)  # fmt: skip
def test_which_device_a_policy_takes_where_nothing_is_priced(
    policy: Policy, mode: Mode, there: dict[int, int], load: dict[int, float], expected: int
) -> None:
    ledger = make_ledger(a=3)
    ledger.set_devices("a", devices=[make_device("a", at, utilization=load.get(at, 0.0)) for at in range(3)])
    for index, share in there.items():
        hold_devices(ledger, "a", index, share_milli=share, mode=mode)
    found = check(ledger, ask=make_ask("0.1", policy=policy, mode=mode), node="a", key="p")
    assert isinstance(found, Fit)
    assert [device.index for device in found.claim.devices] == [expected]
