"""Bad cards over a restart of their agent: what makes one well again, and what does not."""

from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from dovetail.api.gpunode import LOST, Device, GPUNode, GPUNodeSpec, GPUNodeStatus
from dovetail.api.gpunode import Fault as Reported
from dovetail.api.meta import ObjectMeta
from dovetail_agent.devices.faults import Past, with_lost, with_open_faults
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Fault, Inventory, Sample

NOON: Final = datetime.fromisoformat("2026-11-21T12:00:00Z")
HOUR: Final = timedelta(hours=1)
WELL: Final = DeviceSample()
XID: Final = Reported(reason="Xid79FellOffTheBus", at="2026-11-21T11:00:00Z")


def info(index: int = 0, **values: Any) -> DeviceInfo:
    given = {"vendor": "nvidia", "model": "H100", "memory_mib": 81559, "pci_bus_id": f"0000:{index:02x}:00.0"} | values
    return DeviceInfo(index=index, uuid=f"GPU-{index}", **given)


def device(index: int = 0, *faults: Reported) -> Device:
    return Device(
        index=index, uuid=f"GPU-{index}", vendor="nvidia", model="H100", memory_mib=81559,
        pci_bus_id=f"0000:{index:02x}:00.0", faults=list(faults),
    )  # fmt: skip


def past(
    *devices: Device,
    boot: str = "boot-1",
    driver: str = "580",
    mended: dict[str, str] | None = None,
    now: str = "boot-1",
) -> Past:
    status = GPUNodeStatus(boot_id=boot, driver_version=driver, devices=list(devices))
    spec = GPUNodeSpec(mended=mended or {})
    return Past.from_gpunode(GPUNode(metadata=ObjectMeta(name="a"), spec=spec, status=status), boot_id=now)


def told(past: Past, *, sample: DeviceSample = WELL, of: DeviceInfo | None = None) -> DeviceSample:
    inventory = Inventory(devices=(of or info(),), driver_version="580")
    whole = with_open_faults(Sample(devices=(sample,)), answered=inventory, inventory=inventory, past=past)
    return whole.devices[0]


def test_a_fault_outlasts_the_agent_that_saw_it() -> None:
    seen = told(past(device(0, XID)))
    assert seen.unhealthy_reason == "Xid79FellOffTheBus"
    assert seen.faults == (Fault(reason="Xid79FellOffTheBus", at=NOON - HOUR),)


@pytest.mark.parametrize(
    "over",
    [
        pytest.param(past(device(0, XID), now="boot-2"), id="the node has booted since"),
        pytest.param(past(device(0, XID), driver="575"), id="another version of the driver was loaded"),
        pytest.param(past(device(0, XID), mended={"GPU-0": "2026-11-21T11:30:00Z"}), id="a person says so"),
        pytest.param(past(device(0, XID), mended={"GPU-0": "2026-11-21 11:30"}), id="a person says so, in UTC"),
        pytest.param(past(device(1, XID)), id="it was another device"),
    ],
)
def test_a_fault_is_over(over: Past) -> None:
    assert told(over) == DeviceSample()


def test_a_fault_is_over_when_the_driver_was_seen_to_be_loaded_anew() -> None:
    assert told(past(device(0, XID)), of=info(loaded_at=NOON)) == DeviceSample()


@pytest.mark.parametrize(
    "not_over",
    [
        pytest.param(past(device(0, XID), now=""), id="nobody says which boot this is"),
        pytest.param(past(device(0, XID), boot=""), id="nobody said which boot that was"),
        pytest.param(past(device(0, XID), mended={"GPU-0": "2026-11-21T10:30:00Z"}), id="it came after it was mended"),
        pytest.param(past(device(0, XID), mended={"GPU-0": "yesterday"}), id="nobody can tell when it was mended"),
        pytest.param(past(device(0, XID), mended={"GPU-1": "2026-11-21T11:30:00Z"}), id="another device was mended"),
    ],
)
def test_a_fault_still_counts(not_over: Past) -> None:
    assert told(not_over).unhealthy_reason == "Xid79FellOffTheBus"


def test_a_fault_that_comes_again_after_the_device_was_mended_counts() -> None:
    mended = past(device(0, XID), mended={"GPU-0": "2026-11-21T11:30:00Z"})
    again = Fault(reason="Xid79FellOffTheBus", at=NOON)
    assert told(mended, sample=DeviceSample(faults=(again,))).faults == (again,)


def test_of_a_fault_that_came_twice_the_last_time_is_told() -> None:
    again = Fault(reason="Xid79FellOffTheBus", at=NOON)
    assert told(past(device(0, XID)), sample=DeviceSample(faults=(again,))).faults == (again,)


def test_a_card_that_does_not_answer_now_says_that_first() -> None:
    assert told(past(device(0, XID)), sample=DeviceSample(unhealthy_reason=LOST)).unhealthy_reason == LOST


def test_a_card_that_a_new_agent_cannot_read_stays_for_its_pods_and_is_lost() -> None:
    answered, before = Inventory(devices=(info(0),), driver_version="580"), past(device(0), device(1))
    inventory = with_lost(answered, past=before)
    sample = with_open_faults(Sample(devices=(DeviceSample(),)), answered=answered, inventory=inventory, past=before)
    assert [(each.index, each.uuid, each.model) for each in inventory.devices] == [
        (0, "GPU-0", "H100"),
        (1, "GPU-1", "H100"),
    ]
    assert [state.unhealthy_reason for state in sample.devices] == ["", LOST]


@pytest.mark.parametrize(
    ("answered", "before"),
    [
        pytest.param([info(0)], past(device(0), device(1), now="boot-2"), id="it was taken out while the node was off"),
        pytest.param([info(0)], past(device(0), device(1), now=""), id="nobody says which boot this is"),
        pytest.param(
            [info(0)], past(device(0), device(1), mended={"GPU-1": "2026-11-21T11:30:00Z"}), id="a person says so"
        ),
        pytest.param(
            [info(0), info(2, pci_bus_id="0000:01:00.0")], past(device(0), device(1)), id="MIG devices are in its place"
        ),
    ],
)
def test_a_card_that_is_gone_for_good_is_left_out(answered: list[DeviceInfo], before: Past) -> None:
    inventory = Inventory(devices=tuple(answered))
    assert with_lost(inventory, past=before) == inventory


def test_a_node_that_was_never_reported_has_no_past() -> None:
    nothing = Past.from_gpunode(None, boot_id="boot-1")
    assert told(nothing) == DeviceSample()
    assert with_lost(Inventory(devices=(info(),)), past=nothing).devices == (info(),)
