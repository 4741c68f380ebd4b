"""Free capacity as the fragmentation mathematics sees it, in step with the ledger."""

import pytest

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.settings import Limits
from dovetail.engine.score.priced_term import CapacityMirror
from dovetail.fragmentation.capacity import CPU, MEMORY
from tests.core.engine.builders import add_node, hold_devices, make_device, make_ledger


def left(mirror: CapacityMirror, *, devices: int) -> list[int]:
    """Of the first node, which has so many devices."""
    found: list[int] = mirror.columns.left[0, :devices].tolist()
    return found


def mirror_of(ledger: Ledger) -> CapacityMirror:
    mirror = CapacityMirror(ledger)
    mirror.follow()
    return mirror


def test_what_is_promised_is_not_left() -> None:
    ledger = make_ledger(a=4)
    hold_devices(ledger, "a", 0)
    hold_devices(ledger, "a", 1, share_milli=300, mode="Fractional")
    assert left(mirror_of(ledger), devices=4) == [0, 700, 1000, 1000]


def test_memory_that_is_tighter_than_the_share_is_what_counts() -> None:
    ledger = make_ledger(a=1)
    hold_devices(ledger, "a", 0, share_milli=100, memory_mib=19660, mode="Fractional")
    assert left(mirror_of(ledger), devices=1) == [250]


def test_the_strictest_tenant_of_a_device_says_how_much_of_its_memory_counts() -> None:
    """With 95 % allowed to all and a tenant that stays below 80 %, 26,214 MiB of a V100 count."""
    ledger = Ledger(limits=Limits(guard_fraction=0.95))
    add_node(ledger, "a", gpus=2)
    for index, guard in enumerate(("Conservative", None)):
        hold_devices(ledger, "a", index, share_milli=100, memory_mib=19660, mode="Fractional", guard=guard)
    strict, loose = left(mirror_of(ledger), devices=2)
    assert strict == 1000 * (26214 - 19660) // 26214
    assert loose == 1000 * (31129 - 19660) // 31129


def test_a_share_s_own_part_of_the_memory_is_no_shortage() -> None:
    ledger = make_ledger(a=1)
    hold_devices(ledger, "a", 0, share_milli=333, memory_mib=26214 * 333 // 1000, mode="Fractional")
    assert left(mirror_of(ledger), devices=1) == [667]


@pytest.mark.parametrize(
    "facts",
    [{"healthy": False}, {"cordoned": True}, {"foreign_mib": 32768}],
    ids=["unhealthy", "cordoned", "full of strangers"],
)
def test_a_device_that_takes_nothing_has_nothing_left(facts: dict[str, object]) -> None:
    ledger = make_ledger(a=1)
    ledger.set_devices("a", devices=[make_device("a", 0), make_device("a", 1, **facts)])
    assert left(mirror_of(ledger), devices=2) == [1000, 0]


def test_a_device_that_takes_turns_has_nothing_left_for_others() -> None:
    ledger = make_ledger(a=2)
    hold_devices(ledger, "a", 0, mode="TimeShared")
    assert left(mirror_of(ledger), devices=2) == [0, 1000]


def test_a_node_that_takes_no_pods_has_no_capacity() -> None:
    ledger = make_ledger(a=2, b=2)
    mirror = mirror_of(ledger)
    add_node(ledger, "a", gpus=2, obstacle="node is not ready")
    ledger.drop_node("b")
    mirror.follow()
    assert mirror.columns.capacity_milli == 0
    assert mirror.columns.idle_milli == 0
    assert mirror.columns.idle_cpu_milli == 0


def test_it_follows_claims_nodes_and_models_that_come_later() -> None:
    ledger = Ledger()
    mirror = mirror_of(ledger)
    for number in range(200):
        add_node(
            ledger, f"n{number}", gpus=1 + number % 3, model="T4" if number % 2 else "V100", cpu_milli=1000 + number
        )
    mirror.follow()
    ledger.commit(Claim(key="pod", node="n199", cpu_milli=150, memory_mib=1024))
    hold_devices(ledger, "n198", 0)
    # Nine devices are more than the ledger had room for at first, and n198 has one.
    mirror.follow()
    columns = mirror.columns
    assert columns.spare[199, [CPU, MEMORY]].tolist() == [1049, 261120]
    assert columns.left[198].sum() == 0
    assert columns.idle_milli == int(columns.left.sum())
    assert [columns.model_names[code] for code in columns.model[:2]] == ["V100 32GB", "T4 16GB"]


def test_what_does_not_concern_capacity_touches_nothing() -> None:
    ledger = make_ledger(a=2)
    mirror = mirror_of(ledger)
    before = mirror.columns.changes
    ledger.set_devices("a", devices=[make_device("a", 0, utilization=0.9), make_device("a", 1)])
    mirror.follow()
    assert mirror.columns.changes == before


def test_it_can_leave_a_claim_out_for_a_while() -> None:
    ledger = make_ledger(a=2)
    hold_devices(ledger, "a", 0, key="pod")
    mirror = mirror_of(ledger)
    assert left(mirror, devices=2) == [0, 1000]
    with mirror.without("pod"):
        assert left(mirror, devices=2) == [1000, 1000]
    assert left(mirror, devices=2) == [0, 1000]
