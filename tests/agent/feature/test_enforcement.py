"""What a node says that it can enforce: each word found out, and a sentence for each that is not."""

from pathlib import Path

import msgspec
from msgspec.structs import replace as with_fields

from dovetail.api.gpunode import Enforcement, GPUNode, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import ObjectMeta, find_condition
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory, Sample
from dovetail_agent.feature.enforcement import Discovery, with_enforcement
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.mps import state_file
from dovetail_agent.mps.feature import MpsFeature
from dovetail_agent.mps.state_file import State
from tests.agent.builders import NOON, allocated, make_node
from tests.agent.mps_machine import fractional

REPORT = GPUNodeStatus(provider="nvml")
WORDS = {"mps", "turns", "timeSlicing", "mig", "checkpoint"}
LIVE = State(at=990.0, live=True, reason="Probed", message="a client was refused")


def seen(*shareable: bool | None, tenants: tuple[NodeTenant, ...] = (), previous: GPUNodeStatus | None = None) -> Seen:
    devices = tuple(
        DeviceInfo(index=at, uuid=allocated(at).uuid, vendor="nvidia", model="V100", memory_mib=32768)
        for at in range(len(shareable))
    )
    sample = Sample(devices=tuple(DeviceSample(shareable=each) for each in shareable))
    gpunode = GPUNode(metadata=ObjectMeta(name="v100-0"), status=previous) if previous else None
    return Seen(
        node=make_node(),
        now=NOON,
        tenants=tenants,
        inventory=Inventory(devices=devices),
        sample=sample,
        gpunode=gpunode,
    )


def found(*shareable: bool | None, tenants: tuple[NodeTenant, ...] = ()) -> Enforcement:
    return Discovery().amend(REPORT, seen=seen(*shareable, tenants=tenants)).enforcement


def mps(folder: Path, state: State | None, *, now: float = 1000.0) -> MpsFeature:
    if state is not None:
        state_file.write(folder / "mps.json", state=state)
    feature = MpsFeature(folder / "mps.json", clock=lambda: now)
    feature._state = feature._read()
    return feature


def test_what_nobody_spoke_of_is_not_claimed_and_says_why() -> None:
    enforcement = found(None)
    assert set(enforcement.reasons) == WORDS
    assert enforcement.reasons["mps"] == "MPS is switched off (mps.enabled)"


def test_a_card_whose_driver_lets_many_compute_is_time_sliced() -> None:
    assert found(True, True).time_slicing
    assert "timeSlicing" not in found(True).reasons


def test_a_card_in_another_compute_mode_is_named() -> None:
    one = found(True, False)
    assert (one.time_slicing, one.reasons["timeSlicing"]) == (
        True, "device 1: the compute mode lets only one process, or none, compute there",
    )  # fmt: skip
    assert not found(False).time_slicing


def test_a_card_that_mps_keeps_to_itself_says_nothing_against_time_slicing() -> None:
    assert found(False, True, tenants=(fractional(0),)).reasons.keys() == WORDS - {"timeSlicing"}


def test_a_simulated_node_enforces_nothing_and_says_so() -> None:
    status = Discovery().amend(GPUNodeStatus(provider="simulated"), seen=seen(None))
    assert set(status.enforcement.reasons.values()) == {"the node is simulated: nothing runs there"}


def test_a_reason_goes_when_its_word_holds() -> None:
    before = with_enforcement(REPORT, name="mps", holds=False, why="not yet")
    assert with_enforcement(before, name="mps", holds=True).enforcement == Enforcement(mps=True)


def test_mps_is_claimed_when_its_supervisor_has_proven_it(tmp_path: Path) -> None:
    status = mps(tmp_path, LIVE).amend(REPORT, seen=seen(True))
    condition = find_condition(status.conditions, type="MPS")
    assert status.enforcement.mps
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("True", "Probed", "a client was refused")


def test_mps_is_not_claimed_on_the_word_of_a_silent_supervisor(tmp_path: Path) -> None:
    for feature in (mps(tmp_path, None), mps(tmp_path, LIVE, now=1051.0)):
        enforcement = feature.amend(REPORT, seen=seen(True)).enforcement
        assert not enforcement.mps
        assert "says nothing" in enforcement.reasons["mps"]


def test_a_file_that_is_no_state_is_silence(tmp_path: Path) -> None:
    (tmp_path / "mps.json").write_text("{}")
    assert not mps(tmp_path, None).amend(REPORT, seen=seen(True)).enforcement.mps


def test_why_mps_is_not_there_is_told(tmp_path: Path) -> None:
    crashed = State(at=999.0, reason="Crashed", message="there is no control daemon: killed by signal 9")
    status = mps(tmp_path, crashed).amend(REPORT, seen=seen(True))
    assert status.enforcement.reasons["mps"] == "MPS: there is no control daemon: killed by signal 9"


def test_a_client_below_the_largest_promise_is_named_as_held_by_its_own_will(tmp_path: Path) -> None:
    large, small = fractional(0, uid="a"), fractional(0, memory_mib=4096, uid="b")
    tenants = (with_fields(large, namespace="ml", name="large"), with_fields(small, namespace="ml", name="small"))
    status = mps(tmp_path, LIVE).amend(REPORT, seen=seen(True, tenants=tenants))
    assert status.enforcement.reasons["mps"].endswith("keeps its environment: ml/small")


def test_the_condition_keeps_the_time_of_its_last_change(tmp_path: Path) -> None:
    feature = mps(tmp_path, LIVE)
    first = feature.amend(REPORT, seen=seen(True))
    long_ago = msgspec.structs.replace(first.conditions[0], last_transition_time="2026-01-01T00:00:00Z")
    previous = msgspec.structs.replace(first, conditions=[long_ago])
    assert feature.amend(REPORT, seen=seen(True, previous=previous)).conditions == [long_ago]
