import json

import pytest

from dovetail import names
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Mode
from dovetail.pods.allocation import (
    Allocation,
    AllocationError,
    ContainerAllocation,
    allocation_in,
    annotations_of,
)


def make_allocation(*, mode: Mode, share_milli: int = 1000, devices: int = 2) -> Allocation:
    parts = [
        AllocatedDevice(uuid=f"GPU-{i}", index=i, share_milli=share_milli, memory_mib=8192) for i in range(devices)
    ]
    return Allocation(node="a", mode=mode, containers=[ContainerAllocation(index=0, devices=parts)])


def test_what_is_written_is_read_again() -> None:
    allocation = make_allocation(mode="Fractional", share_milli=500)
    assert allocation_in(annotations_of(allocation)) == allocation


def test_a_whole_device_gets_its_uuids_and_no_limits() -> None:
    annotations = annotations_of(make_allocation(mode="Exclusive"))
    assert annotations["dovetail.dev/visible-devices.0"] == "GPU-0,GPU-1"
    assert set(annotations) == {names.ALLOCATION, "dovetail.dev/visible-devices.0"}


def test_a_share_gets_limits_by_the_devices_as_its_container_sees_them() -> None:
    annotations = annotations_of(make_allocation(mode="Fractional", share_milli=255))
    assert annotations["dovetail.dev/mps-percentage.0"] == "25"
    assert annotations["dovetail.dev/mps-memory.0"] == "0=8192M,1=8192M"


def test_the_smallest_share_is_one_percent() -> None:
    annotations = annotations_of(make_allocation(mode="Fractional", share_milli=1, devices=1))
    assert annotations["dovetail.dev/mps-percentage.0"] == "1"


def test_a_pod_without_allocation_has_none() -> None:
    assert allocation_in({}) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"node": "a"}', '{"version": 2, "node": "a", "mode": "Exclusive", "containers": []}']
)
def test_a_broken_annotation_is_named(text: str) -> None:
    with pytest.raises(AllocationError, match=r"annotation dovetail\.dev/allocation"):
        allocation_in({names.ALLOCATION: text})


@pytest.mark.parametrize(
    ("field", "value"), [("shareMilli", 10**30), ("shareMilli", -1000), ("memoryMiB", 10**30), ("memoryMiB", -1)]
)
def test_no_forged_number_becomes_a_promise(field: str, value: int) -> None:
    device = {"uuid": "GPU-0", "index": 0, "shareMilli": 500, "memoryMiB": 1024} | {field: value}
    forged = {"version": 1, "node": "a", "mode": "Fractional", "containers": [{"index": 0, "devices": [device]}]}
    with pytest.raises(AllocationError, match="is no allocation"):
        allocation_in({names.ALLOCATION: json.dumps(forged)})
