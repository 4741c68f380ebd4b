import msgspec
import pytest

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Mode
from dovetail.api.gpunode import Device
from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.report.capacity import advertised, advertises, capacity_patch
from tests.agent.builders import make_node

WANTED = {"dovetail.dev/gpu-milli": 8000, "dovetail.dev/gpu-memory-mib": 262144, "dovetail.dev/gpu-turn": 32}
TEXTS = {name: str(amount) for name, amount in WANTED.items()}


def device(*, health: str = "Healthy") -> Device:
    return Device(index=0, uuid="GPU-0", vendor="nvidia", model="V100", memory_mib=32768, health=health)  # type: ignore[arg-type]  # a literal's value


def test_devices_are_advertised_as_sums() -> None:
    assert advertised([device()] * 8, tenants=(), turns_per_device=4) == WANTED


def test_where_memory_is_moved_to_the_host_it_counts_once_a_turn() -> None:
    wanted = {"dovetail.dev/gpu-milli": 1000, "dovetail.dev/gpu-memory-mib": 131072, "dovetail.dev/gpu-turn": 4}
    assert advertised([device()], tenants=(), turns_per_device=4, moved=True) == wanted


def test_when_that_ends_no_device_counts_for_less_than_its_tenants_hold() -> None:
    held = AllocatedDevice(uuid="GPU-0", index=0, share_milli=1000, memory_mib=20480)
    tenants = [
        NodeTenant(uid=uid, namespace="ml", name=uid, running=True, mode="TimeShared", devices=[held]) for uid in "xy"
    ]
    other = msgspec.structs.replace(device(), index=1, uuid="GPU-1")
    found = advertised([device(), other], tenants=tenants, turns_per_device=4)
    assert found["dovetail.dev/gpu-memory-mib"] == 40960 + 32768


def test_an_unhealthy_device_counts_for_nothing() -> None:
    sick = device(health="Unhealthy")
    assert advertised([device(), sick], tenants=(), turns_per_device=4)["dovetail.dev/gpu-milli"] == 1000


def test_a_mig_device_counts_as_one_that_is_not_shared() -> None:
    part = msgspec.structs.replace(device(), mig_profile="1g.10gb")
    alone = advertised([device()], tenants=(), turns_per_device=4)
    assert advertised([device(), part], tenants=(), turns_per_device=4) == alone | {"dovetail.dev/gpu-milli": 2000}


@pytest.mark.parametrize(("mode", "milli", "turns"), [("Fractional", 1500, 4), ("TimeShared", 1000, 5)])
def test_what_tenants_hold_of_an_unhealthy_device_is_not_taken_from_the_healthy_ones(
    mode: Mode, milli: int, turns: int
) -> None:
    held = AllocatedDevice(uuid="GPU-1", index=1, share_milli=500, memory_mib=1024)
    tenant = NodeTenant(uid="x", namespace="ml", name="x", running=True, mode=mode, devices=[held])
    devices = [device(), msgspec.structs.replace(device(health="Unhealthy"), index=1, uuid="GPU-1")]
    wanted = {"dovetail.dev/gpu-milli": milli, "dovetail.dev/gpu-memory-mib": 33792, "dovetail.dev/gpu-turn": turns}
    assert advertised(devices, tenants=[tenant], turns_per_device=4) == wanted


def test_a_node_without_our_resources_gets_them_in_capacity_and_allocatable() -> None:
    assert capacity_patch(make_node(), wanted=WANTED) == {"status": {"capacity": TEXTS, "allocatable": TEXTS}}


@pytest.mark.parametrize("milli", ["8000", "8k"])
def test_a_node_that_has_them_is_left_alone_however_they_are_written(milli: str) -> None:
    node = make_node(capacity=TEXTS | {"dovetail.dev/gpu-milli": milli})
    assert capacity_patch(node, wanted=WANTED) is None


def test_what_a_restarted_kubelet_set_to_zero_is_advertised_again() -> None:
    node = make_node(capacity=TEXTS | {"dovetail.dev/gpu-milli": "0"})
    only = {"dovetail.dev/gpu-milli": "8000"}
    assert capacity_patch(node, wanted=WANTED) == {"status": {"capacity": only, "allocatable": only}}


@pytest.mark.parametrize(("capacity", "does"), [({}, False), (dict.fromkeys(TEXTS, "0"), False), (TEXTS, True)])
def test_a_node_advertises_when_it_has_any_to_give(capacity: dict[str, str], does: bool) -> None:
    assert advertises(make_node(capacity=capacity)) is does


def card(index: int, *, health: str = "Healthy", mig_profile: str = "") -> Device:
    found = msgspec.structs.replace(device(health=health), index=index, uuid=f"GPU-{index}", memory_mib=10000)
    return msgspec.structs.replace(found, mig_profile=mig_profile)


def holding(*held: tuple[int, int], mode: Mode = "Fractional", uid: str = "x") -> NodeTenant:
    """A tenant with half of each of these devices, and so many MiB."""
    devices = tuple(
        AllocatedDevice(uuid=f"GPU-{index}", index=index, share_milli=500, memory_mib=mib) for index, mib in held
    )
    return NodeTenant(uid=uid, namespace="ml", name=uid, running=True, mode=mode, devices=list(devices))


def test_tenants_of_sick_devices_count_with_what_they_hold_there_and_not_with_what_they_hold_elsewhere() -> None:
    devices = [card(0), card(1, health="Unhealthy"), card(2, health="Unhealthy")]
    tenants = [
        holding((0, 100), (1, 200), uid="x"),
        holding((1, 300), (2, 400), uid="y"),
        holding((2, 500), mode="TimeShared", uid="z"),
    ]
    assert advertised(devices, tenants=tenants, turns_per_device=4) == {
        "dovetail.dev/gpu-milli": 1000 + 3 * 500,
        "dovetail.dev/gpu-memory-mib": 10000 + 200 + 300 + 400 + 500,
        "dovetail.dev/gpu-turn": 4 + 1,
    }


def test_what_is_held_of_a_mig_device_leaves_the_gpus_as_they_are() -> None:
    found = advertised([card(0), card(1, mig_profile="1g.10gb")], tenants=[holding((1, 300))], turns_per_device=4)
    assert found["dovetail.dev/gpu-milli"] == 2000
    assert found["dovetail.dev/gpu-memory-mib"] == 10000


def test_tenants_that_hold_more_than_all_turns_of_a_device_count_in_full() -> None:
    tenants = [holding((0, 9000), mode="TimeShared", uid=uid) for uid in "abc"]
    found = advertised([card(0), card(1)], tenants=tenants, turns_per_device=2, moved=True)
    assert found["dovetail.dev/gpu-memory-mib"] == 27000 + 20000


@pytest.mark.parametrize("field", ["capacity", "allocatable"])
def test_only_the_field_that_lost_an_amount_is_written(field: str) -> None:
    node = make_node(capacity=TEXTS)
    held = {**getattr(node.status, field), "dovetail.dev/gpu-turn": "31"}
    changed = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, **{field: held}))
    assert capacity_patch(changed, wanted=WANTED) == {"status": {field: {"dovetail.dev/gpu-turn": "32"}}}


@pytest.mark.parametrize("name", list(TEXTS))
def test_one_amount_is_enough_to_advertise(name: str) -> None:
    assert advertises(make_node(capacity=dict.fromkeys(TEXTS, "0") | {name: "1"}))
